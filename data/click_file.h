#pragma once
#include "data/bad_row_log.h"
#include "data/click_row.h"
#include "data/clicks.h"

#include <functional>
#include <memory>

namespace lockstep::data {

/// The columns of a file: TAB or comma between them, whichever its first lines have more of. A
/// first line that begins with a letter is a header `label,I1,…,C1,…` and not data; without one the
/// columns are Criteo's. SystemError(file) for a header that is neither, and for an empty file.
struct ClickFileHead {
  ClickColumns columns;
  int64_t first_byte = 0;    ///< of the data
  int64_t header_lines = 0;  ///< 0 or 1
};
ClickFileHead read_click_head(const File& file);

/// Clicks in a text file, one a line: Criteo's (label, 13 integers, 26 hexadecimal categories, TAB
/// between them), the same as CSV, with other numbers of columns where a header says so. Lines end
/// with LF or CR LF, the last one may lack it, a byte-order mark is no data.
///
/// Samples are numbered by line, so a malformed line leaves its number unused instead of changing
/// those of others: ranks need not know of each other's. The last lines are held out, those being
/// the latest clicks in logs. The file is read through small buffers, at the places that an index
/// of its lines gives (one quick pass when it is opened); what is kept in memory does not grow with
/// it.
class ClickFile final : public ClickSource {
 public:
  struct Options {
    std::string path;
    int64_t hash_rows = 1'000'000;  ///< of every table
    Categories categories = Categories::hexadecimal;
    BadRows bad_rows = BadRows::stop;
    double held_out = 0.1;  ///< share of the lines, 0 <= share < 1
    std::function<void(int64_t done, int64_t total)> progress = {};  ///< bytes, while indexing
  };
  /// SystemError(file) when it cannot be read, has no line for training, or would be skipped from
  /// its beginning on.
  explicit ClickFile(const Options& options);

  const ClickSchema& schema() const override { return schema_; }
  int64_t samples() const override { return index_->lines() - held_out_; }
  int64_t held_out() const override { return held_out_; }
  /// As they stand in the file, which is read once an epoch from its beginning to its end. Any
  /// order works; single lines cost a read each.
  SamplerOptions::Order order() const override { return SamplerOptions::Order::sequential; }
  void fill(std::span<const int64_t> samples, ClickBuffer& to) const override;
  BadRowReport bad_rows() const override { return bad_rows_.report(); }

 private:
  struct Rows {
    float *labels, *dense;
    int32_t* rows;  // [B, T]
    uint8_t* valid;
  };
  void check_beginning() const;
  void read(std::span<const int64_t> samples, std::vector<char>& buffer, Rows to) const;

  File file_;
  ClickFileHead head_;
  std::unique_ptr<LineIndex> index_;
  int64_t held_out_ = 0;
  ClickSchema schema_;
  std::unique_ptr<ClickRowParser> parser_;
  mutable BadRowLog bad_rows_;
};

}  // namespace lockstep::data
