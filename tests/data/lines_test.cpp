#include "data/lines.h"

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::data {
namespace {

class Lines : public ::testing::Test {
 protected:
  std::string spill(const std::string& bytes) {
    test::spill(folder_ / "file", bytes);
    return folder_ / "file";
  }
  std::vector<std::string> read(const std::string& bytes) {
    const File file(spill(bytes), File::Mode::read);
    std::vector<char> buffer;
    LineReader reader(file, data_begin(file), file.size(), buffer);
    std::vector<std::string> lines;
    for (Line line; reader.next(line);) lines.emplace_back(line.text());
    return lines;
  }
  test::TempFolder folder_;
};
using Texts = std::vector<std::string>;

TEST_F(Lines, EndWithLfOrCrLfOrTheFile) {
  EXPECT_EQ(read(""), Texts{});
  EXPECT_EQ(read("\n"), Texts{""});
  EXPECT_EQ(read("a"), Texts{"a"});
  EXPECT_EQ(read("a\n"), Texts{"a"});
  EXPECT_EQ(read("a\r\nb\n\nc\xE2\x80\xA9"
                 "d\n"),
            (Texts{"a", "b", "",
                   "c\xE2\x80\xA9"
                   "d"}));
  EXPECT_EQ(read("a\rb\r\r\nc\r"), (Texts{"a\rb\r", "c\r"}));
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "a\n\xEF\xBB\xBF"
                 "b"),
            (Texts{"a",
                   "\xEF\xBB\xBF"
                   "b"}));
  EXPECT_EQ(read(std::string("a\0b\n\0", 5)),
            (Texts{std::string("a\0b", 3), std::string(1, '\0')}));
}

TEST_F(Lines, OfAnyLengthAreReadThroughOneSmallBuffer) {
  std::string bytes;
  Texts expected;
  for (const int64_t length : {3, 262143, 262144, 262145, 5, 900'000, 0, 1'048'575, 7}) {
    expected.emplace_back(length, static_cast<char>('a' + expected.size()));
    bytes += expected.back() + "\n";
  }
  EXPECT_EQ(read(bytes), expected);
}

TEST_F(Lines, LongerOnesThanTheBufferAreCut) {
  const File file(
      spill("a\n" + std::string(20'000'000, 'x') + "\nb\n" + std::string(2'000'000, 'y')),
      File::Mode::read);
  std::vector<char> buffer;
  LineReader reader(file, 0, file.size(), buffer);
  std::vector<std::pair<size_t, bool>> seen;
  for (Line line; reader.next(line);) seen.emplace_back(line.text().size(), line.whole);
  const std::vector<std::pair<size_t, bool>> expected{
      {1, true}, {kLongestLine, false}, {1, true}, {kLongestLine, false}};
  EXPECT_EQ(seen, expected);
  EXPECT_LE(buffer.size(), size_t{kLongestLine + 64});
}

// Cut anywhere, the pieces of a file have each of its lines once.
TEST_F(Lines, PiecesThatBeginAnywhereHaveEachLineOnce) {
  const std::string bytes =
      "\xEF\xBB\xBF"
      "ab\n\ncdefgh\r\ni\n\n\nlast";
  const Texts expected = read(bytes);
  const File file(spill(bytes), File::Mode::read);
  for (int64_t first = 3; first <= file.size(); ++first)
    for (int64_t second = first; second <= file.size(); ++second) {
      Texts seen;
      for (const auto& [begin, end] :
           {std::pair{int64_t{3}, first}, {first, second}, {second, file.size()}}) {
        std::vector<char> buffer;
        LineReader reader(file, begin, end, buffer, LineReader::From::middle);
        for (Line line; reader.next(line);) seen.emplace_back(line.text());
      }
      ASSERT_EQ(seen, expected) << first << " " << second;
    }
}

TEST_F(Lines, AnIndexFindsEachLine) {
  std::string bytes;
  Texts all;
  const Random random(1, RandomStream::tests);
  for (int i = 0; i < 100'000; ++i) {
    all.emplace_back(random.word(i) % 100, static_cast<char>('a' + i % 26));
    bytes += all.back() + (i % 3 == 0 ? "\r\n" : "\n");
  }
  all.push_back("the last one has no end");
  bytes += all.back();
  const File file(spill(bytes), File::Mode::read);
  for (const int threads : {1, 2}) {
    const ThreadBudget budget(threads);
    const LineIndex index(file, 0);
    ASSERT_EQ(index.lines(), std::ssize(all));
    for (int64_t first = 0; first < index.lines(); first += 997) {
      const int64_t end = std::min<int64_t>(first + 130, index.lines());
      const auto place = index.before(first);
      EXPECT_LE(place.line, first);
      std::vector<char> buffer;
      LineReader reader(file, place.offset, index.offset_after(end), buffer);
      Line line;
      for (int64_t number = place.line; number < end; ++number) {
        ASSERT_TRUE(reader.next(line));
        ASSERT_EQ(line.text(), all[number]);
      }
    }
  }
}

TEST_F(Lines, AnIndexCountsWithOrWithoutALastLineEnd) {
  for (const auto& [bytes, lines] :
       std::initializer_list<std::pair<std::string, int64_t>>{{"", 0},
                                                              {"\n", 1},
                                                              {"a", 1},
                                                              {"a\n", 1},
                                                              {"a\nb", 2},
                                                              {"a\n\n", 2},
                                                              {"\xEF\xBB\xBF", 0}}) {
    const File file(spill(bytes), File::Mode::read);
    EXPECT_EQ(LineIndex(file, data_begin(file)).lines(), lines) << bytes;
  }
}

TEST_F(Lines, AFileThatBecameShorterIsAnError) {
  const std::string path = spill(std::string(1'000'000, 'x') + "\n");
  const File file(path, File::Mode::read);
  std::vector<char> buffer;
  LineReader reader(file, 0, file.size(), buffer);
  std::filesystem::resize_file(path, 1000);
  Line line;
  EXPECT_THROW(while (reader.next(line)){}, SystemError);
}

}  // namespace
}  // namespace lockstep::data
