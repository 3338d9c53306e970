#include "data/text.h"

#include "core/check.h"
#include "core/random.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <thread>

namespace lockstep::data {
namespace {

std::string read_back(const std::string& bytes) {
  const test::TempFolder folder;
  test::spill(folder / "text", bytes);
  return read_text(folder / "text");
}

std::string file_error(const auto& f) {
  try {
    f();
  } catch (const SystemError& error) {
    return error.fault() == Fault::file ? error.what() : "a fault of another kind";
  }
  return "";
}

TEST(ReadText, KeepsEveryByte) {
  std::string bytes = "a\r\nb";
  bytes += std::string("\0\xFF\n", 3);
  EXPECT_EQ(read_back(bytes), bytes);
}

TEST(ReadText, ReadsFilesOfManyChunks) {
  std::string bytes(3 << 20, 'x');
  bytes.back() = 'y';
  EXPECT_EQ(read_back(bytes), bytes);
}

TEST(ReadText, LeavesOutAByteOrderMark) {
  EXPECT_EQ(read_back("\xEF\xBB\xBFx\xEF\xBB\xBF"), "x\xEF\xBB\xBF");
}

TEST(ReadText, SaysWhatIsWrongWithAFile) {
  const test::TempFolder folder;
  test::spill(folder / "empty", "");
  EXPECT_EQ(file_error([&] { read_text(folder / "missing"); }),
            fmt::format("cannot open {}/missing: No such file or directory", folder.path()));
  EXPECT_EQ(file_error([&] { read_text(folder.path()); }),
            fmt::format("cannot read {}: Is a directory", folder.path()));
  EXPECT_EQ(file_error([&] { read_text(folder / "empty"); }),
            fmt::format("{}/empty is empty; expected text", folder.path()));
  EXPECT_NE(file_error([] { read_back("\xEF\xBB\xBF"); }), "") << "nothing but a byte-order mark";
#if defined(__linux__)
  // Address 0 of this process cannot be read: an error after a successful open.
  EXPECT_EQ(file_error([] { read_text("/proc/self/mem"); }),
            "cannot read /proc/self/mem: Input/output error");
#endif
}

TEST(ReadText, AnEndlessFileIsAnErrorNotAllMemory) {
  EXPECT_EQ(file_error([] { read_text("/dev/zero", 1000); }),
            "/dev/zero is too large or has no end; expected at most 1000 bytes");
}

TEST(ReadText, ReadsAPipe) {
  const test::TempFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { test::spill(path, "through a pipe"); });
  EXPECT_EQ(read_text(path), "through a pipe");
  writer.join();
}

TEST(KnownFaults, O22a_TextRecords) {
  using Records = std::vector<std::string_view>;
  const std::string_view bytes("\x61\x0D\x0A\x62\x0A\x0A\x63\xE2\x80\xA9\x64\x0A", 12);
  EXPECT_EQ(split_records(bytes), (Records{"a", "b", "",
                                           "c\xE2\x80\xA9"
                                           "d"}));
  EXPECT_EQ(split_records("a\nb"), (Records{"a", "b"})) << "a last line without newline is kept";
  EXPECT_EQ(split_records("a\x0B"
                          "b\x0C"
                          "c\xC2\x85"
                          "d\re\n"),
            (Records{"a\x0B"
                     "b\x0C"
                     "c\xC2\x85"
                     "d\re"}));
  EXPECT_EQ(split_records("\xEF\xBB\xBF"
                          "a\n"),
            (Records{"a"}))
      << "a byte-order mark is not data";
  EXPECT_EQ(split_records("\n"), (Records{""}));
  EXPECT_EQ(split_records("a\r"), (Records{"a\r"})) << "only CR LF ends a line";
  EXPECT_EQ(split_records(""), Records{});
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(byte_tokenizer()->decode(byte_tokenizer()->encode(all)), all)
      << "invalid UTF-8 survives";
}

TEST(ByteTokenizer, HasTheBytesAsIds) {
  const auto tokenizer = byte_tokenizer();
  EXPECT_EQ(tokenizer->vocab(), 256);
  EXPECT_EQ(tokenizer->encode("a\xFF"), (std::vector<int32_t>{97, 255}));
  EXPECT_THROW(tokenizer->decode({256}), UsageError);
  EXPECT_THROW(tokenizer->decode({-1}), UsageError);
}

TEST(CharTokenizer, SortsItsCharactersByCodePoint) {
  const auto tokenizer = char_tokenizer(
      "ba\xC3\xA9\n\xF0\x9F\x98\x80\xFF"
      "ab");  // b a é newline 😀 stray
  EXPECT_EQ(tokenizer->vocab(), 6);
  EXPECT_EQ(tokenizer->encode("\n"
                              "ab\xC3\xA9\xF0\x9F\x98\x80\xFF"),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(tokenizer->decode({3, 5, 4}), "\xC3\xA9\xFF\xF0\x9F\x98\x80");
  EXPECT_THROW(tokenizer->decode({6}), UsageError);
}

TEST(CharTokenizer, NamesTheCharacterItLacks) {
  const auto error = [](std::string_view text) -> std::string {
    try {
      char_tokenizer("ab")->encode(text);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(
      error("ab\xC3\xA9"),
      "[data.encode] U+00E9 '\xC3\xA9' at byte 2 is not among the 2 characters of the vocabulary");
  EXPECT_EQ(error("\n"),
            "[data.encode] U+000A at byte 0 is not among the 2 characters of the vocabulary");
  EXPECT_EQ(error("\xFE"),
            "[data.encode] byte 0xFE at byte 0 is not among the 2 characters of the vocabulary");
}

TEST(CharTokenizer, TreatsInvalidUtf8AsSingleBytes) {
  // Overlong '/', a surrogate, beyond U+10FFFF, a lone continuation, a truncated sequence.
  for (const std::string text :
       {"\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xE2\x82"}) {
    const auto tokenizer = char_tokenizer(text);
    EXPECT_EQ(tokenizer->encode(text).size(), text.size());
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(CharTokenizer, GivesAnyBytesBack) {
  // Bytes that make valid, broken and overlapping sequences likely.
  constexpr std::string_view kBytes =
      "a\x7F\x80\xBF\xC3\xA9\xE2\x82\xAC\xED\xA0\xF0\x9F\x98\xF4\x8F\xFF";
  const Random random(1, RandomStream::tests);
  uint64_t at = 0;
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text.push_back(kBytes[random.below(kBytes.size(), at++)]);
    const auto tokenizer = char_tokenizer(text);
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    ASSERT_EQ(tokenizer_from_json(tokenizer->to_json())->encode(text), tokenizer->encode(text));
  }
}

TEST(Tokenizer, ComesBackFromItsDescription) {
  const auto bytes = tokenizer_from_json(byte_tokenizer()->to_json());
  EXPECT_EQ(bytes->name(), "byte");
  const auto chars = tokenizer_from_json(char_tokenizer("hello\xFF")->to_json());
  EXPECT_EQ(chars->name(), "char");
  EXPECT_EQ(chars->vocab(), 5);
  EXPECT_EQ(chars->decode(chars->encode("hello\xFF")), "hello\xFF");
}

TEST(Tokenizer, RefusesAMalformedDescription) {
  for (const char* json :
       {"", "[]", "{}", R"({"tokenizer":1})", R"({"tokenizer":"word"})", R"({"tokenizer":"char"})",
        R"({"tokenizer":"char","symbols":[]})", R"({"tokenizer":"char","symbols":[2,1]})",
        R"({"tokenizer":"char","symbols":[1,1]})", R"({"tokenizer":"char","symbols":[-1]})",
        R"({"tokenizer":"char","symbols":[1.5]})", R"({"tokenizer":"char","symbols":[55296]})",
        R"({"tokenizer":"char","symbols":[1114112]})",
        R"({"tokenizer":"char","symbols":[1114368]})", R"({"tokenizer":"char","symbols":["a"]})",
        R"({"tokenizer":"char")"})
    EXPECT_NE(file_error([&] { tokenizer_from_json(json); }), "") << json;
}

TEST(CharTokenizer, NeedsSomeText) { EXPECT_THROW(char_tokenizer(""), UsageError); }

}  // namespace
}  // namespace lockstep::data
