#pragma once
#include <span>
#include <string>
#include <vector>

#include "layers/module.h"

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
  Tensor param, grad;                   ///< 1-D, equally long
  std::span<const ParamSlice> slices;   ///< those that lie (partly) inside, offsets of the whole buffer
  int64_t offset = 0;                   ///< where this view begins in the whole buffer
  int64_t numel() const { return param.numel(); }
  /// The part [begin, end) of this view, in its own coordinates.
  FlatView range(int64_t begin, int64_t end) const;
};

/// Lays a module's dense parameters and gradients out as views into flat buffers, in reverse order
/// of construction: what backward finishes first comes first, so a bucket is a range. The order is
/// the same on all ranks. Values are kept; the module's handles are swapped for the views.
/// One dtype and device, hence one buffer, for now.
class FlatParams {
 public:
  explicit FlatParams(layers::Module& module);

  const FlatView& all() const { return all_; }
  std::span<const ParamSlice> slices() const { return slices_; }
  /// The parameter's own view (shape of the parameter), by slice number.
  const Tensor& param(int slice) const { return params_[slice]; }
  /// UsageError naming the parameter whose module handle no longer is the view (it was replaced
  /// after wrapping, so its gradient would not be synchronised).
  void check_bound() const;
  /// Text that is equal on two ranks exactly if names, shapes, order and dtypes are.
  std::string signature() const;
  /// Tells the views that the buffer was written as a whole: versions go up.
  void bump_versions() const;

 private:
  FlatView all_;
  std::vector<ParamSlice> slices_;
  std::vector<Tensor> params_;
  std::vector<Tensor*> slots_;
};

}  // namespace lockstep::optim
