#pragma once
#include "core/kernels/convolution.h"
#include "core/kernels/cpu/host.h"

/// Convolutions of f32 by oneDNN on the calling thread. Primitives are made once for each
/// ConvolutionKey and thread.
namespace lockstep::cpu {

struct ConvolutionKey {
  enum class Pass { forward, to_input, to_weight };
  Pass pass;
  int64_t images, in, out;  ///< channels
  Plane x, y, window;
  kernel::Convolution options;
  bool bias;  ///< one is added (forward)
  friend bool operator==(const ConvolutionKey&, const ConvolutionKey&) = default;
};

class ConvolutionPlan;

/// Note [Blocks of channels]
/// oneDNN convolves images whose channels lie in blocks of a vector's width; ours lie plane by
/// plane. To turn a batch around and back costs as much as the convolution itself where channels
/// are few, so it is done for as many images at a time as stay in the second-level cache, right
/// before they are used. Weights are turned once a run.
///
/// One pass over any number of runs of `key.images` images. Throws SystemError(device) with
/// oneDNN's reason. Lives on one thread, one at a time.
class ConvolutionRun {
 public:
  /// Images that go through together: what they read and write stays in the second-level cache.
  static int64_t images_together(const ConvolutionKey& key);

  /// `weight` and, for a forward pass with one, `bias`; null for to_weight.
  ConvolutionRun(const ConvolutionKey& key, const float* weight, const float* bias);
  /// forward: y from x; to_input: dx from dy.
  void operator()(float* result, const float* operand);
  /// to_weight: adds what these images give.
  void add(const float* dy, const float* x);
  /// Adds the sums to dweight.
  void take(float* dweight);

 private:
  ConvolutionKey key_;
  ConvolutionPlan& plan_;
  const float *weight_ = nullptr, *bias_;  // weight_ as oneDNN takes it
  Scratch<float> first_, second_, result_, sum_;
  bool any_ = false;  // sum_ holds something
};

}  // namespace lockstep::cpu
