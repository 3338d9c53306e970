#include "data/inspect.h"

#include "data/cardinality.h"
#include "data/category.h"

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "tests/support/image_bytes.h"
#include "tests/support/temp_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace lockstep::data {
namespace {

class Inspect : public ::testing::Test {
 protected:
  FileReport inspect(const std::string& text, InspectOptions options = {}) {
    test::spill(folder_ / "file", text);
    return inspect_file(folder_ / "file", options);
  }
  test::TempFolder folder_;
};

TEST_F(Inspect, CountsWhatIsInClicks) {
  const auto report =
      inspect("label,I1,I2,C1\r\n1,1,,a\r\n0,1,260.0,b\r\n0,,7,\r\n2,1,1,a\r\n1,,7,a\r\n0,1\r\n");
  EXPECT_EQ(report.kind, FileKind::clicks);
  EXPECT_EQ(report.columns.separator, ',');
  EXPECT_EQ(report.lines, 7);
  EXPECT_EQ(report.header_lines, 1);
  EXPECT_EQ(report.samples, 4);
  EXPECT_EQ(report.positives, 2);
  EXPECT_EQ(report.bad_rows.count, 2);
  EXPECT_EQ(report.bad_rows.first,
            (std::vector<std::string>{"line 5: column 1 (label): expected 0 or 1, got '2'",
                                      "line 7: expected 4 columns, got 2"}));
  ASSERT_EQ(report.features.size(), 3u);
  const auto is = [&](int i, const char* name, int64_t missing, int64_t distinct) {
    EXPECT_EQ(report.features[i].name, name);
    EXPECT_EQ(report.features[i].missing, missing);
    EXPECT_EQ(report.features[i].distinct, distinct);
    EXPECT_TRUE(report.features[i].exact);
  };
  is(0, "I1", 2, 1);
  is(1, "I2", 1, 2);
  is(2, "C1", 1, 2);
}

TEST_F(Inspect, CategoriesAreReadAsToldTo) {
  const std::string text = "label,C1\n1,7\n0,2147483646\n0,zebra\n";
  const auto samples = [&](Categories categories) {
    return inspect(text, {.categories = categories}).samples;
  };
  EXPECT_EQ(samples(Categories::hexadecimal), 1);
  EXPECT_EQ(samples(Categories::rows), 2);
  EXPECT_EQ(samples(Categories::text), 3);
}

TEST_F(Inspect, TellsKindsApart) {
  std::string criteo = "0";
  for (int i = 0; i < 39; ++i) criteo += "\t";
  EXPECT_EQ(inspect(criteo).kind, FileKind::clicks);
  EXPECT_EQ(inspect(criteo + "\t\n" + criteo + "\n" + criteo).kind, FileKind::clicks)
      << "though the first line has 41 columns";
  EXPECT_EQ(inspect("label\tI1\tC1\n0\t1\ta").kind, FileKind::clicks);
  EXPECT_EQ(inspect("a\tb\nc\td\n").kind, FileKind::interactions);
  EXPECT_EQ(inspect("196\t242\t3\t881250949\n").kind, FileKind::interactions);
  EXPECT_EQ(inspect("To be, or not to be\n").kind, FileKind::text);
  EXPECT_EQ(inspect("\n\n\n").kind, FileKind::text);
  EXPECT_EQ(inspect(std::string(3'000'000, '\0')).kind, FileKind::text);
  EXPECT_EQ(inspect("a\tb\n", {.kind = FileKind::text}).kind, FileKind::text);
}

TEST_F(Inspect, CountsPixelsAndLabels) {
  const auto images =
      inspect(test::idx_bytes({2, 2, 1, 2}, std::string("\0\xff\x33\x33\0\xff\x33\x33", 8)));
  EXPECT_EQ(images.kind, FileKind::idx);
  EXPECT_EQ(images.samples, 2);
  EXPECT_EQ(images.images.shape, (std::vector<int64_t>{2, 2, 1, 2}));
  ASSERT_EQ(images.images.channels.size(), 2u);
  EXPECT_NEAR(images.images.channels[0].mean, 0.5, 1e-12);
  EXPECT_NEAR(images.images.channels[0].deviation, 0.5, 1e-12);
  EXPECT_NEAR(images.images.channels[1].mean, 0.2, 1e-12);
  EXPECT_EQ(images.images.channels[1].deviation, 0);
  EXPECT_TRUE(images.images.labels.empty());

  const auto labels = inspect(test::idx_bytes({4}, std::string("\2\0\2\2", 4)));
  EXPECT_EQ(labels.images.labels, (std::vector<int64_t>{1, 0, 3}));
  EXPECT_TRUE(labels.images.channels.empty());

  const std::string records = test::cifar_record(9, 1) + test::cifar_record(0, 2);
  const auto cifar = inspect(records);
  EXPECT_EQ(cifar.kind, FileKind::cifar10);
  EXPECT_EQ(cifar.samples, 2);
  EXPECT_EQ(cifar.images.labels.front() + cifar.images.labels.back(), 2);
  EXPECT_EQ(inspect(records + test::cifar_record(10, 3)).kind, FileKind::text);
  EXPECT_EQ(inspect(records + "x").kind, FileKind::text);
  EXPECT_THROW(inspect(test::idx_bytes({3}, "ab")), SystemError);
  EXPECT_THROW(inspect(test::idx_bytes({2}, "ab"), {.kind = FileKind::cifar10}), SystemError);
}

TEST_F(Inspect, CountsInteractionsAndText) {
  const auto pairs = inspect("user_id\titem_id\na\tx\na\ty\n\ty\nb\tx\n");
  EXPECT_EQ(pairs.kind, FileKind::interactions);
  EXPECT_EQ(pairs.header_lines, 1);
  EXPECT_EQ(pairs.samples, 3);
  EXPECT_EQ(pairs.bad_rows.count, 1);
  EXPECT_EQ(pairs.bad_rows.first[0].substr(0, 7), "line 4:");
  EXPECT_EQ(pairs.features[0].distinct, 2);
  EXPECT_EQ(pairs.features[1].distinct, 2);
  const auto text = inspect("ab\n\nabc");
  EXPECT_EQ(text.lines, 3);
  EXPECT_EQ(text.longest_line, 3);
  EXPECT_TRUE(text.features.empty());
}

// Longer than several pieces of 4 MB, so that pieces begin within lines.
TEST_F(Inspect, DoesNotDependOnThreads) {
  std::string text;
  const Random random(5, RandomStream::tests);
  int64_t bad = 0, lines = 0, missing = 0;
  std::set<uint32_t> distinct;
  std::vector<std::string> first;
  for (uint64_t i = 0; text.size() < 18'000'000; ++i) {
    const uint32_t word = random.word(i);
    ++lines;
    text += fmt::format("u{}\t", word % 100'000);
    if (word % 997 == 0) {
      ++bad;
      if (first.size() < 5)
        first.push_back(
            fmt::format("line {}: expected user and item with a TAB between them, got "
                        "'u{}\\x09'",
                        lines, word % 100'000));
    } else {
      text += "item";
      distinct.insert(word % 100'000);
    }
    text += '\n';
  }
  test::spill(folder_ / "file", text);
  for (const int threads : {1, 2, 3}) {
    const ThreadBudget budget(threads);
    int64_t done = 0;
    const auto report =
        inspect_file(folder_ / "file", {.progress = [&](int64_t now, int64_t total) {
                       EXPECT_GT(now, done);
                       EXPECT_LE(now, total);
                       done = now;
                     }});
    EXPECT_EQ(done, report.bytes);
    EXPECT_EQ(report.lines, lines);
    EXPECT_EQ(report.samples, lines - bad);
    EXPECT_EQ(report.bad_rows.count, bad);
    EXPECT_EQ(report.bad_rows.first, first);
    EXPECT_FALSE(report.features[0].exact);
    EXPECT_NEAR(report.features[0].distinct, std::ssize(distinct), 0.04 * std::ssize(distinct));
    EXPECT_EQ(report.features[1].distinct, 1);
    EXPECT_EQ(report.features[1].missing, missing);
  }
}

TEST_F(Inspect, RefusesEmptyFilesAndForeignHeaders) {
  EXPECT_THROW(inspect(""), SystemError);
  EXPECT_THROW(inspect("\xEF\xBB\xBF"), SystemError);
  EXPECT_THROW(inspect("a\tb\n", {.kind = FileKind::clicks}), SystemError);
  EXPECT_THROW(inspect_file(folder_ / "none", {}), SystemError);
  EXPECT_THROW(inspect_file(folder_.path(), {}), SystemError);
}

Cardinality of(int64_t begin, int64_t end) {
  Cardinality cardinality;
  for (int64_t i = begin; i < end; ++i) cardinality.add(category_hash(fmt::format("{}", i)));
  return cardinality;
}

TEST(Cardinality, IsExactUpToItsBound) {
  Cardinality some = of(0, Cardinality::kExact);
  EXPECT_EQ(some.count(), Cardinality::kExact);
  EXPECT_TRUE(some.exact());
  some.merge(of(10, 5000));
  EXPECT_EQ(some.count(), Cardinality::kExact);
  some.add(0);
  EXPECT_FALSE(some.exact());
}

TEST(Cardinality, EstimatesWithinFiveStandardErrors) {
  for (const int64_t n : {70'000, 200'000, 1'000'000})
    EXPECT_NEAR(of(0, n).count(), n, 0.041 * static_cast<double>(n)) << n;
}

TEST(Cardinality, MergesInAnyOrderToTheSame) {
  const auto a = of(0, 40'000), b = of(30'000, 80'000), c = of(0, 100'000);
  const int64_t whole = of(0, 100'000).count(), ab = of(0, 80'000).count();
  for (const auto& [x, y] : {std::pair{a, b}, {b, a}}) {
    Cardinality merged = x;
    merged.merge(y);
    EXPECT_EQ(merged.count(), ab);
    EXPECT_FALSE(merged.exact());
    merged.merge(c);
    EXPECT_EQ(merged.count(), whole);
    Cardinality other = c;
    other.merge(x);
    EXPECT_EQ(other.count(), whole);
  }
}

}  // namespace
}  // namespace lockstep::data
