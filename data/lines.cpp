#include "data/lines.h"

#include "core/check.h"
#include "core/parallel.h"

#include <algorithm>
#include <cstring>

namespace lockstep::data {
namespace {

constexpr int64_t kPad = 16;                       // readable bytes after the last one
constexpr int64_t kChunk = int64_t{1} << 18;       // read at once: stays in the second-level cache
constexpr int64_t kIndexChunk = int64_t{1} << 22;  // of a piece, while lines are counted
constexpr size_t kMostPlaces = size_t{1} << 22;

const char* find_line_end(const char* begin, int64_t bytes) {
  return static_cast<const char*>(std::memchr(begin, '\n', static_cast<size_t>(bytes)));
}

}  // namespace

int64_t data_begin(const File& file) {
  char mark[3] = {};
  if (file.size() < 3) return 0;
  file.read_at(0, mark, 3);
  return std::string_view(mark, 3) == "\xEF\xBB\xBF" ? 3 : 0;
}

LineReader::LineReader(const File& file, int64_t begin, int64_t end, std::vector<char>& buffer,
                       From from)
    : file_(file), position_(begin), end_(end), size_(file.size()), buffer_(buffer) {
  if (end > size_)
    throw SystemError(Fault::file, fmt::format("{} became shorter; expected {} bytes, got {}",
                                               printable(file.path()), end, size_));
  if (buffer_.empty()) buffer_.resize(kChunk + kPad);
  // The byte before may be the line end that is looked for.
  if (from == From::middle && begin > data_begin(file)) {
    --position_;
    done_ = !skip_line_end(end);
  }
}

void LineReader::refill() {
  std::memmove(buffer_.data(), buffer_.data() + head_, static_cast<size_t>(tail_ - head_));
  tail_ -= head_;
  searched_ -= head_;
  head_ = 0;
  const auto room = [&] { return static_cast<int64_t>(buffer_.size()) - kPad - tail_; };
  if (room() == 0) buffer_.resize(std::min<size_t>(2 * buffer_.size(), kLongestLine + kPad));
  // Not beyond `end_`, but for the rest of the last line.
  const int64_t wanted = position_ < end_ ? end_ - position_ : kChunk / 4;
  const int64_t bytes = std::min({room(), wanted, size_ - position_, kChunk});
  file_.read_at(position_, buffer_.data() + tail_, bytes);
  position_ += bytes;
  tail_ += bytes;
}

bool LineReader::skip_line_end(int64_t limit) {
  for (;;) {
    if (const char* found = find_line_end(buffer_.data() + head_, tail_ - head_)) {
      head_ = searched_ = found + 1 - buffer_.data();
      return true;
    }
    head_ = searched_ = tail_ = 0;
    if (position_ >= std::min(limit, size_)) return false;
    refill();
  }
}

bool LineReader::next(Line& line) {
  if (skipping_) done_ = !skip_line_end(size_);
  skipping_ = false;
  while (!done_ && head_offset() < end_) {
    const char* begin = buffer_.data() + head_;
    if (const char* found = find_line_end(buffer_.data() + searched_, tail_ - searched_)) {
      const bool cr = found > begin && found[-1] == '\r';
      line = {begin, found - (cr ? 1 : 0), true};
      head_ = searched_ = found + 1 - buffer_.data();
      return true;
    }
    searched_ = tail_;
    if (position_ == size_) {
      done_ = true;
      if (head_ == tail_) return false;
      std::memset(buffer_.data() + tail_, 0, kPad);
      line = {begin, buffer_.data() + tail_, true};
      return true;
    }
    if (tail_ - head_ >= kLongestLine) {
      line = {begin, begin + kLongestLine, false};
      skipping_ = true;
      head_ = searched_ = tail_;
      return true;
    }
    refill();
  }
  return false;
}

LineIndex::LineIndex(const File& file, int64_t begin, const std::function<void(int64_t)>& progress)
    : size_(file.size()) {
  if (begin >= size_) return;
  add(begin);
  struct Piece {
    std::vector<char> bytes;
    std::vector<int32_t> ends;  // of lines
  };
  const int64_t pieces = parallel_pieces(size_ - begin, kIndexChunk);
  std::vector<Piece> wave(pieces);
  int64_t last = begin - 1;  // the last line end
  for (int64_t at = begin; at < size_; at += pieces * kIndexChunk) {
    parallel_for(pieces, 1, [&](int64_t from, int64_t to) {
      for (int64_t p = from; p < to; ++p) {
        Piece& piece = wave[p];
        piece.ends.clear();
        const int64_t offset = at + p * kIndexChunk, bytes = std::min(kIndexChunk, size_ - offset);
        if (bytes <= 0) continue;
        piece.bytes.resize(kIndexChunk);
        file.read_at(offset, piece.bytes.data(), bytes);
        const char *data = piece.bytes.data(), *next = data;
        while (const char* found = find_line_end(next, bytes - (next - data))) {
          piece.ends.push_back(static_cast<int32_t>(found - data));
          next = found + 1;
        }
      }
    });
    for (int64_t p = 0; p < pieces; ++p) {
      const auto& ends = wave[p].ends;
      const auto count = static_cast<int64_t>(ends.size());
      const int64_t offset = at + p * kIndexChunk;
      // Line number lines_ + i + 1 begins after the i-th of them.
      for (int64_t i = stride_ - 1 - lines_ % stride_; i < count;) {
        add(offset + ends[i] + 1);
        i += stride_ - (lines_ + i + 1) % stride_;
      }
      lines_ += count;
      if (count > 0) last = offset + ends.back();
    }
    if (progress) progress(std::min(at + pieces * kIndexChunk, size_));
  }
  if (last < size_ - 1) ++lines_;
}

// Of the next multiple of the stride. When there are too many, every other one goes.
void LineIndex::add(int64_t offset) {
  places_.push_back(offset);
  if (places_.size() < kMostPlaces) return;
  for (size_t i = 0; 2 * i < places_.size(); ++i) places_[i] = places_[2 * i];
  places_.resize((places_.size() + 1) / 2);
  stride_ *= 2;
}

LineIndex::Place LineIndex::before(int64_t line) const {
  const int64_t i = std::min(line / stride_, static_cast<int64_t>(places_.size()) - 1);
  return {i * stride_, places_[i]};
}

int64_t LineIndex::offset_after(int64_t line) const {
  const auto i = static_cast<size_t>((line + stride_ - 1) / stride_);
  return i < places_.size() ? places_[i] : size_;
}

}  // namespace lockstep::data
