#include "core/kernels/cpu/plane_convolution.h"

namespace lockstep::cpu {
namespace {

using Pass = ConvolutionKey::Pass;

constexpr int64_t kTaps = 9;

const PlaneConvolutionLoops& loops_in_use() { return LOCKSTEP_PICK_LOOPS(PlaneConvolution); }

int64_t padded_floats(const PlaneConvolutionLoops& loops, const PlaneShape& shape) {
  return shape.in * loops.padded(shape.rows, shape.columns);
}

// dx is what dy gives with the weights of both kinds of channels exchanged and the taps reversed.
PlaneShape shape_of(const ConvolutionKey& key) {
  const bool back = key.pass == Pass::to_input;
  return {back ? key.out : key.in, back ? key.in : key.out, key.x.rows, key.x.columns};
}

}  // namespace

bool PlaneConvolutionRun::fits(const ConvolutionKey& key) {
  // Where the two are about as fast.
  const int64_t most_channels = key.pass == Pass::to_weight ? 16 : 32;
  const kernel::Convolution around{.padding = square(1)};
  return std::max(key.in, key.out) <= most_channels && key.window == square(3) &&
         key.options == around && loops_in_use().fits(key.x.rows, key.x.columns);
}

int64_t PlaneConvolutionRun::images_together(const ConvolutionKey& key) {
  return key.pass == Pass::to_weight ? loops_in_use().images_together(key.x.rows, key.x.columns)
                                     : 1;
}

PlaneConvolutionRun::PlaneConvolutionRun(const ConvolutionKey& key, const float* weight,
                                         const float* bias)
    : loops_(loops_in_use()),
      images_(key.images),
      shape_(shape_of(key)),
      bias_(bias),
      weight_(key.pass == Pass::to_weight ? 0 : loops_.packed(shape_.in, shape_.out)),
      padded_(checked_mul(images_, padded_floats(loops_, shape_))),
      sum_(key.pass == Pass::to_weight ? loops_.sums_of(shape_.in, shape_.out) : 0),
      room_(key.pass == Pass::to_weight ? loops_.weight_room(images_, shape_.rows, shape_.columns)
                                        : 0) {
  std::fill_n(padded_.data(), images_ * padded_floats(loops_, shape_), 0.0f);
  if (key.pass == Pass::forward)
    loops_.pack(weight_.data(), weight, shape_.in, shape_.out, shape_.in * kTaps, kTaps, 0, 1);
  else if (key.pass == Pass::to_input)
    loops_.pack(weight_.data(), weight, shape_.in, shape_.out, kTaps, shape_.out * kTaps, kTaps - 1,
                -1);
  else
    std::fill_n(sum_.data(), loops_.sums_of(shape_.in, shape_.out), 0.0f);
}

void PlaneConvolutionRun::operator()(float* result, const float* operand) {
  const int64_t plane = shape_.rows * shape_.columns;
  for (int64_t i = 0; i < images_; ++i) {
    loops_.pad(padded_.data(), loops_.padded(shape_.rows, shape_.columns),
               operand + i * shape_.in * plane, shape_.in, shape_.rows, shape_.columns);
    loops_.convolve(result + i * shape_.out * plane, padded_.data(), weight_.data(), bias_, shape_);
  }
}

void PlaneConvolutionRun::add(const float* dy, const float* x) {
  const int64_t plane = loops_.padded(shape_.rows, shape_.columns);
  for (int64_t i = 0; i < images_; ++i)
    loops_.pad(padded_.data() + i * plane, images_ * plane,
               x + i * shape_.in * shape_.rows * shape_.columns, shape_.in, shape_.rows,
               shape_.columns);
  loops_.weight_sums(sum_.data(), dy, padded_.data(), images_, shape_, room_.data());
}

void PlaneConvolutionRun::take(float* dweight) {
  loops_.take_sums(dweight, sum_.data(), shape_.in, shape_.out);
}

}  // namespace lockstep::cpu
