#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

class Dropout : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Dropout);

TEST_P(Dropout, DropsWhereTheNamedRandomNumbersSay) {
  for (int64_t each : {1, 3, 4, 63, 64, 65, 5000}) {
    const Tensor x = random_tensor({3, each}, 1), out = empty_like(x);
    const float p = 0.3f;
    kernel::dropout(out, x, p, {.seed = 0x123456789abcdef0u, .site = 7, .first_sample = 10});
    const Random random(0x123456789abcdef0u, RandomStream::dropout, 7);
    const std::vector<float> from = values(x), got = values(out);
    const uint64_t stride = static_cast<uint64_t>((each + 3) / 4 * 4);
    for (int64_t s = 0; s < 3; ++s)
      for (int64_t i = 0; i < each; ++i) {
        const float u =
            random.uniform(static_cast<uint64_t>(10 + s) * stride + static_cast<uint64_t>(i));
        ASSERT_EQ(got[s * each + i], u >= p ? from[s * each + i] * (1 / (1 - p)) : 0.0f)
            << each << " " << s << " " << i;
      }
  }
}

TEST_P(Dropout, AnySplitOfABatchAgrees) {
  const Tensor x = random_tensor({12, 5, 7}, 2), whole = empty_like(x);
  kernel::dropout(whole, x, 0.5f, {1, 2, 100});
  for (int64_t piece : {1, 3, 4})
    for (int64_t begin = 0; begin < 12; begin += piece) {
      const Tensor part = x.slice(begin, begin + piece), out = empty_like(part);
      kernel::dropout(out, part, 0.5f, {1, 2, 100 + begin});
      EXPECT_EQ(values(out), values(whole.slice(begin, begin + piece)));
    }
}

TEST_P(Dropout, KeepsTheMeanAndTheShare) {
  const Tensor x = full({100, 1000}, 1), out = empty_like(x);
  kernel::dropout(out, x, 0.2f, {3, 4, 0});
  int64_t dropped = 0;
  double sum = 0;
  for (float v : values(out)) {
    dropped += v == 0;
    sum += v;
  }
  EXPECT_NEAR(dropped / 1e5, 0.2, 5 * std::sqrt(0.2 * 0.8 / 1e5));
  EXPECT_NEAR(sum / 1e5, 1.0, 0.01);
}

TEST_P(Dropout, ZeroKeepsAllAndOtherSitesDiffer) {
  const Tensor x = random_tensor({2, 1000}, 3), a = empty_like(x), b = empty_like(x);
  kernel::dropout(a, x, 0, {1, 1, 0});
  EXPECT_EQ(values(a), values(x));
  kernel::dropout(a, x, 0.5f, {1, 1, 0});
  kernel::dropout(b, x, 0.5f, {1, 2, 0});
  EXPECT_NE(values(a), values(b));
  for (float p : {-0.1f, 1.0f, NAN}) EXPECT_THROW(kernel::dropout(a, x, p, {1, 1, 0}), UsageError);
}

}  // namespace
}  // namespace lockstep::test
