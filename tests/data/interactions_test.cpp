#include "data/interactions.h"

#include "core/check.h"
#include "core/parallel.h"
#include "tests/data/clicks_in.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace lockstep::data {
namespace {

using test::error_of;

class InteractionsTest : public ::testing::Test {
 protected:
  Interactions::Options with(const std::string& text) {
    test::spill(folder_ / "pairs", text);
    return {.path = folder_ / "pairs", .held_out = 0};
  }
  static std::vector<OneClick> all_of(const Interactions& source) {
    return clicks_of(source, numbers(0, source.samples() + source.held_out()));
  }
  // 40 users with 5 of 30 items each, as u7, i12.
  static std::string pairs() {
    std::string text;
    for (int u = 0; u < 40; ++u)
      for (int k = 0; k < 5; ++k) text += fmt::format("u{}\ti{}\n", u, (u * 7 + k * k) % 30);
    return text;
  }
  test::TempFolder folder_;
};

TEST_F(InteractionsTest, EveryPairIsThereOnceWithItsNegatives) {
  auto options = with(pairs());
  options.negatives = 3;
  const Interactions source(options);
  EXPECT_EQ(source.schema().table_rows, (std::vector<int64_t>{40, 30}));
  EXPECT_EQ(source.schema().dense, 0);
  ASSERT_EQ(source.samples(), 800);
  const auto all = all_of(source);
  std::map<int32_t, std::multiset<int32_t>> chosen;
  for (int64_t n = 0; n < 800; ++n) {
    EXPECT_EQ(all[n].label, n % 4 == 0 ? 1 : 0);
    EXPECT_EQ(all[n].bags[0], all[n / 4 * 4].bags[0]) << "negatives are of the pair's user";
    if (n % 4 == 0) chosen[all[n].bags[0][0]].insert(all[n].bags[1][0]);
  }
  ASSERT_EQ(chosen.size(), 40u);
  std::map<std::string, int32_t> rows;  // in order of first appearance
  for (int u = 0; u < 40; ++u)
    for (int k = 0; k < 5; ++k)
      rows.emplace(fmt::format("i{}", (u * 7 + k * k) % 30), static_cast<int32_t>(rows.size()));
  for (int u = 0; u < 40; ++u) {
    std::multiset<int32_t> expected;
    for (int k = 0; k < 5; ++k) expected.insert(rows[fmt::format("i{}", (u * 7 + k * k) % 30)]);
    EXPECT_EQ(chosen[u], expected) << u;
  }
}

TEST_F(InteractionsTest, ANegativeIsNeverOneOfTheUsersItems) {
  auto options = with(pairs());
  options.negatives = 50;
  options.held_out = 0.5;  // those of held-out pairs, too
  const Interactions source(options);
  std::map<int32_t, std::set<int32_t>> chosen, refused;
  for (const OneClick& click : all_of(source))
    (click.label == 1 ? chosen : refused)[click.bags[0][0]].insert(click.bags[1][0]);
  for (const auto& [user, items] : chosen) {
    for (const int32_t item : items) EXPECT_FALSE(refused[user].contains(item));
    EXPECT_EQ(items.size() + refused[user].size(), 30u) << "and each other item is one";
  }
}

TEST_F(InteractionsTest, AUserWithNearlyAllItemsGetsTheOneThatIsLeft) {
  std::string text = "other\tlast\n";
  for (int i = 0; i < 999; ++i) text += fmt::format("keen\ti{}\n", i);
  auto options = with(text);
  options.negatives = 2;
  for (const OneClick& click : all_of(Interactions(options)))
    if (click.label == 0 && click.bags[0][0] == 1) {
      EXPECT_EQ(click.bags[1][0], 0);
    }
  options = with(text + "keen\tlast\n");
  EXPECT_NE(error_of<SystemError>([&] {
              Interactions{options};
            }).find("a user (row 1) has each of the 1000 items"),
            std::string::npos);
  options.negatives = 0;
  EXPECT_EQ(Interactions(options).samples(), 1001);
}

TEST_F(InteractionsTest, SamplesAreAFunctionOfSeedAndNumber) {
  auto options = with(pairs());
  const Interactions a(options), b(options);
  const auto all = all_of(a);
  const std::vector<int64_t> some{999, 0, 7, 500};
  const auto picked = clicks_of(b, some);
  for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(picked[i], all[some[i]]);
  {
    const ThreadBudget two(2);
    EXPECT_EQ(all_of(a), all);
  }
  options.seed = 1;
  const auto other = all_of(Interactions(options));
  EXPECT_NE(other, all);
  for (size_t n = 0; n < all.size(); n += 5) EXPECT_EQ(other[n], all[n]) << "pairs stay";
}

TEST_F(InteractionsTest, HeldOutPairsAreOfManyUsersAndTheSameForEverySeed) {
  auto options = with(pairs());
  options.held_out = 0.25;
  const Interactions source(options);
  EXPECT_EQ(source.held_out(), 50 * 5);
  EXPECT_EQ(source.samples(), 150 * 5);
  std::set<int32_t> users;
  for (const OneClick& click : clicks_of(source, numbers(source.samples(), source.held_out())))
    users.insert(click.bags[0][0]);
  EXPECT_GT(users.size(), 20u) << "the file's last 50 pairs are of 10";
}

TEST_F(InteractionsTest, LinesMayEndAnyhowAndHaveMoreColumns) {
  auto options = with("\xEF\xBB\xBFuser\titem\trating\r\nb\tx\t5\t881250949\r\na\ty\r\nb\tz");
  options.negatives = 0;
  const Interactions source(options);
  EXPECT_EQ(source.schema().table_rows, (std::vector<int64_t>{2, 3}));
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (const OneClick& click : all_of(source)) pairs.emplace(click.bags[0][0], click.bags[1][0]);
  EXPECT_EQ(pairs, (std::set<std::pair<int32_t, int32_t>>{{0, 0}, {1, 1}, {0, 2}}));
}

TEST_F(InteractionsTest, MalformedLinesStopOrAreCounted) {
  const std::string text = "a\tx\nb\n\tx\nb\t\n\nb\ty\n" + std::string(2'000'000, 'z') + "\n";
  EXPECT_NE(error_of<SystemError>([&] {
              Interactions{with(text)};
            }).find("line 2: expected user and item with a TAB between them, got 'b'"),
            std::string::npos);
  auto options = with(text);
  options.bad_rows = BadRows::skip;
  const Interactions source(options);
  EXPECT_EQ(source.pairs(), 2);
  EXPECT_EQ(source.bad_rows().count, 5);
  EXPECT_EQ(source.bad_rows().first[4], "line 7: expected a line of at most 1048576 bytes");
}

TEST_F(InteractionsTest, HashedRowsStayInTheirTable) {
  auto options = with(pairs());
  options.hash_rows = 17;
  options.negatives = 0;
  const Interactions source(options);
  EXPECT_EQ(source.schema().table_rows, (std::vector<int64_t>{17, 17}));
  std::set<int32_t> rows;
  for (const OneClick& click : all_of(source))
    for (const auto& bag : click.bags) rows.insert(bag[0]);
  EXPECT_GE(*rows.begin(), 0);
  EXPECT_LT(*rows.rbegin(), 17);
  EXPECT_GT(rows.size(), 10u);
}

// What is kept is of the pairs: with a counter for each row this would take 16 GB.
TEST_F(InteractionsTest, RowsThatNobodyHasCostNothing) {
  auto options = with(pairs());
  options.hash_rows = INT32_MAX;
  const Interactions source(options);
  EXPECT_EQ(source.schema().table_rows, (std::vector<int64_t>{INT32_MAX, INT32_MAX}));
  std::map<int32_t, std::set<int32_t>> chosen;
  const auto all = all_of(source);
  for (const OneClick& one : all)
    if (one.label == 1) chosen[one.bags[0][0]].insert(one.bags[1][0]);
  EXPECT_EQ(chosen.size(), 40u);
  for (const OneClick& one : all) {
    if (one.label == 1) continue;
    EXPECT_FALSE(chosen.at(one.bags[0][0]).contains(one.bags[1][0])) << "of this user";
  }
}

TEST_F(InteractionsTest, RefusesWhatCannotBe) {
  EXPECT_NE(error_of<SystemError>([&] { Interactions{with("")}; }).find("has no pairs"),
            std::string::npos);
  auto options = with("a\tx\nb\ty\n");
  options.negatives = -1;
  EXPECT_THROW(Interactions{options}, UsageError);
  options.negatives = 1;
  options.held_out = 1;
  EXPECT_THROW(Interactions{options}, UsageError);
  options.held_out = 0;
  EXPECT_THROW(clicks_of(Interactions(options), {4}), UsageError);
}

}  // namespace
}  // namespace lockstep::data
