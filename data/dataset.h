#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace lockstep::data {

/// A batch of token windows: inputs and the next tokens, i32 [B, T]. `first_sample` numbers the first
/// row within the step's global batch (dropout is keyed by it).
struct TokenBatch {
  Tensor inputs, targets;
  int64_t first_sample = 0;
  int64_t rows() const { return inputs.defined() ? inputs.size(0) : 0; }
  int64_t tokens() const { return inputs.defined() ? inputs.numel() : 0; }
};

/// A text as token ids, one byte or one character each.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;  ///< "byte", "char"
  virtual int64_t vocab() const = 0;
  /// A character that the vocabulary lacks is a UsageError naming it.
  virtual std::vector<int32_t> encode(const std::string& text) const = 0;
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  /// What to store beside a model, and back.
  virtual std::string to_json() const = 0;
};
std::unique_ptr<Tokenizer> byte_tokenizer();
/// Vocabulary: the distinct characters (Unicode code points; a byte that is not valid UTF-8 stands
/// for itself) of `text`, sorted.
std::unique_ptr<Tokenizer> char_tokenizer(const std::string& text);
std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& json);

/// The whole file; SystemError(file) when missing, unreadable, a directory or empty.
std::string read_text(const std::string& path);

/// Token windows of length T: N tokens have N - T of them, the last one's final target being the
/// last token. UsageError… SystemError(file) when N <= T, saying both.
class TokenWindows {
 public:
  TokenWindows(std::vector<int32_t> tokens, int64_t context);
  int64_t count() const { return static_cast<int64_t>(tokens_.size()) - context_; }
  int64_t context() const { return context_; }
  /// Copies window `start` into row `row` of a batch.
  void copy_to(int64_t start, const TokenBatch& batch, int64_t row) const;
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  std::vector<int32_t> tokens_;
  int64_t context_;
};

}  // namespace lockstep::data
