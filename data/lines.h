#pragma once
#include "core/file.h"

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// A line of a file without its end (LF or CR LF; the last one may have none). The byte at `end`
/// and the seven after it may be read: they are an end of line or zeros and then anything.
struct Line {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool whole = true;  ///< false: longer than kLongestLine, and only its beginning is here
  std::string_view text() const { return {begin, static_cast<size_t>(end - begin)}; }
};

constexpr int64_t kLongestLine = int64_t{1} << 20;

/// Where the data of a file begin: after a UTF-8 byte-order mark, if there is one.
int64_t data_begin(const File& file);

/// The lines that begin in [begin, end) of a file, begin <= end <= its size, in a bounded buffer
/// however long they are. A file that became shorter is a SystemError, not a signal as it would be
/// if it were mapped.
class LineReader {
 public:
  enum class From {
    line,    ///< a line begins at `begin`
    middle,  ///< perhaps none does: the first one is that after the next line end
  };
  LineReader(const File& file, int64_t begin, int64_t end, std::vector<char>& buffer,
             From from = From::line);
  /// The next line, valid until the next call; false when there is none.
  bool next(Line& line);

 private:
  int64_t head_offset() const { return position_ - (tail_ - head_); }
  void refill();
  // Forgets everything up to and including the next line end; false when the file, or for a
  // `limit` that part of it, ends before.
  bool skip_line_end(int64_t limit);

  const File& file_;
  int64_t position_, end_, size_;  // of the next byte to read; where lines may begin; of the file
  std::vector<char>& buffer_;
  int64_t head_ = 0, tail_ = 0, searched_ = 0;  // unread bytes in the buffer
  bool skipping_ = false, done_ = false;
};

/// How many lines a file has and where they are: the place of every 64th line, or of fewer in files
/// of more than 2^28 lines, so that it stays below 64 MB. Counts with the calling thread's budget.
class LineIndex {
 public:
  /// `progress` is called now and then with the bytes that are done.
  LineIndex(const File& file, int64_t begin, const std::function<void(int64_t)>& progress = {});
  int64_t lines() const { return lines_; }
  struct Place {
    int64_t line, offset;
  };
  /// The last known place that is not behind `line`.
  Place before(int64_t line) const;
  /// The first known offset that is not before `line`, or the file's size.
  int64_t offset_after(int64_t line) const;

 private:
  void add(int64_t offset);
  int64_t lines_ = 0, stride_ = 64, size_;
  std::vector<int64_t> places_;  // of lines 0, stride, 2·stride, …
};

}  // namespace lockstep::data
