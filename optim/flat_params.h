#pragma once
#include "optim/precision.h"

#include "layers/module.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::optim {

using layers::GradKind;
using layers::Placement;

/// A parameter's place in a flat buffer.
struct ParamSlice {
  std::string name;
  std::vector<std::string> aliases;
  Shape shape;
  int64_t begin = 0, end = 0;  ///< elements of the flat buffer
  Placement placement = Placement::replicated;
  bool decay = false;
};

/// A range of a flat buffer: parameters and gradients side by side.
struct FlatView {
  Tensor param, grad;                  ///< 1-D, equally long
  std::span<const ParamSlice> slices;  ///< those (partly) inside, offsets of the whole buffer
  int64_t offset = 0;                  ///< where this view begins in the whole buffer
  int first_slice = 0;                 ///< number of slices.front() in the whole buffer
  /// The parameters' own views, one a slice, whose versions must rise when `param` is written;
  /// empty where there is no module behind the buffer.
  std::span<const Tensor> params;

  int64_t numel() const { return param.numel(); }
  /// The part [begin, end) of this view, in its own coordinates.
  FlatView range(int64_t begin, int64_t end) const;
  /// Tells the parameters that the buffer was written as a whole: versions go up.
  void bump_versions() const;
};

/// Lays a module's dense parameters and gradients out as views into flat buffers, in reverse order
/// of construction: what backward finishes first comes first, so a bucket is a range. The order is
/// the same on all ranks; there is no padding. Values are kept, gradients become zero; the module's
/// handles are swapped for the views. A tied parameter, or one that two modules hold the same
/// handle of, is there once.
///
/// One dtype and device of parameters, hence one buffer; gradients have dtypes of their own. The
/// module must outlive this.
class FlatParams {
 public:
  /// Values are rounded to precision.params. UsageError naming the parameter that is undefined, on
  /// another device, or neither f32 nor of precision.params already, and for a precision whose
  /// accumulate_in is neither its grads nor f32.
  explicit FlatParams(layers::Module& module, const Precision& precision = {});
  FlatParams(const FlatParams&) = delete;  // views refer to its slices
  FlatParams& operator=(const FlatParams&) = delete;

  /// `param` in precision().params, `grad` in precision().accumulate_in.
  const FlatView& all() const { return all_; }
  const Precision& precision() const { return precision_; }
  std::span<const ParamSlice> slices() const { return slices_; }
  /// The parameter's own view (shape of the parameter), by slice number.
  const Tensor& param(int slice) const { return params_[slice]; }
  /// UsageError naming the parameter whose module handle no longer is the view (it was replaced
  /// after wrapping, so its gradient would not be synchronised), or whose gradient no longer lands
  /// in the buffer.
  void check_bound() const;
  /// Text that is equal on two ranks exactly if names, shapes, order and dtypes are: a line each,
  /// and one for the gradients.
  std::string signature() const;
  void bump_versions() const { all_.bump_versions(); }

 private:
  Precision precision_;
  FlatView all_;
  std::vector<ParamSlice> slices_;
  std::vector<Tensor> params_, grads_;          // by slice
  std::vector<std::pair<Tensor*, int>> slots_;  // the modules' handles and their slices
};

}  // namespace lockstep::optim
