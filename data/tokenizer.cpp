#include "data/text.h"

#include "core/check.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace lockstep::data {
namespace {

// A symbol is a Unicode code point or, from kStray on, a byte that is no part of valid UTF-8. So
// every text is a sequence of symbols, and writing the symbols gives the text back.
using Symbol = uint32_t;
constexpr Symbol kStray = 0x110000;

// Takes the first symbol off `text`, which must not be empty. Overlong forms, surrogates and values
// beyond U+10FFFF are not valid (RFC 3629).
Symbol next_symbol(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80       ? 1
                        : lead >> 5 == 6  ? 2
                        : lead >> 4 == 14 ? 3
                        : lead >> 3 == 30 ? 4
                                          : 0;
  Symbol symbol = length < 2 ? lead : lead & (0x7Fu >> length);
  bool valid = length != 0 && length <= text.size();
  for (size_t i = 1; valid && i < length; ++i) {
    valid = (byte(i) & 0xC0) == 0x80;
    symbol = symbol << 6 | (byte(i) & 0x3Fu);
  }
  constexpr Symbol kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  valid =
      valid && symbol >= kLeast[length] && symbol < kStray && (symbol < 0xD800 || symbol > 0xDFFF);
  text.remove_prefix(valid ? length : 1);
  return valid ? symbol : kStray + lead;
}

void append(std::string& text, Symbol s) {
  const auto put = [&](Symbol byte) { text.push_back(static_cast<char>(byte)); };
  if (s >= kStray) return put(s - kStray);
  if (s < 0x80) return put(s);
  if (s < 0x800) {
    put(0xC0 | s >> 6);
  } else if (s < 0x10000) {
    put(0xE0 | s >> 12);
    put(0x80 | (s >> 6 & 0x3F));
  } else {
    put(0xF0 | s >> 18);
    put(0x80 | (s >> 12 & 0x3F));
    put(0x80 | (s >> 6 & 0x3F));
  }
  put(0x80 | (s & 0x3F));
}

std::string describe(Symbol s) {
  if (s >= kStray) return fmt::format("byte 0x{:02X}", s - kStray);
  std::string text = fmt::format("U+{:04X}", s);
  if (s > 0x20 && s != 0x7F && !(s >= 0x80 && s < 0xA0)) {
    text += " '";
    append(text, s);
    text += "'";
  }
  return text;
}

void check_id(int32_t id, int64_t vocab) {
  check(id >= 0 && id < vocab, "[data.decode] token id; expected 0..{}, got {}", vocab - 1, id);
}

class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  int64_t vocab() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids(text.size());
    std::transform(text.begin(), text.end(), ids.begin(),
                   [](char c) { return static_cast<unsigned char>(c); });
    return ids;
  }
  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (int32_t id : ids) {
      check_id(id, vocab());
      text.push_back(static_cast<char>(id));
    }
    return text;
  }
  std::string to_json() const override { return R"({"tokenizer":"byte"})"; }
};

class CharTokenizer final : public Tokenizer {
 public:
  // `symbols` sorted, without repetition.
  explicit CharTokenizer(std::vector<Symbol> symbols) : symbols_(std::move(symbols)) {
    for (Symbol s = 0; s < ascii_.size(); ++s) ascii_[s] = find(s);
  }
  std::string name() const override { return "char"; }
  int64_t vocab() const override { return static_cast<int64_t>(symbols_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    const size_t length = text.size();
    while (!text.empty()) {
      const size_t at = length - text.size();
      const Symbol s = next_symbol(text);
      const int32_t id = s < ascii_.size() ? ascii_[s] : find(s);
      if (id < 0)  // a check() would describe every character
        throw UsageError(fmt::format(
            "[data.encode] {} at byte {} is not among the {} characters of the vocabulary",
            describe(s), at, symbols_.size()));
      ids.push_back(id);
    }
    return ids;
  }
  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (int32_t id : ids) {
      check_id(id, vocab());
      append(text, symbols_[id]);
    }
    return text;
  }
  std::string to_json() const override {
    return nlohmann::json{{"tokenizer", "char"}, {"symbols", symbols_}}.dump();
  }

 private:
  int32_t find(Symbol s) const {
    const auto at = std::lower_bound(symbols_.begin(), symbols_.end(), s);
    return at != symbols_.end() && *at == s ? static_cast<int32_t>(at - symbols_.begin()) : -1;
  }
  std::vector<Symbol> symbols_;
  std::array<int32_t, 128> ascii_;
};

[[noreturn]] void malformed(const std::string& what) {
  throw SystemError(Fault::file, fmt::format("[data.tokenizer] malformed description: {}", what));
}

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> char_tokenizer(std::string_view text) {
  check(!text.empty(), "[data.char_tokenizer] expected some text, got none");
  std::vector<bool> seen(kStray + 256);
  while (!text.empty()) seen[next_symbol(text)] = true;
  std::vector<Symbol> symbols;
  for (Symbol s = 0; s < seen.size(); ++s)
    if (seen[s]) symbols.push_back(s);
  return std::make_unique<CharTokenizer>(std::move(symbols));
}

std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& json) {
  const auto parsed = nlohmann::json::parse(json, nullptr, false);
  if (!parsed.is_object()) malformed("expected a JSON object");
  const auto kind = parsed.find("tokenizer");
  if (kind == parsed.end() || !kind->is_string()) malformed("expected a string \"tokenizer\"");
  if (*kind == "byte") return byte_tokenizer();
  if (*kind != "char") malformed(fmt::format("expected byte or char, got {}", kind->dump()));
  const auto list = parsed.find("symbols");
  if (list == parsed.end() || !list->is_array() || list->empty())
    malformed("expected a list \"symbols\"");
  std::vector<Symbol> symbols;
  for (const auto& item : *list) {
    const uint64_t value = item.is_number_unsigned() ? item.get<uint64_t>() : UINT64_MAX;
    const bool point = value < 0xD800 || (value > 0xDFFF && value < kStray);
    const bool stray = value >= kStray + 0x80 && value < kStray + 0x100;
    if (!(point || stray) || (!symbols.empty() && value <= symbols.back()))
      malformed(fmt::format("expected code points and stray bytes in ascending order, got {}",
                            item.dump()));
    symbols.push_back(static_cast<Symbol>(value));
  }
  return std::make_unique<CharTokenizer>(std::move(symbols));
}

}  // namespace lockstep::data
