#include "core/tensor.h"

#include <gtest/gtest.h>

#include <sys/sysinfo.h>

#include <cstring>
#include <fstream>

#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"
#include "core/safetensors.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

TEST(Tensor, HoldsWhatItWasMadeFrom) {
  const Tensor x = from_values<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(values(x), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(describe(x), "f32 [2, 3]");
  EXPECT_EQ(describe(Tensor()), "undefined");
  EXPECT_EQ(values<int64_t>(full({2}, -5, DType::i64)), (std::vector<int64_t>{-5, -5}));
  EXPECT_EQ(full({}, 2.5).item(), 2.5);
  EXPECT_EQ(full({1}, 2.5, DType::bf16).item(), 2.5);
  EXPECT_EQ(zeros_like(x).shape(), x.shape());
  EXPECT_THROW(from_values<float>({1, 2}, {3}), UsageError);
  EXPECT_THROW(x.item(), UsageError);
}

TEST(Tensor, ChecksTheTypeOfItsElements) {
  const Tensor x = zeros({2}, DType::f16);
  EXPECT_NO_THROW(x.data<half>());
  EXPECT_THROW(x.data<float>(), UsageError);
  EXPECT_THROW(x.mutable_data<bfloat16>(), UsageError);
}

TEST(Tensor, AnUndefinedOneSaysSo) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_THROW(none.shape(), UsageError);
  EXPECT_THROW(none.data<float>(), UsageError);
}

TEST(Tensor, ViewsShareElements) {
  const Tensor x = from_values<float>({0, 1, 2, 3, 4, 5}, {3, 2});
  const Tensor flat = x.reshape({6}), rows = x.slice(1, 3), again = rows.slice(1, 2);
  EXPECT_EQ(values(rows), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(values(again), (std::vector<float>{4, 5}));
  flat.mutable_data<float>()[4] = 9;
  EXPECT_EQ(values(again)[0], 9);
  EXPECT_TRUE(again.same_storage(x));
  EXPECT_EQ(x.slice(1, 1).numel(), 0);
  EXPECT_THROW(x.reshape({5}), UsageError);
  EXPECT_THROW(x.slice(2, 4), UsageError);
  EXPECT_THROW(x.slice(-1, 2), UsageError);
  EXPECT_THROW(x.slice(2, 1), UsageError);
  EXPECT_THROW(full({}, 1).slice(0, 1), UsageError);
}

TEST(Tensor, ViewsOutliveWhatTheyView) {
  Tensor rows;
  {
    const Tensor x = full({4, 2}, 3);
    rows = x.slice(2, 4);
  }
  EXPECT_EQ(values(rows), std::vector<float>(4, 3.0f));
}

TEST(Tensor, WritingThroughAnyViewBumpsTheRoot) {
  const Tensor x = zeros({4, 2}), rows = x.slice(1, 2), flat = x.reshape({8}),
               detached = x.detach();
  const uint64_t before = x.version();
  (void)x.data<float>();
  EXPECT_EQ(x.version(), before) << "reading is no change";
  rows.mutable_data<float>();
  EXPECT_EQ(x.version(), before + 1);
  EXPECT_EQ(flat.version(), before + 1);
  detached.mutable_data<float>();
  EXPECT_EQ(rows.version(), before + 2);
}

TEST(Tensor, ASliceAsRootCountsForItself) {
  const Tensor flat = zeros({10}), a = flat.slice_as_root(0, {2, 2}),
               b = flat.slice_as_root(4, {6});
  const uint64_t flat_before = flat.version(), a_before = a.version(), b_before = b.version();
  a.mutable_data<float>()[3] = 7;
  EXPECT_GT(a.version(), a_before);
  EXPECT_EQ(b.version(), b_before);
  EXPECT_EQ(flat.version(), flat_before);
  EXPECT_EQ(values(flat)[3], 7);
  const Tensor view = a.reshape({4});
  view.mutable_data<float>();
  EXPECT_EQ(a.version(), a_before + 2);
  EXPECT_THROW(flat.slice_as_root(5, {6}), UsageError);
  EXPECT_THROW(flat.slice_as_root(-1, {2}), UsageError);
  EXPECT_THROW(flat.slice_as_root(std::numeric_limits<int64_t>::max(), {2}), UsageError);
}

TEST(Tensor, CopiesAreTheSameTensor) {
  const Tensor x = zeros({2}), y = x;
  EXPECT_TRUE(y.is(x));
  EXPECT_FALSE(x.reshape({2}).is(x));
}

int64_t free_memory() {
  std::ifstream info("/proc/meminfo");
  std::string name;
  int64_t kilobytes = 0;
  for (std::string unit; info >> name >> kilobytes; std::getline(info, unit))
    if (name == "MemAvailable:") return kilobytes * 1024;
  return 0;
}

// 2^31 + 8 elements of one byte: no count, offset or loop may be 32 bits wide.
TEST(SlowKnownFaults, O31_MoreThan2To31Elements) {
  if (free_memory() < int64_t{8} << 30) GTEST_SKIP() << "needs 8 GB of free memory";
  const test::TempFolder folder;
  if (std::filesystem::space(folder.path()).available < uint64_t{3} << 30)
    GTEST_SKIP() << "needs 3 GB of free disk";
  const int64_t n = (int64_t{1} << 31) + 8;
  {
    const Tensor x = full({n}, 1, DType::u8), y = Tensor::empty({n}, DType::u8);
    const auto total = [n](const Tensor& t) {
      const uint8_t* p = t.data<uint8_t>();
      int64_t sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += p[i];
      return sum;
    };
    EXPECT_EQ(total(x), n);
    x.mutable_data<uint8_t>()[n - 1] = 200;
    kernel::copy(y, x);
    EXPECT_EQ(total(y), n + 199);
    EXPECT_EQ(y.slice(n - 1, n).item(), 200);
    EXPECT_EQ(y.reshape({n / 8, 8}).slice(n / 8 - 1, n / 8).numel(), 8);
    kernel::fill(y.slice(n - 2, n), 3);
    EXPECT_EQ(y.slice(n - 3, n - 2).item(), 1);
    EXPECT_EQ(y.slice(n - 2, n - 1).item(), 3);

    // More than one read() or write() can move.
    write_safetensors(folder / "x", {{"x", x}});
    SafetensorsReader(folder / "x").read_into("x", y);
    EXPECT_EQ(std::memcmp(y.bytes_data(), x.bytes_data(), static_cast<size_t>(n)), 0);
  }
  host_allocator().trim();
}

}  // namespace
}  // namespace lockstep
