#include "core/kernels/interaction.h"

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"

#include <cmath>

namespace lockstep::test {
namespace {

class Interaction : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Interaction);

TEST_P(Interaction, GivesTheFirstVectorAndTheProductsOfAllPairs) {
  for (int64_t vectors : {1, 2, 3, 5, 8, 9, 16, 17, 27, 33, 50})
    for (int64_t width : {1, 3, 8, 16, 17, 32, 40, 64})
      for (int64_t samples : {0, 1, 7}) {
        const Tensor x = random_tensor({samples, vectors, width}, 1, 1, Placed::unaligned);
        const int64_t columns = kernel::interaction_width(vectors, width);
        EXPECT_EQ(columns, width + vectors * (vectors - 1) / 2);
        const Tensor out = full({samples, columns}, NAN),
                     dout = random_tensor({samples, columns}, 2), dx = full(x.shape(), NAN);
        kernel::dot_interaction(out, x);
        kernel::dot_interaction_backward(dx, dout, x);
        const std::vector<double> v = doubles(x), d = doubles(dout);
        std::vector<double> expected, gradient(v.size(), 0.0);
        for (int64_t b = 0; b < samples; ++b) {
          const double *from = &v[b * vectors * width], *up = &d[b * columns];
          double* to = &gradient[b * vectors * width];
          for (int64_t c = 0; c < width; ++c) expected.push_back(from[c]), to[c] += *up++;
          for (int64_t i = 1; i < vectors; ++i)
            for (int64_t j = 0; j < i; ++j, ++up) {
              double product = 0;
              for (int64_t c = 0; c < width; ++c) {
                product += from[i * width + c] * from[j * width + c];
                to[i * width + c] += *up * from[j * width + c];
                to[j * width + c] += *up * from[i * width + c];
              }
              expected.push_back(product);
            }
        }
        const std::string what = std::to_string(vectors) + " x " + std::to_string(width);
        expect_close(out, expected, 1e-5, 2e-5, what);
        expect_close(dx, gradient, 1e-5, 2e-5, what + " backward");
        for (int64_t b = 0; b < samples; ++b)
          for (int64_t c = 0; c < width; ++c)
            ASSERT_EQ(values(out)[b * columns + c], values(x)[b * vectors * width + c]);
      }
}

TEST_P(Interaction, OrdersPairsByRowOfTheTriangle) {
  const Tensor x = from_values<float>({1, 10, 100, 1000}, {1, 4, 1}), out = zeros({1, 7});
  kernel::dot_interaction(out, x);
  EXPECT_EQ(values(out), (std::vector<float>{1, 10, 100, 1000, 1000, 10'000, 100'000}));
}

TEST_P(Interaction, ThreadsDoNotChangeTheBits) {
  const Tensor x = random_tensor({500, 27, 16}, 1);
  std::vector<std::vector<float>> results;
  for (int threads : {1, 2, 3}) {
    const ThreadBudget budget(threads);
    const Tensor out = zeros({500, 16 + 351}), dx = zeros(x.shape());
    kernel::dot_interaction(out, x);
    kernel::dot_interaction_backward(dx, out, x);
    results.push_back(values(dx));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(InteractionErrors, ShapesThatDoNotFit) {
  const Tensor x = zeros({2, 3, 4});
  EXPECT_NE(error_of<UsageError>([&] {
              kernel::dot_interaction(zeros({2, 6}), x);
            }).find("[2, 7]"),
            std::string::npos);
  EXPECT_THROW(kernel::dot_interaction(zeros({2, 7}), zeros({2, 12})), UsageError);
  EXPECT_THROW(kernel::dot_interaction(zeros({2, 4}), zeros({2, 0, 4})), UsageError);
  EXPECT_THROW(kernel::dot_interaction(zeros({2, 7}, DType::f16), x), UsageError);
  EXPECT_THROW(kernel::dot_interaction_backward(zeros({2, 3, 3}), zeros({2, 7}), x), UsageError);
}

}  // namespace
}  // namespace lockstep::test
