#include <benchmark/benchmark.h>

#include <vector>

#include "core/kernels/convolution.h"
#include "core/parallel.h"
#include "core/random.h"

// The convolutions of a small residual net on 64 images of 32 x 32 (widths 16, 32, 64): input and
// output channels, side, window, stride, threads. benchmarks/peers/convolution.py is the same in
// PyTorch.
namespace lockstep {
namespace {

Tensor random_tensor(const Shape& shape) {
  const Tensor x = Tensor::empty(shape);
  const Random random(1, RandomStream::tests);
  float* p = x.mutable_data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) p[i] = random.uniform(static_cast<uint64_t>(i)) - 0.5f;
  return x;
}

struct Layer {
  explicit Layer(const benchmark::State& state)
      : options{.stride = square(state.range(4)), .padding = square(state.range(3) / 2)},
        x(random_tensor({64, state.range(0), state.range(2), state.range(2)})),
        w(random_tensor({state.range(1), state.range(0), state.range(3), state.range(3)})),
        y(random_tensor(kernel::conv2d_shape(x.shape(), w.shape(), options))),
        budget(static_cast<int>(state.range(5))) {}
  template <class F>
  void run(benchmark::State& state, F f) {
    f();
    for (auto _ : state) f();
    const double flops = 2.0 * static_cast<double>(y.numel()) * static_cast<double>(w.numel()) /
                         static_cast<double>(w.size(0));
    state.counters["flop/s"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                                  benchmark::Counter::kIsRate);
  }
  kernel::Convolution options;
  Tensor x, w, y;
  ThreadBudget budget;
};

void conv2d(benchmark::State& state) {
  Layer l(state);
  l.run(state, [&] { kernel::conv2d(l.y, l.x, l.w, {}, l.options); });
}
void conv2d_to_input(benchmark::State& state) {
  Layer l(state);
  l.run(state, [&] { kernel::conv2d_backward_input(l.x, l.y, l.w, l.options); });
}
void conv2d_to_weight(benchmark::State& state) {
  Layer l(state);
  l.run(state, [&] { kernel::conv2d_backward_weight(l.w, {}, l.y, l.x, l.options); });
}

void layers(benchmark::internal::Benchmark* b) {
  for (int64_t threads : {1, 2})
    for (std::vector<int64_t> layer : {std::vector<int64_t>{3, 16, 32, 3, 1},
                                       {16, 16, 32, 3, 1},
                                       {16, 32, 32, 3, 2},
                                       {16, 32, 32, 1, 2},
                                       {32, 32, 16, 3, 1},
                                       {32, 64, 16, 3, 2},
                                       {64, 64, 8, 3, 1}}) {
      layer.push_back(threads);
      b->Args(layer);
    }
}
#define LOCKSTEP_LAYER_BENCHMARK(f) \
  BENCHMARK(f)->Apply(layers)->UseRealTime()->Unit(benchmark::kMicrosecond)
LOCKSTEP_LAYER_BENCHMARK(conv2d);
LOCKSTEP_LAYER_BENCHMARK(conv2d_to_input);
LOCKSTEP_LAYER_BENCHMARK(conv2d_to_weight);

}  // namespace
}  // namespace lockstep
