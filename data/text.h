#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// The whole file, bytes as they are; a UTF-8 byte-order mark in front is not data and is left out.
/// SystemError(file) when it is missing, a directory, unreadable, holds no data or more than
/// `longest` bytes (which may be a pipe without an end).
std::string read_text(const std::string& path, int64_t longest = INT64_MAX);

/// Lines of `text`, without copies: each ends with LF or CR LF, neither of which belongs to it, or
/// with the text. Nothing else separates (a lone CR, VT, FF, U+0085, U+2029 do not). Empty lines
/// are kept; a byte-order mark in front is left out.
std::vector<std::string_view> split_records(std::string_view text);

/// A text as token ids, one byte or one character each.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;  ///< "byte", "char"
  virtual int64_t vocab() const = 0;
  /// A character that the vocabulary lacks is a UsageError naming it.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The inverse of encode, byte for byte. An id outside the vocabulary is a UsageError.
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  /// What to store beside a model, and back.
  virtual std::string to_json() const = 0;
};
/// 256 tokens, the bytes; any text can be encoded.
std::unique_ptr<Tokenizer> byte_tokenizer();
/// Vocabulary: the distinct characters (Unicode code points; a byte that is not valid UTF-8 stands
/// for itself) of `text`, sorted by code point, stray bytes last.
std::unique_ptr<Tokenizer> char_tokenizer(std::string_view text);
/// SystemError(file) when the text is not what to_json() writes.
std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& json);

}  // namespace lockstep::data
