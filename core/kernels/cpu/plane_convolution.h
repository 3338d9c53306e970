#pragma once
#include "core/kernels/cpu/dnnl_convolution.h"
#include "core/kernels/cpu/plane_convolution_loops.h"

/// Convolutions 3 x 3, step 1, one place of zeros around, of f32 by loops of our own over images as
/// they lie: with few channels, to turn those into oneDNN's blocks and back costs more than its
/// loops gain. See Note [Planes with zeros around them] in plane_convolution_loops.cpp.
namespace lockstep::cpu {

/// What ConvolutionRun is, for what fits().
class PlaneConvolutionRun {
 public:
  static bool fits(const ConvolutionKey& key);
  /// `key.images` at a time.
  static int64_t images_together(const ConvolutionKey& key);

  PlaneConvolutionRun(const ConvolutionKey& key, const float* weight, const float* bias);
  void operator()(float* result, const float* operand);
  void add(const float* dy, const float* x);
  void take(float* dweight);

 private:
  const PlaneConvolutionLoops& loops_;
  int64_t images_;
  PlaneShape shape_;  // of the pass: `in` planes are read
  const float* bias_;
  Scratch<float> weight_, padded_, sum_, room_;
};

}  // namespace lockstep::cpu
