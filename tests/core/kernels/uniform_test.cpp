#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

class Uniform : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Uniform);

// The definition, word by word: from any element to any other, past the blocks whose number takes
// more than 32 bits, on all instruction sets.
TEST_P(Uniform, EveryElementIsThatOfItsWord) {
  constexpr uint64_t kSeed = 0x123456789abcdef0u;
  const Random random(kSeed, RandomStream::initialisation, 7);
  for (const int64_t first :
       {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{62}, int64_t{4000}, (int64_t{1} << 34) - 50})
    for (const int64_t n : {0, 1, 2, 5, 63, 64, 65, 127, 200, 40'000}) {
      const Tensor x = Tensor::empty({n});
      kernel::uniform(x, 0.3, {kSeed, RandomStream::initialisation, 7, first});
      const float* got = x.data<float>();
      for (int64_t i = 0; i < n; ++i) {
        const double unit = random.word(static_cast<uint64_t>(first + i)) + 0.5;
        ASSERT_EQ(got[i], static_cast<float>(0.3 * (unit * 0x1p-31 - 1))) << first << " " << i;
      }
    }
}

TEST_P(Uniform, TouchesNothingElse) {
  const Tensor x = full({300}, 9);
  kernel::uniform(x.slice(37, 230), 1, {1, RandomStream::tests, 2, 5});
  for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(x.data<float>()[i] == 9, i < 37 || i >= 230) << i;
}

TEST(UniformErrors, RefusesAPlaceBeforeTheFirst) {
  EXPECT_THROW(kernel::uniform(zeros({3}), 1, {1, RandomStream::tests, 2, -1}), UsageError);
}

}  // namespace
}  // namespace lockstep::test
