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

TEST_P(Embedding, KnownFaults_O24_IndicesOutOfRange) {
  const Tensor table = random_tensor({10, 3}, 5);
  for (int64_t bad : {int64_t{10}, int64_t{-1}, int64_t{1} << 31, (int64_t{1} << 32) + 3}) {
    const Tensor ids = from_values<int64_t>({1, bad, 2}), out = full({3, 3}, 7),
                 dtable = full({10, 3}, 7);
    const std::string text = error_of<UsageError>([&] { kernel::embedding(out, table, ids); });
    EXPECT_NE(text.find("position 1"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(bad)), std::string::npos) << text;
    EXPECT_NE(text.find("10 rows"), std::string::npos) << text;
    EXPECT_THROW(kernel::embedding_backward(dtable, full({3, 3}, 1), ids, -1), UsageError);
    EXPECT_EQ(values(out), std::vector<float>(9, 7.0f)) << "nothing may be written";
    EXPECT_EQ(values(dtable), std::vector<float>(30, 7.0f)) << "nothing may be written";
  }
  EXPECT_THROW(kernel::embedding(zeros({1, 3}), table, from_values<int32_t>({-5})), UsageError);
}

}  // namespace
}  // namespace lockstep::test
