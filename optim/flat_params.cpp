#include "optim/flat_params.h"

#include "autograd/leaf.h"
#include "core/kernels/elementwise.h"

#include <algorithm>

namespace lockstep::optim {
namespace {

// The number of the slice that already holds what the handle holds; -1: none.
int slice_of(const Tensor& handle, const std::vector<Tensor>& originals) {
  for (size_t i = 0; i < originals.size(); ++i)
    if (originals[i].is(handle)) return static_cast<int>(i);
  return -1;
}

void check_precision(const Precision& p) {
  const auto floating = [](std::string_view what, DType t) {
    check(is_floating(t), "[optim.flat_params] dtype of {}; expected f32, f16 or bf16, got {}",
          what, name_of(t));
  };
  floating("parameters", p.params);
  floating("gradients", p.grads);
  if (p.grads == DType::f32)
    check(p.accumulate_in == DType::f32,
          "[optim.flat_params] f32 gradients are added in f32; got {}", name_of(p.accumulate_in));
  else
    check(p.accumulate_in == p.grads || p.accumulate_in == DType::f32,
          "[optim.flat_params] {} gradients are added in {} or f32; got {}", name_of(p.grads),
          name_of(p.grads), name_of(p.accumulate_in));
}

}  // namespace

FlatView FlatView::range(int64_t begin, int64_t end) const {
  check(begin >= 0 && begin <= end && end <= numel(),
        "[optim.range] expected 0 <= begin <= end <= {}, got {}..{}", numel(), begin, end);
  const auto first = std::partition_point(
      slices.begin(), slices.end(), [&](const ParamSlice& s) { return s.end <= offset + begin; });
  const auto last = std::partition_point(
      first, slices.end(), [&](const ParamSlice& s) { return s.begin < offset + end; });
  const auto skipped = static_cast<size_t>(first - slices.begin());
  const auto count = begin == end ? 0 : static_cast<size_t>(last - first);
  return {.param = param.slice(begin, end),
          .grad = grad.slice(begin, end),
          .slices = slices.subspan(skipped, count),
          .offset = offset + begin,
          .first_slice = first_slice + static_cast<int>(skipped),
          .params = params.empty() ? params : params.subspan(skipped, count)};
}

void FlatView::bump_versions() const {
  for (const Tensor& p : params) p.bump_version();
}

FlatParams::FlatParams(layers::Module& module, const Precision& precision) : precision_(precision) {
  check_precision(precision);
  std::vector<layers::Parameter> list = module.parameters();
  std::erase_if(list, [](const layers::Parameter& p) { return p.grad == GradKind::sparse; });
  // A handle that was met before, in order of construction, is another name of that parameter.
  std::vector<Tensor> originals;
  for (const layers::Parameter& p : list) {
    check(p.slot != nullptr && p.slot->defined(), "[optim.flat_params] {} is undefined", p.name);
    int slice = slice_of(*p.slot, originals);
    if (slice < 0) {
      slice = static_cast<int>(slices_.size());
      originals.push_back(*p.slot);
      slices_.push_back(
          {.name = p.name, .shape = p.slot->shape(), .placement = p.placement, .decay = p.decay});
    } else {
      slices_[slice].aliases.push_back(p.name);
    }
    auto& aliases = slices_[slice].aliases;
    aliases.insert(aliases.end(), p.aliases.begin(), p.aliases.end());
    slots_.emplace_back(p.slot, slice);
  }

  std::reverse(slices_.begin(), slices_.end());
  std::reverse(originals.begin(), originals.end());
  for (auto& [slot, slice] : slots_) slice = static_cast<int>(slices_.size()) - 1 - slice;

  const Device device = originals.empty() ? kCpu : originals.front().device();
  int64_t total = 0;
  for (size_t i = 0; i < slices_.size(); ++i) {
    const DType dtype = originals[i].dtype();
    check((dtype == DType::f32 || dtype == precision.params) && originals[i].device() == device,
          "[optim.flat_params] {}; expected {} on the device of {}, got {}", slices_[i].name,
          precision.params == DType::f32 ? "f32"
                                         : fmt::format("f32 or {}", name_of(precision.params)),
          slices_.front().name, originals[i]);
    slices_[i].begin = total;
    total = slices_[i].end = checked_add(total, slices_[i].shape.numel());
  }

  all_.param = Tensor::empty({total}, precision.params, device);
  all_.grad = zeros({total}, precision.accumulate_in, device);
  for (size_t i = 0; i < slices_.size(); ++i) {
    params_.push_back(all_.param.slice_as_root(slices_[i].begin, slices_[i].shape));
    grads_.push_back(all_.grad.slice_as_root(slices_[i].begin, slices_[i].shape));
    kernel::cast(params_[i], originals[i]);
    autograd::Leaf& leaf = autograd::require_grad(params_[i]);
    leaf.dtype = precision.grads;
    leaf.grad = grads_[i];
  }
  for (const auto& [slot, slice] : slots_) *slot = params_[slice];
  all_.slices = slices_;
  all_.params = params_;
}

void FlatParams::check_bound() const {
  for (const auto& [slot, slice] : slots_) {
    check(slot->is(params_[slice]),
          "[optim.flat_params] {} was replaced in its module after its values were laid out flat; "
          "write into it instead, or build FlatParams again",
          slices_[slice].name);
    check(autograd::grad(params_[slice]).is(grads_[slice]),
          "[optim.flat_params] the gradient of {} no longer lands in the flat buffer",
          slices_[slice].name);
  }
}

std::string FlatParams::signature() const {
  std::string text;
  for (size_t i = 0; i < slices_.size(); ++i)
    text += fmt::format("{} {}\n", slices_[i].name, describe(params_[i]));
  return text + fmt::format("gradients {} added in {}\n", name_of(precision_.grads),
                            name_of(precision_.accumulate_in));
}

}  // namespace lockstep::optim
