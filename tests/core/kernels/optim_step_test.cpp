#include "core/kernels/optim_step.h"

#include "tests/support/kernel_test.h"
#include "tests/support/naive.h"
#include "tests/support/precision.h"

namespace lockstep::test {
namespace {

class OptimStep : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(OptimStep);

TEST_P(OptimStep, AdamAndAdamW) {
  for (bool decoupled : {false, true})
    for (int64_t n : odd_sizes()) {
      const Tensor w = random_tensor({n}, 1, 1, Placed::unaligned), m = zeros({n}), v = zeros({n});
      std::vector<naive::Adam> expected;
      for (double x : doubles(w)) expected.push_back({.w = x});
      for (int t = 1; t <= 5; ++t) {
        const Tensor g = random_tensor({n}, 10 + t);
        kernel::adam_step(w, m, v, g,
                          {.lr = 1e-2,
                           .factor = 0.25,
                           .beta1 = 0.9,
                           .beta2 = 0.999,
                           .eps = 1e-8,
                           .weight_decay = 0.1,
                           .decoupled = decoupled,
                           .step = t});
        const std::vector<double> gradient = doubles(g);
        for (int64_t i = 0; i < n; ++i)
          expected[i].step(0.25 * gradient[i], t, 1e-2, 0.9, 0.999, 1e-8, 0.1, decoupled);
      }
      std::vector<double> weights, first, second;
      for (const naive::Adam& a : expected) {
        weights.push_back(a.w);
        first.push_back(a.m);
        second.push_back(a.v);
      }
      expect_close(w, weights, 1e-6, 1e-6);
      expect_close(m, first, 1e-5, 1e-7);
      expect_close(v, second, 1e-5, 1e-9);
    }
}

TEST_P(OptimStep, RunsInOnePassAreStepsOfTheirOwn) {
  constexpr int64_t kAll = 70001;
  const kernel::StepRun runs[] = {{.begin = 3, .end = 40, .weight_decay = 0.1, .step = 5},
                                  {.begin = 40, .end = 40000, .weight_decay = 0, .step = 5},
                                  {.begin = 40001, .end = kAll, .weight_decay = 0.3, .step = 1}};
  for (DType params : kFloating) {
    const auto make = [&](uint32_t seed, DType dtype) {
      return in_dtype(random_tensor({kAll}, seed), dtype);
    };
    const Tensor g = make(3, DType::f32);
    kernel::AdamStep step{
        .lr = 1e-2, .factor = 0.5, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decoupled = true};
    const Tensor apart = make(4, params), m = make(5, DType::f32), v = full({kAll}, 0.5);
    for (const auto& run : runs) {
      const auto part = [&](const Tensor& x) { return x.slice(run.begin, run.end); };
      step.weight_decay = run.weight_decay, step.step = run.step;
      kernel::adam_step(part(apart), part(m), part(v), part(g), step);
    }
    const Tensor at_once = make(4, params), m_once = make(5, DType::f32),
                 v_once = full({kAll}, 0.5);
    step.runs = runs;
    kernel::adam_step(at_once, m_once, v_once, g, step);
    EXPECT_EQ(floats(at_once), floats(apart));
    EXPECT_EQ(floats(m_once), floats(m));
    EXPECT_EQ(floats(v_once), floats(v));
    const std::vector<float> before = floats(make(4, params));
    for (int64_t i : {0, 2, 40000}) EXPECT_EQ(floats(at_once)[i], before[i]) << "in no run";
  }
}

TEST_P(OptimStep, TheGradientIsNotChanged) {
  const Tensor w = random_tensor({100}, 2), m = zeros({100}), v = zeros({100}),
               g = random_tensor({100}, 3);
  const std::vector<float> before = values(g);
  const uint64_t version = g.version();
  kernel::adam_step(w, m, v, g,
                    {.lr = 1, .factor = 0.5, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = 1});
  kernel::sgd_step(w, Tensor(), g, {.lr = 1, .factor = 0.5});
  EXPECT_EQ(values(g), before);
  EXPECT_EQ(g.version(), version);
}

TEST_P(OptimStep, SgdWithEveryOption) {
  for (double momentum : {0.0, 0.9})
    for (double dampening : {0.0, 0.5})
      for (double decay : {0.0, 0.1})
        for (bool nesterov : {false, true}) {
          const int64_t n = 1003;
          const Tensor w = random_tensor({n}, 4),
                       velocity = momentum != 0 ? full({n}, NAN) : Tensor();
          std::vector<naive::Sgd> expected;
          for (double x : doubles(w)) expected.push_back({.w = x});
          for (int t = 0; t < 4; ++t) {
            const Tensor g = random_tensor({n}, 20 + t);
            kernel::sgd_step(w, velocity, g,
                             {.lr = 0.1,
                              .factor = 2,
                              .momentum = momentum,
                              .dampening = dampening,
                              .weight_decay = decay,
                              .nesterov = nesterov,
                              .first = t == 0});
            const std::vector<double> gradient = doubles(g);
            for (int64_t i = 0; i < n; ++i)
              expected[i].step(2 * gradient[i], 0.1, momentum, dampening, decay, nesterov);
          }
          std::vector<double> weights;
          for (const naive::Sgd& s : expected) weights.push_back(s.w);
          expect_close(w, weights, 1e-6, 2e-6);
        }
}

// Narrow operands step as their f32 values do, rounded once; so does the copy of an f32 weight.
TEST_P(OptimStep, NarrowOperandsAreTheF32StepRounded) {
  for (int64_t n : {1, 15, 1025, 20001})
    for (DType params : kFloating)
      for (DType grads : kFloating)
        for (DType copies : kNarrow)
          for (bool adam : {false, true}) {
            const Tensor w = in_dtype(random_tensor({n}, 30), params),
                         g = in_dtype(random_tensor({n}, 31), grads);
            const Tensor m = random_tensor({n}, 32), v = full({n}, 0.5), copy = zeros({n}, copies);
            const Tensor wide = in_dtype(w, DType::f32), v2 = full({n}, 0.5);
            const Tensor m_wide = zeros({n});
            kernel::copy(m_wide, m);
            if (adam) {
              kernel::AdamStep step{.lr = 0.1,
                                    .factor = 0.5,
                                    .beta1 = 0.9,
                                    .beta2 = 0.99,
                                    .eps = 1e-8,
                                    .weight_decay = 0.1,
                                    .decoupled = true,
                                    .step = 3};
              kernel::adam_step(wide, m_wide, v2, in_dtype(g, DType::f32), step);
              step.copy = copy;
              kernel::adam_step(w, m, v, g, step);
            } else {
              kernel::SgdStep step{.lr = 0.1, .factor = 0.5, .momentum = 0.9, .weight_decay = 0.1};
              kernel::sgd_step(wide, m_wide, in_dtype(g, DType::f32), step);
              step.copy = copy;
              kernel::sgd_step(w, m, g, step);
            }
            ASSERT_EQ(floats(w), floats(in_dtype(wide, params)));
            ASSERT_EQ(floats(copy), floats(in_dtype(wide, copies)));
            ASSERT_EQ(floats(m), floats(m_wide));
            ASSERT_EQ(floats(v), floats(v2));
          }
}

TEST_P(OptimStep, MisuseIsRefused) {
  const Tensor w = zeros({4});
  EXPECT_THROW(kernel::sgd_step(w, Tensor(), w, {.lr = 1, .factor = 1, .momentum = 0.9}),
               UsageError);
  EXPECT_THROW(kernel::adam_step(w, w, w, zeros({3}), {.step = 1}), UsageError);
  EXPECT_THROW(kernel::adam_step(w, w, w, w, {.step = 0}), UsageError);
  EXPECT_THROW(kernel::adam_step(w, zeros({4}, DType::bf16), w, w, {.step = 1}), UsageError);
  const auto with_runs = [&](std::vector<kernel::StepRun> runs) {
    kernel::adam_step(w, zeros({4}), zeros({4}), w, {.runs = runs});
  };
  EXPECT_THROW(with_runs({{.begin = 0, .end = 5, .step = 1}}), UsageError);
  EXPECT_THROW(with_runs({{.begin = 2, .end = 1, .step = 1}}), UsageError);
  EXPECT_THROW(with_runs({{.end = 2, .step = 1}, {.begin = 1, .end = 4, .step = 1}}), UsageError);
  EXPECT_THROW(with_runs({{.end = 4}}), UsageError);
  EXPECT_THROW(kernel::sgd_step(w, Tensor(), w, {.copy = zeros({4})}), UsageError);
  EXPECT_THROW(kernel::sgd_step(w, Tensor(), w, {.copy = zeros({3}, DType::f16)}), UsageError);
}

}  // namespace
}  // namespace lockstep::test
