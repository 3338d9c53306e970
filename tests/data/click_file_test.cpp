#include "data/click_file.h"

#include "data/click_loader.h"

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "tests/data/clicks_in.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

#include "test_paths.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <filesystem>
#include <set>

namespace lockstep::data {
namespace {

using test::error_of;

std::string line_of(const std::string& label, const std::vector<std::string>& integers,
                    const std::vector<std::string>& categories, char separator = '\t') {
  std::string line = label;
  for (int i = 0; i < 13; ++i)
    line += separator + (i < std::ssize(integers) ? integers[i] : std::string());
  for (int i = 0; i < 26; ++i)
    line += separator + (i < std::ssize(categories) ? categories[i] : std::string());
  return line;
}

// Lines of which every field can be told apart.
std::string generated(int64_t lines, const std::string& line_end = "\n", char separator = '\t') {
  std::string text;
  const Random random(6, RandomStream::tests);
  uint64_t at = 0;
  for (int64_t n = 0; n < lines; ++n) {
    std::vector<std::string> integers, categories;
    for (int i = 0; i < 13; ++i) {
      const uint32_t word = random.word(at++);
      integers.push_back(word % 5 == 0 ? "" : fmt::format("{}", static_cast<int>(word >> 12) - 9));
    }
    for (int i = 0; i < 26; ++i) {
      const uint32_t word = random.word(at++);
      categories.push_back(word % 7 == 0 ? "" : fmt::format("{:08x}", word));
    }
    text += line_of(n % 3 == 0 ? "1" : "0", integers, categories, separator) + line_end;
  }
  return text;
}

class ClickFileTest : public ::testing::Test {
 protected:
  std::string spill(const std::string& text) {
    test::spill(folder_ / "clicks", text);
    return folder_ / "clicks";
  }
  ClickFile open(const std::string& text, BadRows bad_rows = BadRows::stop) {
    return ClickFile({.path = spill(text), .hash_rows = 1000, .bad_rows = bad_rows, .held_out = 0});
  }
  std::vector<OneClick> all_of(const std::string& text, BadRows bad_rows = BadRows::stop) {
    const ClickFile file = open(text, bad_rows);
    return clicks_of(file, numbers(0, file.samples()));
  }
  std::string error_in(const std::string& text) {
    return error_of<SystemError>([&] { all_of(text); });
  }
  test::TempFolder folder_;
};

using ClickFileKnownFaults = ClickFileTest;

TEST_F(ClickFileKnownFaults, O22b_LfAndCrLfGiveTheSame) {
  const std::string text = generated(50);
  const auto expected = all_of(text);
  ASSERT_EQ(expected.size(), 50u);
  EXPECT_EQ(all_of(generated(50, "\r\n")), expected);
  EXPECT_EQ(all_of(text.substr(0, text.size() - 1)), expected) << "without the last line end";
  EXPECT_EQ(all_of("\xEF\xBB\xBF" + text), expected);
  EXPECT_EQ(all_of(generated(50, "\n", ',')), expected);
}

TEST_F(ClickFileKnownFaults, O22c_Integers) {
  const std::vector<std::string> integers{
      "",     "-3",   "0",    "1",   "2147483647", "-2147483648", "260.0", "99999999999999999999",
      "-0.5", "4095", "4096", "0.5", "1e3"};
  const auto click = all_of(line_of("1", integers, {}) + "\n")[0];
  EXPECT_EQ(click.dense[0], 0);
  EXPECT_EQ(click.dense[1], 0);
  EXPECT_EQ(click.dense[2], 0);
  EXPECT_FLOAT_EQ(click.dense[3], 0.6931472f);
  EXPECT_FLOAT_EQ(click.dense[4], 21.487563f);
  EXPECT_EQ(click.dense[5], 0);
  EXPECT_FLOAT_EQ(click.dense[6], std::log(261.0f));
  EXPECT_FLOAT_EQ(click.dense[7], std::log(1e20f));
  EXPECT_EQ(click.dense[8], 0);
  EXPECT_FLOAT_EQ(click.dense[9], std::log(4096.0f));
  EXPECT_FLOAT_EQ(click.dense[10], std::log(4097.0f));
  EXPECT_FLOAT_EQ(click.dense[11], std::log(1.5f));
  EXPECT_FLOAT_EQ(click.dense[12], std::log(1001.0f));
  EXPECT_EQ(click.label, 1);
}

TEST_F(ClickFileKnownFaults, O22c_EmptyFieldsAreValidAndHexadecimalIsUnsigned) {
  const auto empty = all_of(line_of("0", {}, {}) + "\n")[0];
  EXPECT_EQ(empty.dense, std::vector<float>(13));
  EXPECT_EQ(empty.bags, std::vector<std::vector<int32_t>>(26, {0}));
  const ClickFile file({.path = spill(line_of("0", {}, {"ffffffff", "FFFFFFFF", "a", "0000000A"})),
                        .hash_rows = 10,
                        .held_out = 0});
  const auto click = clicks_of(file, {0})[0];
  EXPECT_EQ(click.bags[0][0], 5);
  EXPECT_EQ(click.bags[1][0], 5);
  EXPECT_EQ(click.bags[2][0], 0);
  EXPECT_EQ(click.bags[3][0], 0);
}

TEST_F(ClickFileKnownFaults, O22c_WrongNumbersOfColumnsAreErrorsWithTheLine) {
  const std::string good = line_of("0", {"1"}, {"a"}) + "\n";
  const std::string less = good.substr(0, good.size() - 2) + "\n";
  const std::string more = good.substr(0, good.size() - 1) + "\t\n";
  EXPECT_NE(error_in(good + good + less).find("line 3: expected 40 columns, got 39"),
            std::string::npos);
  EXPECT_NE(error_in(good + more + good).find("line 2: expected 40 columns, got 41"),
            std::string::npos);
  EXPECT_NE(error_in(good + "\n").find("line 2: expected 40 columns, got 1"), std::string::npos);
}

TEST_F(ClickFileTest, MalformedFieldsAreNamed) {
  const auto reason = [&](const std::string& label, const std::vector<std::string>& integers,
                          const std::vector<std::string>& categories) {
    return error_in(line_of(label, integers, categories));
  };
  const auto says = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(reason("2", {}, {}), "line 1: column 1 (label): expected 0 or 1, got '2'");
  says(reason("01", {}, {}), "column 1 (label)");
  says(reason("", {}, {}), "column 1 (label)");
  says(reason("0.5", {}, {}), "column 1 (label)");
  says(reason("0", {"", "x"}, {}), "column 3 (I2): expected a number or nothing, got 'x'");
  for (const char* bad :
       {"-", "1-", "+1", " 1", "1 ", "nan", "inf", "-inf", "1e999", "0x10", "1,5"})
    says(reason("0", {bad}, {}), "column 2 (I1): expected a number or nothing");
  says(reason("0", {std::string(400, '9')}, {}), "column 2 (I1)");
  says(reason("0", {}, {"", "", "", "", "", "", "", "", "", "", "", "", "",
                        "", "", "", "", "", "", "", "", "", "", "", "", "g"}),
       "column 40 (C26): expected up to 8 hexadecimal digits or nothing, got 'g'");
  for (const char* bad : {"123456789", "-1", "12 4", "0x12", "abcdefgh"})
    says(reason("0", {}, {bad}), "column 15 (C1)");
  says(reason("0", {}, {std::string("ab\0cd", 5)}), "got 'ab\\x00cd'");
  says(error_in("0\t" + std::string(3'000'000, '1')), "line 1: expected a line of at most");
  says(error_in(std::string(5000, '\0')), "expected 40 columns, got 1");
}

TEST_F(ClickFileTest, SkippedRowsAreCountedAndLeaveTheirNumbersUnused) {
  const std::string good = generated(6);
  std::vector<std::string> lines;
  for (size_t at = 0; at < good.size();) {
    const size_t end = good.find('\n', at) + 1;
    lines.push_back(good.substr(at, end - at));
    at = end;
  }
  const auto expected = all_of(good);
  std::string text;
  for (int i = 0; i < 6; ++i) text += (i % 2 == 0 ? "9bad\n" : "") + lines[i];
  const ClickFile file = open(text, BadRows::skip);
  EXPECT_EQ(file.samples(), 9);
  EXPECT_EQ(clicks_of(file, numbers(0, 9)), expected);
  EXPECT_EQ(file.bad_rows().count, 3);
  EXPECT_EQ(file.bad_rows().first,
            (std::vector<std::string>{"line 1: expected 40 columns, got 1",
                                      "line 4: expected 40 columns, got 1",
                                      "line 7: expected 40 columns, got 1"}));
  EXPECT_EQ(clicks_of(file, {0}), std::vector<OneClick>{});
  EXPECT_EQ(clicks_of(file, {8, 0, 1}), (std::vector<OneClick>{expected[5], expected[0]}));
  EXPECT_EQ(file.bad_rows().count, 3) << "however often they are read";
}

TEST_F(ClickFileTest, FirstBadRowsAreTheLowestLines) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "9bad\n";
  text += generated(1);
  const ClickFile file = open(text, BadRows::skip);
  for (int64_t i = 19; i >= 0; --i) clicks_of(file, {i});
  EXPECT_EQ(file.bad_rows().count, 20);
  ASSERT_EQ(file.bad_rows().first.size(), 5u);
  EXPECT_EQ(file.bad_rows().first[0], "line 1: expected 40 columns, got 1");
  EXPECT_EQ(file.bad_rows().first[4], "line 5: expected 40 columns, got 1");
}

TEST_F(ClickFileTest, AFileOfSomethingElseIsNotSkippedAsAWhole) {
  const auto text =
      error_of<SystemError>([&] { open("1 To be\n2 or not to be\n", BadRows::skip); });
  EXPECT_NE(text.find("all of the first lines are malformed; line 1: expected 40 columns, got 1"),
            std::string::npos)
      << text;
}

TEST_F(ClickFileTest, AnyOrderAndAnyThreadsGiveTheSameSamples) {
  const ClickFile file = open(generated(3000));
  const auto all = clicks_of(file, numbers(0, 3000));
  std::vector<int64_t> some;
  const Permutation permutation(3000, Random(2, RandomStream::tests));
  for (uint64_t i = 0; i < 700; ++i) some.push_back(static_cast<int64_t>(permutation(i)));
  for (int64_t i = 100; i < 900; ++i) some.push_back(i);
  for (const int threads : {1, 2, 3}) {
    const ThreadBudget budget(threads);
    const auto picked = clicks_of(file, some);
    ASSERT_EQ(picked.size(), some.size());
    for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(picked[i], all[some[i]]) << i;
  }
}

TEST_F(ClickFileTest, RanksAndMicroBatchesSplitAStepWithMalformedRows) {
  std::string text = generated(40);
  for (size_t at = 0, line = 0; at < text.size(); at = text.find('\n', at) + 1)
    if (line++ % 7 == 3) text[at] = 'x';
  const auto file = std::make_shared<ClickFile>(
      ClickFile::Options{.path = spill(text), .bad_rows = BadRows::skip, .held_out = 0.2});
  EXPECT_EQ(file->samples(), 32);
  EXPECT_EQ(file->held_out(), 8);
  SamplerOptions one{.samples = 32, .global_batch = 12, .order = file->order()};
  ClickLoader whole(file, one, {});
  for (int step = 0; step < 6; ++step) {
    const auto expected = clicks_in(whole.next(), file->schema());
    std::vector<OneClick> parts;
    for (int rank = 0; rank < 3; ++rank) {
      SamplerOptions third = one;
      third.ranks = 3;
      third.rank = rank;
      third.micro_batches = 2;
      ClickLoader part(file, third, {.first_step = step});
      for (int micro = 0; micro < 2; ++micro)
        for (const OneClick& click : clicks_in(part.next(), file->schema())) parts.push_back(click);
    }
    EXPECT_EQ(parts, expected);
  }
}

TEST_F(ClickFileTest, AHeaderNamesTheColumns) {
  const auto click = all_of("label,I1,I2,C1\r\n1.0,260.0,,68fd1e64\r\n0,-1,7.5,\r\n");
  ASSERT_EQ(click.size(), 2u);
  EXPECT_EQ(click[0].label, 1);
  EXPECT_EQ(click[0].dense, (std::vector<float>{std::log(261.0f), 0}));
  EXPECT_EQ(click[0].bags[0][0], static_cast<int32_t>(0x68fd1e64u % 1000));
  EXPECT_EQ(click[1].dense, (std::vector<float>{0, std::log(8.5f)}));
  EXPECT_NE(error_in("label,I1,C1\n0,x,\n").find("line 2: column 2 (I1)"), std::string::npos);
  for (const char* header :
       {"label,C1,I1\n", "label\n", "click,I1,C1\n", "label,I1,X\n", "label,I1,\n"})
    EXPECT_NE(error_in(header).find("line 1: expected a header"), std::string::npos) << header;
  EXPECT_NE(error_in("label,I1,C1").find("has no rows"), std::string::npos);
  EXPECT_NE(error_in("label,I1,C1\r\n").find("has no rows"), std::string::npos);
}

TEST_F(ClickFileTest, CategoriesMayBeAnyText) {
  const ClickFile file({.path = spill("label\tC1\tC2\n1\tfoo\tfoo\n0\t\t\xC3\xA9\n"),
                        .hash_rows = 1000,
                        .categories = Categories::text,
                        .held_out = 0});
  const auto clicks = clicks_of(file, {0, 1});
  EXPECT_EQ(clicks[0].bags[0][0], static_cast<int32_t>(0x33bf00a859c4ba3fu % 1000));
  EXPECT_EQ(clicks[0].bags[1][0], clicks[0].bags[0][0]) << "tables are apart, hashes need not be";
  EXPECT_EQ(clicks[1].bags[0][0], 0);
  EXPECT_EQ(clicks[1].bags[1][0], static_cast<int32_t>(0x17d757dfb8b46f78u % 1000));
}

TEST_F(ClickFileKnownFaults, O24_RowsATableDoesNotHaveAreErrorsWithTheLine) {
  const auto open_rows = [&](const std::string& row) {
    return ClickFile({.path = spill("label,C1,C2\n1,9,0\n0,," + row + "\n"),
                      .hash_rows = 10,
                      .categories = Categories::rows,
                      .held_out = 0});
  };
  const auto fine = clicks_of(open_rows("9"), {0, 1});
  EXPECT_EQ(fine[0].bags, (std::vector<std::vector<int32_t>>{{9}, {0}}));
  EXPECT_EQ(fine[1].bags, (std::vector<std::vector<int32_t>>{{0}, {9}}));
  for (const char* row : {"10", "-1", "2147483648", "4294967299", "1.0", "a", " 1"}) {
    const ClickFile file = open_rows(row);
    EXPECT_NE(error_of<SystemError>([&] {
                clicks_of(file, {0, 1});
              })
                  .find(fmt::format("line 3: column 3 (C2): expected a row 0..9 of table 1 or "
                                    "nothing, got '{}'",
                                    row)),
              std::string::npos)
        << row;
  }
}

TEST_F(ClickFileTest, FilesThatAreNoneAreRefused) {
  EXPECT_NE(error_in("").find("is empty"), std::string::npos);
  EXPECT_NE(error_in("\xEF\xBB\xBF").find("is empty"), std::string::npos);
  EXPECT_THROW(ClickFile({.path = folder_ / "none"}), SystemError);
  EXPECT_THROW(ClickFile({.path = folder_.path()}), SystemError);
  EXPECT_THROW(ClickFile({.path = spill(generated(3)), .hash_rows = 0}), UsageError);
  EXPECT_THROW(ClickFile({.path = spill(generated(3)), .hash_rows = int64_t{1} << 31}), UsageError);
  EXPECT_THROW(ClickFile({.path = spill(generated(3)), .held_out = 1}), UsageError);
  const ClickFile file = open(generated(3));
  EXPECT_THROW(clicks_of(file, {3}), UsageError);
  EXPECT_THROW(clicks_of(file, {-1}), UsageError);
}

TEST_F(ClickFileTest, AFileThatIsCutWhileItIsReadIsAnError) {
  const ClickFile file = open(generated(3000));
  std::filesystem::resize_file(folder_ / "clicks", 1000);
  for (const int64_t line : {2999, 70, 3})  // behind what is left, near its end, in it
    EXPECT_NE(error_of<SystemError>([&] { clicks_of(file, {line}); }).find("became shorter"),
              std::string::npos);
}

// Bytes of all kinds: every line is a sample or a bad row with a reason.
TEST_F(ClickFileTest, HostileBytesAreBadRows) {
  const Random random(77, RandomStream::tests);
  const std::string alphabet("01239abfF.\t\t\t\t,-e \r\n\n\0\xff", 24);
  for (uint32_t round = 0; round < 200; ++round) {
    std::string text = round % 2 == 0 ? "" : generated(4);
    for (uint64_t i = 0; i < 400; ++i) {
      const uint32_t word = random.word(round * 400 + i);
      const char byte = alphabet[word % alphabet.size()];
      if (round % 2 == 0)
        text += byte;
      else if (word >> 16 < 800)
        text[(word >> 8) % text.size()] = byte;
    }
    if (std::isalpha(static_cast<unsigned char>(text[0])) != 0) text[0] = '0';  // no header
    const ClickFile file = open(text + "\n" + generated(1, "\n", '\t'), BadRows::skip);
    const auto clicks = clicks_of(file, numbers(0, file.samples()));
    EXPECT_EQ(std::ssize(clicks) + file.bad_rows().count, file.samples());
    for (const std::string& reason : file.bad_rows().first)
      EXPECT_EQ(reason.find("malformed"), std::string::npos) << reason;
    for (const OneClick& click : clicks)
      for (const float x : click.dense) ASSERT_TRUE(std::isfinite(x) && x >= 0);
  }
}

TEST_F(ClickFileTest, TheCriteoSampleIsRead) {
  std::filesystem::path sample;
  for (const auto& base :
       {std::filesystem::current_path(), std::filesystem::path(LOCKSTEP_SOURCE_DIR)})
    for (auto folder = base; folder != folder.root_path(); folder = folder.parent_path())
      if (std::filesystem::exists(folder / "shared/data/criteo_sample.csv"))
        sample = folder / "shared/data/criteo_sample.csv";
  if (sample.empty()) GTEST_SKIP() << "no shared/data/criteo_sample.csv beside the repository";
  const ClickFile file({.path = sample, .held_out = 0});
  EXPECT_EQ(file.schema().dense, 13);
  EXPECT_EQ(file.schema().tables(), 26);
  const auto clicks = clicks_of(file, numbers(0, file.samples()));
  EXPECT_EQ(clicks.size(), 200u);
  EXPECT_FLOAT_EQ(clicks[0].dense[2], std::log(261.0f));
  EXPECT_EQ(clicks[0].bags[0][0], static_cast<int32_t>(0x05db9164u % 1'000'000));
}

}  // namespace
}  // namespace lockstep::data
