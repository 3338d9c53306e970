#include "core/kernels/embedding_bag.h"

#include "core/allocator.h"
#include "core/kernels/elementwise.h"
#include "tests/support/bags.h"
#include "tests/support/kernel_test.h"

#include <cmath>

namespace lockstep::test {
namespace {

using kernel::BagGradient;
using kernel::Bags;

class EmbeddingBag : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(EmbeddingBag);
class BagKnownFaults : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(BagKnownFaults);

constexpr BagMode kModes[] = {BagMode::sum, BagMode::mean, BagMode::weighted};
const std::vector<int64_t>& widths() {
  static const std::vector<int64_t> all = {1, 3, 4, 8, 15, 16, 17, 32, 48, 100};
  return all;
}

TEST_P(EmbeddingBag, GivesWhatThePlainWayGives) {
  const TestTables layout({5, 1, 300, 40});
  uint32_t key = 10;
  for (int64_t width : widths())
    for (int64_t samples : {0, 1, 16, 37, 100})
      for (int64_t most : {0, 1, 5})
        for (BagMode mode : kModes)
          for (int64_t leading : {0, 2}) {
            const Tensor tables = random_tensor({layout.all(), width}, 1);
            const Bags bags = random_bags<int32_t>(layout, samples, most, mode, ++key);
            const Tensor out = full({samples, leading + layout.count(), width}, 7);
            kernel::embedding_bag(out, tables, bags, layout.layout());
            ASSERT_EQ(values(out), naive_bags(tables, bags, layout, samples, leading, 7))
                << width << " x " << samples << ", most " << most << " leading " << leading;
          }
}

TEST_P(EmbeddingBag, IndicesMayBeOfEitherType) {
  const TestTables layout({50, 70});
  const Tensor tables = random_tensor({120, 7}, 4);
  const Bags narrow = random_bags<int32_t>(layout, 20, 3, BagMode::sum, 5),
             wide = random_bags<int64_t>(layout, 20, 3, BagMode::sum, 5);
  const Tensor a = zeros({20, 2, 7}), b = zeros({20, 2, 7}), c = zeros({20, 2, 7});
  kernel::embedding_bag(a, tables, narrow, layout.layout());
  kernel::embedding_bag(b, tables, wide, layout.layout());
  kernel::embedding_bag(c, tables, {narrow.rows, wide.offsets}, layout.layout());
  EXPECT_EQ(values(a), values(b));
  EXPECT_EQ(values(a), values(c));
}

// The order of additions is that of micro-batches and positions: bit for bit, on every instruction
// set and with any number of threads.
TEST_P(EmbeddingBag, DuplicatesAreAddedInOrderOfPosition) {
  const TestTables layout({5, 1, 300, 70'000});
  uint32_t key = 1000;
  for (int64_t width : widths())
    for (int64_t most : {0, 1, 5})
      for (BagMode mode : kModes)
        for (int64_t padding : {-1, 0}) {
          std::vector<BagGradient> parts;
          for (int64_t samples : {0, 40, 1, 100}) {
            ++key;
            parts.push_back({random_tensor({samples, 1 + layout.count(), width}, key),
                             random_bags<int32_t>(layout, samples, most, mode, key)});
          }
          const std::vector<std::vector<BagGradient>> windows = {{parts[3]}, {parts[0]}, parts, {}};
          for (const auto& window : windows) {
            const SparseGrad g = coalesced(window, layout, padding);
            const std::vector<int64_t> rows = values<int64_t>(g.rows);
            ASSERT_TRUE(std::is_sorted(rows.begin(), rows.end(), std::less_equal<>()) ||
                        rows.size() < 2)
                << "ascending, each once";
            if (window.empty()) continue;
            ASSERT_EQ(as_rows(g), naive_coalesced(window, layout, padding))
                << "width " << width << " most " << most << " padding " << padding;
          }
        }
}

TEST_P(EmbeddingBag, ManyDuplicatesOfAFewRowsAddUp) {
  const TestTables layout({3});
  std::vector<int32_t> rows(5000);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i % 2 == 0 ? 2 : 0;
  const SparseGrad g = coalesced({{full({5000, 1, 4}, 1), {from_values(rows)}}}, layout);
  EXPECT_EQ(values<int64_t>(g.rows), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(values(g.values), std::vector<float>(8, 2500));
}

TEST_P(EmbeddingBag, AWarmCallAsksTheSystemForNothing) {
  const TestTables layout({100, 2000});
  const Tensor dy = random_tensor({500, 2, 16}, 1), tables = random_tensor({2100, 16}, 2);
  const auto once = [&](uint32_t key) {
    const Bags bags = random_bags<int32_t>(layout, 500, 0, BagMode::sum, key);
    const Tensor out = Tensor::empty({500, 2, 16});
    kernel::embedding_bag(out, tables, bags, layout.layout());
    coalesced({{dy, bags}}, layout);
  };
  for (uint32_t i = 0; i < 3; ++i) once(i);
  const int64_t before = host_allocator().stats().system_calls;
  for (uint32_t i = 0; i < 10; ++i) once(i);
  EXPECT_EQ(host_allocator().stats().system_calls, before);
}

TEST_P(EmbeddingBag, TheFirstRowOfASampleIsPutAndTaken) {
  const Tensor x = random_tensor({3, 4, 5}, 1), rows = random_tensor({3, 5}, 2),
               back = zeros({3, 5});
  std::vector<float> expected = values(x);
  for (int64_t b = 0; b < 3; ++b)
    std::copy_n(values(rows).begin() + b * 5, 5, expected.begin() + b * 20);
  kernel::put_first(x, rows);
  EXPECT_EQ(values(x), expected);
  kernel::take_first(back, x);
  EXPECT_EQ(values(back), values(rows));
  EXPECT_THROW(kernel::put_first(x, zeros({3, 4})), UsageError);
  EXPECT_THROW(kernel::take_first(zeros({3, 5}), zeros({3, 0, 5})), UsageError);
}

// ---------------------------------------------------------------- hostile input

TEST_P(BagKnownFaults, O24_IndicesOutOfRange) {
  const TestTables layout({100, 10});
  const Tensor tables = random_tensor({110, 3}, 5);
  for (int64_t bad : {int64_t{10}, int64_t{-1}, int64_t{1} << 31, (int64_t{1} << 32) + 3}) {
    // Two samples: the bad row is in table 1, sample 1.
    const Bags bags{from_values<int64_t>({1, 99, 2, bad})};
    const Tensor out = full({2, 2, 3}, 7), rows = full({4}, 7, DType::i64), sums = full({4, 3}, 7);
    const std::vector<BagGradient> gradient{{full({2, 2, 3}, 1), bags}};
    const std::string text =
        error_of<UsageError>([&] { kernel::embedding_bag(out, tables, bags, layout.layout()); });
    EXPECT_EQ(text,
              "[kernel.embedding_bag] table 1, sample 1, position 3 of the rows; expected 0 <= row "
              "< 10 rows of the table, got " +
                  std::to_string(bad));
    EXPECT_THROW(kernel::coalesce_bags(rows, sums, gradient, layout.layout()), UsageError);
    for (const Tensor& untouched : {out, sums})
      for (float v : values(untouched)) EXPECT_EQ(v, 7) << "nothing may be written";
    EXPECT_EQ(values<int64_t>(rows), std::vector<int64_t>(4, 7));
    // In a bag of several, after an empty one.
    const Bags several{from_values<int64_t>({1, 5, 5, bad}), from_values<int64_t>({0, 1, 1, 1, 4})};
    const std::string where =
        error_of<UsageError>([&] { kernel::embedding_bag(out, tables, several, layout.layout()); });
    EXPECT_NE(where.find("table 1, sample 1, position 3"), std::string::npos) << where;
  }
  const Tensor out = zeros({1, 2, 3});
  EXPECT_THROW(kernel::embedding_bag(out, tables, {from_values<int32_t>({0, 10})}, layout.layout()),
               UsageError);
  EXPECT_THROW(kernel::embedding_bag(out, tables, {from_values<int32_t>({-5, 0})}, layout.layout()),
               UsageError);
  EXPECT_THROW(kernel::embedding_bag(out, tables, {zeros({2})}, layout.layout()), UsageError);
}

// Five rows of one element, row i = i.
Tensor small_table() { return from_values<float>({0, 1, 2, 3, 4}, {5, 1}); }

template <class Id>
void expect_bags(const std::vector<Id>& rows, const std::vector<Id>& offsets, BagMode mode,
                 const std::vector<float>& expected) {
  const TestTables layout({5});
  const auto samples = static_cast<int64_t>(offsets.size()) - 1;
  const Tensor out = full({samples, 1, 1}, NAN);
  kernel::embedding_bag(out, small_table(), {from_values(rows), from_values(offsets), {}, mode},
                        layout.layout());
  EXPECT_EQ(values(out), expected);
}

template <class Id>
void bag_lookups() {
  const std::vector<Id> rows{0, 1, 2, 3, 4}, offsets{0, 1, 1, 3, 3, 4, 5};
  expect_bags<Id>(rows, offsets, BagMode::sum, {0, 0, 3, 0, 3, 4});
  expect_bags<Id>(rows, offsets, BagMode::mean, {0, 0, 1.5, 0, 3, 4});
  expect_bags<Id>(rows, {0, 1, 1, 3, 3, 4, 5, 5}, BagMode::sum, {0, 0, 3, 0, 3, 4, 0});
  expect_bags<Id>({}, {0}, BagMode::mean, {});
  expect_bags<Id>({}, {0, 0}, BagMode::mean, {0});
  expect_bags<Id>({}, {0, 0, 0}, BagMode::sum, {0, 0});
  const TestTables layout({5});
  const SparseGrad g = coalesced(
      {{full({6, 1, 1}, 1), {from_values(rows), from_values(offsets), {}, BagMode::mean}}}, layout);
  EXPECT_EQ(values<int64_t>(g.rows), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(values(g.values), (std::vector<float>{1, .5, .5, 1, 1}));
}

TEST_P(BagKnownFaults, O25_BagLookups) {
  bag_lookups<int32_t>();
  bag_lookups<int64_t>();
}

template <class Id>
void bad_offsets() {
  const TestTables layout({5});
  const std::vector<std::vector<Id>> all = {
      {0, 2, 0}, {1, 2, 5}, {0, 3, 2, 5}, {0, 2, 6}, {0, 2, 4}, {-1, 5}, {0, 6, 5}, {5}, {0}, {}};
  for (const auto& offsets : all)
    for (BagMode mode : {BagMode::sum, BagMode::mean}) {
      const auto samples = std::max<int64_t>(static_cast<int64_t>(offsets.size()) - 1, 0);
      const Bags bags{from_values<Id>({0, 1, 2, 3, 4}), from_values(offsets), {}, mode};
      const Tensor out = full({samples, 1, 1}, 7), rows = full({5}, 7, DType::i64),
                   sums = full({5, 1}, 7);
      const std::string text = error_of<UsageError>(
          [&] { kernel::embedding_bag(out, small_table(), bags, layout.layout()); });
      EXPECT_NE(text.find("offsets"), std::string::npos) << text;
      const std::vector<BagGradient> gradient{{full({samples, 1, 1}, 1), bags}};
      EXPECT_THROW(kernel::coalesce_bags(rows, sums, gradient, layout.layout()), UsageError);
      EXPECT_EQ(values(out), std::vector<float>(samples, 7.0f)) << "nothing may be written";
    }
}

TEST_P(BagKnownFaults, O25_OffsetsThatDoNotFit) {
  bad_offsets<int32_t>();
  bad_offsets<int64_t>();
  const TestTables layout({5});
  const Tensor out = zeros({1, 1, 1});
  const Tensor rows = from_values<int32_t>({0, 1});
  EXPECT_THROW(kernel::embedding_bag(out, small_table(), {rows, zeros({2})}, layout.layout()),
               UsageError)
      << "float offsets";
  EXPECT_THROW(kernel::embedding_bag(out, small_table(), {rows}, layout.layout()), UsageError)
      << "two rows for one bag, without offsets";
}

TEST_P(BagKnownFaults, O26_ThePaddingRowIsLookedUpButGetsNoGradient) {
  const TestTables layout({3, 2});
  const Tensor tables = random_tensor({5, 4}, 1), out = zeros({5000, 2, 4});
  const Bags bags{full({10'000}, 0, DType::i32)};
  kernel::embedding_bag(out, tables, bags, layout.layout(0));
  for (int64_t c = 0; c < 4; ++c) {
    EXPECT_EQ(values(out)[c], values(tables)[c]) << "the stored row, not zeros";
    EXPECT_EQ(values(out)[4 + c], values(tables)[12 + c]);
  }
  EXPECT_EQ(coalesced({{full({5000, 2, 4}, 1), bags}}, layout, 0).count(), 0);
  EXPECT_EQ(coalesced({{full({5000, 2, 4}, 1), bags}}, layout, 1).count(), 2);
}

TEST(EmbeddingBagErrors, NameWhatDoesNotFit) {
  const TestTables layout({2, 3});
  const Tensor tables = zeros({5, 4}), rows = from_values<int32_t>({0, 0}), out = zeros({1, 2, 4});
  const auto error = [&](const Tensor& to, const Tensor& from, const Bags& bags,
                         const TestTables& with) {
    return error_of<UsageError>([&] { kernel::embedding_bag(to, from, bags, with.layout()); });
  };
  EXPECT_NE(error(out, zeros({6, 4}), {rows}, layout).find("expected 0 ... 6"), std::string::npos);
  EXPECT_NE(error(zeros({1, 1, 4}), tables, {rows}, layout).find("at least 2, 4"),
            std::string::npos);
  EXPECT_NE(error(zeros({1, 2, 3}), tables, {rows}, layout).find("out"), std::string::npos);
  EXPECT_NE(error(out, full({5, 4}, 0, DType::f16), {rows}, layout).find("tables"),
            std::string::npos);
  EXPECT_NE(error(full({1, 2, 4}, 0, DType::f16), tables, {rows}, layout).find("out"),
            std::string::npos);
  EXPECT_NE(error(out, tables, {rows, {}, zeros({2})}, layout).find("weights"), std::string::npos);
  EXPECT_NE(error(out, tables, {rows, {}, {}, BagMode::weighted}, layout).find("weights"),
            std::string::npos);
  EXPECT_NE(error(out, tables, {rows, {}, zeros({3}), BagMode::weighted}, layout).find("weights"),
            std::string::npos);
  const std::vector<BagGradient> gradient{{zeros({1, 2, 4}), {rows}}};
  EXPECT_THROW(
      kernel::coalesce_bags(zeros({1}, DType::i64), zeros({2, 4}), gradient, layout.layout()),
      UsageError)
      << "no room";
  EXPECT_THROW(
      kernel::coalesce_bags(zeros({2}, DType::i64), zeros({2, 5}), gradient, layout.layout()),
      UsageError);
}

}  // namespace
}  // namespace lockstep::test
