#include "apps/bench/measure.h"
#include "apps/bench/presets.h"
#include "core/kernels/attention.h"
#include "core/kernels/matmul.h"
#include "core/random.h"
#include "optim/optimizer.h"

#include <fmt/format.h>

namespace lockstep::apps {
namespace {

Tensor random_tensor(const Shape& shape, uint32_t key) {
  const Tensor x = Tensor::empty(shape);
  const Random random(1, RandomStream::tests, key);
  float* data = x.mutable_data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) data[i] = random.uniform(static_cast<uint64_t>(i)) - 0.5f;
  return x;
}

double gflops(double operations, double ms) { return operations / ms * 1e-6; }

/// A module that is nothing but parameters.
class Weights final : public layers::Module {
 public:
  explicit Weights(int64_t elements) : weight_(random_tensor({elements}, 1)) {
    add_parameter("weight", weight_, Decay::yes);
  }

 private:
  Tensor weight_;
};

}  // namespace

Measurements bench_matmul(const BenchOptions& options) {
  const Preset& p = preset(options.preset);
  const int64_t n = p.batch * p.config.context, c = p.config.width;
  Measurements out;
  const struct {
    int64_t k, m;
    const char* layer;
  } layers[] = {{c, 3 * c, "qkv"}, {c, 4 * c, "mlp in"}, {4 * c, c, "mlp out"}};
  for (const auto& [k, m, layer] : layers) {
    const Tensor x = random_tensor({n, k}, 1), w = random_tensor({m, k}, 2),
                 y = random_tensor({n, m}, 3);
    const Tensor dx = Tensor::empty({n, k}), dw = Tensor::empty({m, k});
    const auto add = [&](const char* what, double ms) {
      out.push_back({fmt::format("matmul {} {} {}x{}x{}", layer, what, n, k, m),
                     ms,
                     {{"gflops", gflops(2.0 * static_cast<double>(n * k * m), ms)}}});
    };
    add("forward", median_ms(options.repeats, [&] { kernel::matmul(y, x, w, {.trans_b = true}); }));
    add("input gradient", median_ms(options.repeats, [&] { kernel::matmul(dx, y, w, {}); }));
    add("weight gradient",
        median_ms(options.repeats, [&] { kernel::matmul(dw, y, x, {.trans_a = true}); }));
  }
  return out;
}

Measurements bench_attention(const BenchOptions& options) {
  const Preset& p = preset(options.preset);
  const int64_t b = p.batch, t = p.config.context, c = p.config.width;
  const kernel::AttentionOptions attention{.heads = static_cast<int>(p.config.heads),
                                           .causal = true};
  const Tensor qkv = random_tensor({b, t, 3 * c}, 1), out = Tensor::empty({b, t, c});
  const Tensor lse = Tensor::empty({b, p.config.heads, t}), dout = random_tensor({b, t, c}, 2),
               dqkv = empty_like(qkv);
  // Two products forward and five backward, of which the causal half counts.
  const double product = static_cast<double>(b * t) * static_cast<double>(t * c);
  const double forward =
      median_ms(options.repeats, [&] { kernel::attention(out, lse, qkv, attention); });
  const double backward = median_ms(
      options.repeats, [&] { kernel::attention_backward(dqkv, dout, qkv, out, lse, attention); });
  const std::string shape = fmt::format("{}x{}x{} heads {}", b, t, c, p.config.heads);
  return {{"attention forward " + shape, forward, {{"gflops", gflops(2 * product, forward)}}},
          {"attention backward " + shape, backward, {{"gflops", gflops(5 * product, backward)}}}};
}

Measurements bench_optimizer(const BenchOptions& options) {
  Measurements out;
  for (const char* name : {"sgd", "adamw"}) {
    Weights weights(options.elements);
    optim::FlatParams params(weights);
    const Tensor grad = params.all().grad;
    std::fill_n(grad.mutable_data<float>(), options.elements, 1e-3f);
    const auto optimizer = optim::make_optimizer(name, params.all(), {.momentum = 0.9});
    const double ms = median_ms(options.repeats, [&] { optimizer->step({}); });
    const double arrays = name[0] == 's' ? 5 : 7;  // read and written
    out.push_back({fmt::format("optimizer {} {}M", name, options.elements / 1'000'000),
                   ms,
                   {{"gb_per_s", arrays * 4 * static_cast<double>(options.elements) / ms * 1e-6}}});
  }
  return out;
}

}  // namespace lockstep::apps
