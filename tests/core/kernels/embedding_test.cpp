#include "core/kernels/embedding.h"

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

class Embedding : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Embedding);

template <class Id>
Tensor ids_of(int64_t n, int64_t rows) {
  std::vector<Id> ids(n);
  const Random random(1, RandomStream::tests, 9);
  for (int64_t i = 0; i < n; ++i) ids[i] = static_cast<Id>(random.below(rows, i));
  return from_values(ids);
}

TEST_P(Embedding, LooksUpAndAddsBackInOrder) {
  const int64_t rows = 10;
  for (int64_t n : {0, 1, 17, 3000})
    for (int64_t width : {1, 15, 16, 33, 128}) {
      const Tensor ids = ids_of<int64_t>(n, rows), table = random_tensor({rows, width}, 1),
                   out = Tensor::empty({n, width}), dy = random_tensor({n, width}, 2),
                   dtable = random_tensor({rows, width}, 3);
      kernel::embedding(out, table, ids);
      std::vector<float> expected = values(dtable);
      const std::vector<int64_t> id = values<int64_t>(ids);
      const std::vector<float> from = values(table), looked = values(out), d = values(dy);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t c = 0; c < width; ++c) {
          ASSERT_EQ(looked[i * width + c], from[id[i] * width + c]);
          expected[id[i] * width + c] += d[i * width + c];
        }
      kernel::embedding_backward(dtable, dy, ids, -1);
      EXPECT_EQ(values(dtable), expected) << "bit for bit, whatever the number of threads";
    }
}

TEST_P(Embedding, BothIdTypesAgree) {
  const Tensor table = random_tensor({50, 7}, 4), a = zeros({20, 7}), b = zeros({20, 7});
  kernel::embedding(a, table, ids_of<int64_t>(20, 50));
  kernel::embedding(b, table, ids_of<int32_t>(20, 50));
  EXPECT_EQ(values(a), values(b));
  EXPECT_THROW(kernel::embedding(a, table, zeros({20})), UsageError);
}

TEST_P(Embedding, ThePaddingRowGetsNoGradient) {
  const Tensor dtable = zeros({3, 4}), dy = full({5000, 4}, 1), ids = full({5000}, 0, DType::i64);
  kernel::embedding_backward(dtable, dy, ids, 0);
  EXPECT_EQ(values(dtable), std::vector<float>(12, 0.0f));
}

}  // namespace
}  // namespace lockstep::test
