#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "core/kernels/attention.h"
#include "core/kernels/codec.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/embedding.h"
#include "core/kernels/fold.h"
#include "core/kernels/magnitudes.h"
#include "core/kernels/matmul.h"
#include "core/kernels/norm.h"
#include "core/kernels/optim_step.h"
#include "core/kernels/quantize.h"
#include "core/kernels/reduce.h"
#include "core/kernels/softmax_xent.h"
#include "core/kernels/topk.h"
#include "core/parallel.h"
#include "core/random.h"

// One kernel at a time at the sizes of two transformers: 4x128 (T 64, batch 12) and 6x384 (T 256,
// batch 8). The first argument says which, the second how many threads, a third the dtype of the
// large operands: 0 f32, 1 f16, 2 bf16.
namespace lockstep {
namespace {

struct Size {
  int64_t batch, positions, heads, width;
  int64_t rows() const { return batch * positions; }
  int64_t channels() const { return heads * width; }
};
Size size_of(const benchmark::State& state) {
  return state.range(0) == 128 ? Size{12, 64, 4, 32} : Size{8, 256, 6, 64};
}

DType dtype_of(const benchmark::State& state) { return static_cast<DType>(state.range(2)); }

Tensor random_tensor(const Shape& shape, DType dtype = DType::f32) {
  if (dtype != DType::f32) {
    const Tensor low = Tensor::empty(shape, dtype);
    kernel::cast(low, random_tensor(shape));
    return low;
  }
  const Tensor x = Tensor::empty(shape);
  const Random random(1, RandomStream::tests);
  float* p = x.mutable_data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) p[i] = random.uniform(static_cast<uint64_t>(i)) - 0.5f;
  return x;
}

void report(benchmark::State& state, double flops, double bytes) {
  const auto rate = [&](double each) {
    return benchmark::Counter(each * static_cast<double>(state.iterations()),
                              benchmark::Counter::kIsRate);
  };
  if (flops > 0) state.counters["flop/s"] = rate(flops);
  if (bytes > 0) state.counters["byte/s"] = rate(bytes);
}

template <class F>
void run(benchmark::State& state, double flops, double bytes, F f) {
  ThreadBudget budget(static_cast<int>(state.range(1)));
  f();
  for (auto _ : state) f();
  report(state, flops, bytes);
}

void attention_forward(benchmark::State& state) {
  const Size s = size_of(state);
  const DType t = dtype_of(state);
  const Tensor qkv = random_tensor({s.batch, s.positions, 3 * s.channels()}, t),
               out = random_tensor({s.batch, s.positions, s.channels()}, t),
               lse = Tensor::empty({s.batch, s.heads, s.positions});
  run(state, 2.0 * s.rows() * s.positions * s.channels(), 0,
      [&] { kernel::attention(out, lse, qkv, {.heads = static_cast<int>(s.heads)}); });
}

void attention_backward(benchmark::State& state) {
  const Size s = size_of(state);
  const DType t = dtype_of(state);
  const Tensor qkv = random_tensor({s.batch, s.positions, 3 * s.channels()}, t),
               dqkv = empty_like(qkv), out = random_tensor({s.batch, s.positions, s.channels()}, t),
               dout = random_tensor(out.shape(), t),
               lse = Tensor::empty({s.batch, s.heads, s.positions});
  const kernel::AttentionOptions options{.heads = static_cast<int>(s.heads)};
  kernel::attention(out, lse, qkv, options);
  run(state, 5.0 * s.rows() * s.positions * s.channels(), 0,
      [&] { kernel::attention_backward(dqkv, dout, qkv, out, lse, options); });
}

void layer_norm(benchmark::State& state) {
  const Size s = size_of(state);
  const Tensor x = random_tensor({s.rows(), s.channels()}, dtype_of(state)), y = empty_like(x),
               gamma = random_tensor({s.channels()}), mean = zeros({s.rows()}),
               rstd = zeros({s.rows()});
  run(state, 0, 2.0 * x.bytes(),
      [&] { kernel::layer_norm(y, mean, rstd, x, gamma, gamma, 1e-5f); });
}

void layer_norm_backward(benchmark::State& state) {
  const Size s = size_of(state);
  const Tensor x = random_tensor({s.rows(), s.channels()}, dtype_of(state)), y = empty_like(x),
               gamma = random_tensor({s.channels()}), mean = zeros({s.rows()}),
               rstd = zeros({s.rows()}), dgamma = empty_like(gamma), dbeta = empty_like(gamma);
  kernel::layer_norm(y, mean, rstd, x, gamma, gamma, 1e-5f);
  run(state, 0, 3.0 * x.bytes(),
      [&] { kernel::layer_norm_backward(y, dgamma, dbeta, x, Tensor(), x, mean, rstd, gamma); });
}

void bias_gelu(benchmark::State& state) {
  const Size s = size_of(state);
  const Tensor x = random_tensor({s.rows(), 4 * s.channels()}, dtype_of(state)), y = empty_like(x),
               b = random_tensor({4 * s.channels()});
  run(state, 0, 2.0 * x.bytes(), [&] { kernel::bias_gelu(y, x, b, kernel::Gelu::exact); });
}

void bias_gelu_backward(benchmark::State& state) {
  const Size s = size_of(state);
  const Tensor x = random_tensor({s.rows(), 4 * s.channels()}, dtype_of(state)), y = empty_like(x),
               b = random_tensor({4 * s.channels()}), db = empty_like(b);
  run(state, 0, 3.0 * x.bytes(),
      [&] { kernel::bias_gelu_backward(y, db, x, x, b, kernel::Gelu::exact); });
}

void cross_entropy(benchmark::State& state) {
  const Size s = size_of(state);
  const Tensor x = random_tensor({s.rows(), 256}, dtype_of(state)), losses = zeros({s.rows()}),
               lse = zeros({s.rows()}), targets = zeros({s.rows()}, DType::i64);
  run(state, 0, x.bytes(), [&] { kernel::softmax_cross_entropy(losses, lse, x, targets, -1); });
}

void cross_entropy_backward(benchmark::State& state) {
  const Size s = size_of(state);
  const Tensor x = random_tensor({s.rows(), 256}, dtype_of(state)), dx = empty_like(x),
               losses = zeros({s.rows()}), lse = zeros({s.rows()}),
               targets = zeros({s.rows()}, DType::i64), one = full({1}, 1);
  kernel::softmax_cross_entropy(losses, lse, x, targets, -1);
  run(state, 0, 2.0 * x.bytes(),
      [&] { kernel::softmax_cross_entropy_backward(dx, one, x, lse, targets, -1); });
}

// Parameters of the whole model.
int64_t parameters(const Size& s) { return s.width == 32 ? 800000 : 10700000; }

void adam(benchmark::State& state) {
  const int64_t n = parameters(size_of(state));
  const Tensor w = random_tensor({n}), m = zeros({n}), v = zeros({n}), g = random_tensor({n});
  run(state, 0, 7.0 * w.bytes(), [&] {
    kernel::adam_step(w, m, v, g,
                      {.lr = 1e-3,
                       .factor = 1,
                       .beta1 = 0.9,
                       .beta2 = 0.999,
                       .eps = 1e-8,
                       .weight_decay = 0.01,
                       .decoupled = true,
                       .step = 10});
  });
}

// A cast that scales, into the dtype and back: what staging for a wire does.
void scale_to(benchmark::State& state) {
  const Tensor x = random_tensor({parameters(size_of(state))}),
               y = random_tensor(x.shape(), dtype_of(state));
  run(state, 0, x.bytes() + y.bytes(), [&] { kernel::scale(y, x, 0.5f); });
}
void scale_from(benchmark::State& state) {
  const Tensor x = random_tensor({parameters(size_of(state))}, dtype_of(state)),
               y = random_tensor(x.shape());
  run(state, 0, x.bytes() + y.bytes(), [&] { kernel::scale(y, x, 0.5f); });
}
void add_low_to_f32(benchmark::State& state) {
  const Tensor x = random_tensor({parameters(size_of(state))}, dtype_of(state)),
               y = random_tensor(x.shape());
  run(state, 0, x.bytes() + 2.0 * y.bytes(), [&] { kernel::add_scaled(y, x, 0.5f); });
}
void first_non_finite(benchmark::State& state) {
  const Tensor x = random_tensor({parameters(size_of(state))}, dtype_of(state));
  run(state, 0, x.bytes(), [&] { benchmark::DoNotOptimize(kernel::first_non_finite(x)); });
}

void sum_of_squares(benchmark::State& state) {
  const Tensor x = random_tensor({parameters(size_of(state))}, dtype_of(state));
  run(state, 0, x.bytes(), [&] { benchmark::DoNotOptimize(kernel::sum_of_squares(x)); });
}

// In place, as an all-reduce of two ranks does.
void fold_of_two(benchmark::State& state, DType dtype) {
  const int64_t n = parameters(size_of(state));
  const Tensor a = zeros({n}, dtype), b = zeros({n}, dtype);
  const std::vector<void*> outs = {a.mutable_bytes_data(), b.mutable_bytes_data()};
  const std::vector<const void*> ins(outs.begin(), outs.end());
  run(state, 0, 4.0 * a.bytes(), [&] { kernel::fold(outs, ins, dtype, n, {}); });
}
void fold_f32(benchmark::State& state) { fold_of_two(state, DType::f32); }
void fold_f16(benchmark::State& state) { fold_of_two(state, DType::f16); }
void fold_bf16(benchmark::State& state) { fold_of_two(state, DType::bf16); }

void column_sum(benchmark::State& state) {
  const Size s = size_of(state);
  const Tensor x = random_tensor({s.rows(), 3 * s.channels()}, dtype_of(state)),
               out = zeros({3 * s.channels()});
  run(state, 0, x.bytes(), [&] { kernel::column_sum(out, x); });
}

void embedding_backward(benchmark::State& state) {
  const Size s = size_of(state);
  const Tensor table = zeros({256, s.channels()}),
               dy = random_tensor({s.rows(), s.channels()}, dtype_of(state)),
               ids = Tensor::empty({s.rows()}, DType::i64);
  for (int64_t i = 0; i < s.rows(); ++i) ids.mutable_data<int64_t>()[i] = i * 37 % 256;
  run(state, 0, 3.0 * dy.bytes(), [&] { kernel::embedding_backward(table, dy, ids, -1); });
}

// [rows, C] · [C, 4C] and its two gradients.
void matmul(benchmark::State& state, kernel::MatmulOptions options) {
  const Size s = size_of(state);
  const int64_t m = options.trans_a ? s.channels() : s.rows(),
                n = options.trans_b ? s.channels() : 4 * s.channels(),
                k = options.trans_a   ? s.rows()
                    : options.trans_b ? 4 * s.channels()
                                      : s.channels();
  const Tensor a = random_tensor(options.trans_a ? Shape{k, m} : Shape{m, k}),
               b = random_tensor(options.trans_b ? Shape{n, k} : Shape{k, n}), c = zeros({m, n});
  run(state, 2.0 * m * n * k, 0, [&] { kernel::matmul(c, a, b, options); });
}
void matmul_forward(benchmark::State& state) { matmul(state, {}); }
void matmul_to_input(benchmark::State& state) { matmul(state, {.trans_b = true}); }
void matmul_to_weight(benchmark::State& state) { matmul(state, {.trans_a = true}); }

// The same products of narrow matrices: see Note [How bf16 is multiplied].
void matmul_narrow(benchmark::State& state, DType dtype) {
  const Size s = size_of(state);
  const int64_t m = s.rows(), n = 4 * s.channels(), k = s.channels();
  const Tensor a = random_tensor({m, k}, dtype), b = random_tensor({n, k}, dtype),
               c = zeros({m, n}, dtype);
  run(state, 2.0 * m * n * k, 0, [&] { kernel::matmul(c, a, b, {.trans_b = true}); });
}
void matmul_f16(benchmark::State& state) { matmul_narrow(state, DType::f16); }
void matmul_bf16(benchmark::State& state) { matmul_narrow(state, DType::bf16); }

// A copy that reads and writes as many bytes as a cast of n elements between f32 and two bytes; the
// first argument is n.
void copy_as_cast(benchmark::State& state) {
  const Tensor x = zeros({3 * state.range(0)}, DType::u8), y = zeros_like(x);
  run(state, 0, 6.0 * state.range(0), [&] { kernel::copy(y, x); });
}
void cast(benchmark::State& state, DType from, DType to) {
  const Tensor x = zeros({state.range(0)}, from), y = zeros({state.range(0)}, to);
  run(state, 0, 6.0 * state.range(0), [&] { kernel::cast(y, x); });
}
void cast_to_f16(benchmark::State& state) { cast(state, DType::f32, DType::f16); }
void cast_to_bf16(benchmark::State& state) { cast(state, DType::f32, DType::bf16); }
void cast_from_f16(benchmark::State& state) { cast(state, DType::f16, DType::f32); }
void cast_from_bf16(benchmark::State& state) { cast(state, DType::bf16, DType::f32); }

void encode_fp8(benchmark::State& state) {
  const Tensor x = zeros({state.range(0)}), codes = zeros({state.range(0)}, DType::u8);
  run(state, 0, 5.0 * state.range(0), [&] { kernel::encode_fp8(codes, x, {}); });
}
void encode_fp8_stochastic(benchmark::State& state) {
  const Tensor x = zeros({state.range(0)}), codes = zeros({state.range(0)}, DType::u8);
  const Random random(1, RandomStream::stochastic_rounding);
  run(state, 0, 5.0 * state.range(0),
      [&] { kernel::encode_fp8(codes, x, {.stochastic = &random}); });
}
void decode_fp8(benchmark::State& state) {
  const Tensor x = zeros({state.range(0)}), codes = zeros({state.range(0)}, DType::u8);
  run(state, 0, 5.0 * state.range(0), [&] { kernel::decode_fp8(x, codes, kernel::Fp8::e4m3, 1); });
}
void count_magnitudes(benchmark::State& state) {
  const Tensor x = random_tensor({state.range(0)}),
               counts = zeros({kernel::kMagnitudes}, DType::i64);
  run(state, 0, 4.0 * state.range(0), [&] { kernel::count_magnitudes(counts, x); });
}

// One element in a hundred, of as many as benchmarks/peers has; the first argument says what they
// are.
enum class Spread : int64_t { normal, zeros, ties, equal };  // zeros: but for half a percent
Tensor spread_tensor(Spread spread) {
  const Tensor x = zeros({10 << 20});
  const Random random(1, RandomStream::tests), other(2, RandomStream::tests);
  float* p = x.mutable_data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    const auto normal = static_cast<float>(random.normal(at));
    p[i] = spread == Spread::normal  ? normal
           : spread == Spread::ties  ? std::round(4 * normal)
           : spread == Spread::equal ? 0.25f
                                     : normal * static_cast<float>(other.uniform(at) < 0.005f);
  }
  return x;
}
void top_k(benchmark::State& state) {
  const Tensor x = spread_tensor(static_cast<Spread>(state.range(0))),
               indices = zeros({x.numel() / 100}, DType::i32), values = zeros(indices.shape());
  run(state, 0, x.bytes(), [&] { kernel::top_k(indices, values, x); });
}
void top_k_with_feedback(benchmark::State& state) {
  const Tensor x = spread_tensor(static_cast<Spread>(state.range(0))), residual = zeros(x.shape()),
               indices = zeros({x.numel() / 100}, DType::i32), values = zeros(indices.shape());
  const auto n = static_cast<size_t>(x.numel()), k = static_cast<size_t>(indices.numel());
  run(state, 0, 3.0 * x.bytes(), [&] {
    const std::span<float> sum{residual.mutable_data<float>(), n};
    kernel::top_k_of_sum({indices.mutable_data<int32_t>(), k}, {values.mutable_data<float>(), k},
                         sum, {x.data<float>(), n}, 0.5f, sum);
    for (size_t i = 0; i < k; ++i) sum[static_cast<size_t>(indices.data<int32_t>()[i])] = 0;
  });
}
void top_k_of_a_sample(benchmark::State& state) {
  const Tensor x = spread_tensor(static_cast<Spread>(state.range(0))),
               indices = zeros({x.numel() / 80}, DType::i32), values = zeros(indices.shape());
  run(state, 0, x.bytes(), [&] {
    const float threshold = kernel::sample_threshold(x, x.numel() / 100, 16384);
    benchmark::DoNotOptimize(kernel::select_above(indices, values, x, threshold));
  });
}

// Codes of distributed/compress: to and fro, bytes of input per second; with a residual that is
// added and kept, or without. `encode` and `add` take FedBack and out.
template <class Encode, class Add>
void code(benchmark::State& state, bool feedback, Encode encode, Add add) {
  const int64_t n = state.range(0);
  const Tensor x = random_tensor({n}), residual = zeros({n}), out = zeros({n});
  const kernel::FedBack in{.values = x.data<float>(),
                           .numel = n,
                           .residual = feedback ? residual.data<float>() : nullptr,
                           .next = feedback ? residual.mutable_data<float>() : nullptr};
  run(state, 0, 4.0 * n, [&] {
    encode(in);
    if constexpr (!std::is_null_pointer_v<Add>) add(out.mutable_data<float>(), n);
  });
}
void block_code(benchmark::State& state, const kernel::BlockCode& how, bool stochastic,
                bool feedback, bool back) {
  const int64_t n = state.range(0);
  std::vector<std::byte> scales(static_cast<size_t>(how.scale_bytes(n))),
      codes(static_cast<size_t>(kernel::packed_bytes(n, how.bits)));
  const kernel::Draws draws{1, 2, 3};
  code(
      state, feedback,
      [&](const kernel::FedBack& in) {
        kernel::encode_blocks(scales.data(), codes.data(), in, how, stochastic ? &draws : nullptr);
      },
      [&](float* out, int64_t numel) {
        if (back) kernel::add_blocks(out, numel, scales.data(), codes.data(), how);
      });
}
void int8(benchmark::State& state) { block_code(state, {}, false, false, true); }
void int8_encode(benchmark::State& state) { block_code(state, {}, false, false, false); }
void int8_feedback(benchmark::State& state) { block_code(state, {}, false, true, true); }
void int8_minmax(benchmark::State& state) {
  block_code(state, {.grid = kernel::BlockCode::Grid::minmax}, false, false, true);
}
void int8_stochastic(benchmark::State& state) { block_code(state, {}, true, false, true); }
constexpr kernel::BlockCode kQsgd{.block = 512, .bits = 4};
void qsgd(benchmark::State& state) { block_code(state, kQsgd, true, false, true); }
void qsgd_encode(benchmark::State& state) { block_code(state, kQsgd, true, false, false); }
void qsgd_feedback(benchmark::State& state) { block_code(state, kQsgd, true, true, true); }
void qsgd_3_bits(benchmark::State& state) {
  block_code(state, {.block = 512, .bits = 3, .grid = kernel::BlockCode::Grid::l2}, true, false,
             true);
}
void sign_code(benchmark::State& state, bool feedback) {
  const int64_t n = state.range(0);
  std::vector<std::byte> codes(static_cast<size_t>(kernel::packed_bytes(n, 1)));
  float scale = 0;
  code(
      state, feedback,
      [&](const kernel::FedBack& in) {
        scale = static_cast<float>(kernel::sum_magnitudes(in).sum / static_cast<double>(n));
        kernel::encode_signs(codes.data(), in, scale);
      },
      [&](float* out, int64_t numel) { kernel::add_signs(out, numel, codes.data(), scale); });
}
void sign(benchmark::State& state) { sign_code(state, false); }
void sign_feedback(benchmark::State& state) { sign_code(state, true); }
void terngrad(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<std::byte> codes(static_cast<size_t>(kernel::packed_bytes(n, 2)));
  const kernel::Draws draws{1, 2, 3};
  kernel::StepCode how;
  code(
      state, false,
      [&](const kernel::FedBack& in) {
        how.step = kernel::largest_magnitude(in);
        how.inverse = 1 / how.step;
        kernel::encode_steps(codes.data(), in, how, &draws);
      },
      [&](float* out, int64_t numel) { kernel::add_steps(out, numel, codes.data(), how); });
}
// Of casts the encoding alone, beside copy_as_cast; with the amplitude that a shared scale needs.
void narrow_code(benchmark::State& state, DType dtype, bool amplitude, bool feedback) {
  std::vector<std::byte> codes(static_cast<size_t>(2 * state.range(0)));
  code(
      state, feedback,
      [&](const kernel::FedBack& in) {
        const float power =
            amplitude ? kernel::power_below(kernel::largest_magnitude(in), 0x1p15f) : 1;
        kernel::encode_narrow(codes.data(), dtype, in, power);
      },
      nullptr);
}
void narrow_to_f16(benchmark::State& s) { narrow_code(s, DType::f16, false, false); }
void narrow_to_bf16(benchmark::State& s) { narrow_code(s, DType::bf16, false, false); }
void narrow_to_f16_by_amplitude(benchmark::State& s) { narrow_code(s, DType::f16, true, false); }
void narrow_to_f16_feedback(benchmark::State& s) { narrow_code(s, DType::f16, false, true); }
void narrow_back(benchmark::State& state) {
  const Tensor codes = zeros({state.range(0)}, DType::f16), out = zeros({state.range(0)});
  run(state, 0, 4.0 * state.range(0), [&] {
    kernel::add_narrow(out.mutable_data<float>(), state.range(0),
                       static_cast<const std::byte*>(codes.bytes_data()), DType::f16, 0.5f);
  });
}
void eighths(benchmark::State& state, bool feedback) {
  const int64_t n = state.range(0);
  std::vector<std::byte> codes(static_cast<size_t>(n));
  std::byte power{};
  code(
      state, feedback,
      [&](const kernel::FedBack& in) { kernel::encode_eighths(&power, codes.data(), in, {}); },
      [&](float* out, int64_t numel) {
        kernel::add_eighths(out, numel, &power, codes.data(), {});
      });
}
void fp8(benchmark::State& state) { eighths(state, false); }
void fp8_feedback(benchmark::State& state) { eighths(state, true); }

#define LOCKSTEP_BENCHMARK(f) \
  BENCHMARK(f)->ArgsProduct({{128, 384}, {1, 2}})->UseRealTime()->Unit(benchmark::kMicrosecond)
#define LOCKSTEP_BENCHMARK_OF_TYPES(f)               \
  BENCHMARK(f)                                       \
      ->ArgsProduct({{128, 384}, {1, 2}, {0, 1, 2}}) \
      ->UseRealTime()                                \
      ->Unit(benchmark::kMicrosecond)
LOCKSTEP_BENCHMARK_OF_TYPES(attention_forward);
LOCKSTEP_BENCHMARK_OF_TYPES(attention_backward);
LOCKSTEP_BENCHMARK_OF_TYPES(layer_norm);
LOCKSTEP_BENCHMARK_OF_TYPES(layer_norm_backward);
LOCKSTEP_BENCHMARK_OF_TYPES(bias_gelu);
LOCKSTEP_BENCHMARK_OF_TYPES(bias_gelu_backward);
LOCKSTEP_BENCHMARK_OF_TYPES(cross_entropy);
LOCKSTEP_BENCHMARK_OF_TYPES(cross_entropy_backward);
LOCKSTEP_BENCHMARK(adam);
LOCKSTEP_BENCHMARK_OF_TYPES(sum_of_squares);
LOCKSTEP_BENCHMARK_OF_TYPES(first_non_finite);
LOCKSTEP_BENCHMARK_OF_TYPES(scale_to);
LOCKSTEP_BENCHMARK_OF_TYPES(scale_from);
LOCKSTEP_BENCHMARK_OF_TYPES(add_low_to_f32);
LOCKSTEP_BENCHMARK(fold_f32);
LOCKSTEP_BENCHMARK(fold_f16);
LOCKSTEP_BENCHMARK(fold_bf16);
LOCKSTEP_BENCHMARK_OF_TYPES(column_sum);
LOCKSTEP_BENCHMARK_OF_TYPES(embedding_backward);
LOCKSTEP_BENCHMARK(matmul_forward);
LOCKSTEP_BENCHMARK(matmul_to_input);
LOCKSTEP_BENCHMARK(matmul_to_weight);
LOCKSTEP_BENCHMARK(matmul_f16);
LOCKSTEP_BENCHMARK(matmul_bf16);

#define LOCKSTEP_LINEAR_BENCHMARK(f)                                 \
  BENCHMARK(f)                                                       \
      ->ArgsProduct({{100000, 2000000, 10700000, 40000000}, {1, 2}}) \
      ->UseRealTime()                                                \
      ->Unit(benchmark::kMicrosecond)
LOCKSTEP_LINEAR_BENCHMARK(copy_as_cast);
LOCKSTEP_LINEAR_BENCHMARK(cast_to_f16);
LOCKSTEP_LINEAR_BENCHMARK(cast_to_bf16);
LOCKSTEP_LINEAR_BENCHMARK(cast_from_f16);
LOCKSTEP_LINEAR_BENCHMARK(cast_from_bf16);
LOCKSTEP_LINEAR_BENCHMARK(encode_fp8);
LOCKSTEP_LINEAR_BENCHMARK(encode_fp8_stochastic);
LOCKSTEP_LINEAR_BENCHMARK(decode_fp8);
LOCKSTEP_LINEAR_BENCHMARK(count_magnitudes);
LOCKSTEP_LINEAR_BENCHMARK(int8);
LOCKSTEP_LINEAR_BENCHMARK(int8_encode);
LOCKSTEP_LINEAR_BENCHMARK(int8_feedback);
LOCKSTEP_LINEAR_BENCHMARK(int8_minmax);
LOCKSTEP_LINEAR_BENCHMARK(int8_stochastic);
LOCKSTEP_LINEAR_BENCHMARK(qsgd);
LOCKSTEP_LINEAR_BENCHMARK(qsgd_encode);
LOCKSTEP_LINEAR_BENCHMARK(qsgd_feedback);
LOCKSTEP_LINEAR_BENCHMARK(qsgd_3_bits);
LOCKSTEP_LINEAR_BENCHMARK(sign);
LOCKSTEP_LINEAR_BENCHMARK(sign_feedback);
LOCKSTEP_LINEAR_BENCHMARK(terngrad);
LOCKSTEP_LINEAR_BENCHMARK(fp8);
LOCKSTEP_LINEAR_BENCHMARK(fp8_feedback);
LOCKSTEP_LINEAR_BENCHMARK(narrow_to_f16);
LOCKSTEP_LINEAR_BENCHMARK(narrow_to_bf16);
LOCKSTEP_LINEAR_BENCHMARK(narrow_to_f16_by_amplitude);
LOCKSTEP_LINEAR_BENCHMARK(narrow_to_f16_feedback);
LOCKSTEP_LINEAR_BENCHMARK(narrow_back);

#define LOCKSTEP_SPREAD_BENCHMARK(f) \
  BENCHMARK(f)->ArgsProduct({{0, 1, 2, 3}, {1, 2}})->UseRealTime()->Unit(benchmark::kMicrosecond)
LOCKSTEP_SPREAD_BENCHMARK(top_k);
LOCKSTEP_SPREAD_BENCHMARK(top_k_with_feedback);
LOCKSTEP_SPREAD_BENCHMARK(top_k_of_a_sample);

}  // namespace
}  // namespace lockstep
