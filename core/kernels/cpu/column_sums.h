#pragma once
#include "core/kernels/cpu/host.h"

namespace lockstep::cpu {

/// Sums over the rows of a parallel_for: each piece adds rows into its own f32 line, which goes
/// into doubles every kBlock rows, so that long sums neither stall nor drift; the pieces are added
/// in order at the end. The result is a function of rows, grain and thread budget.
class ColumnSums {
 public:
  ColumnSums(int64_t rows, int64_t columns, int64_t grain)
      : columns_(columns),
        pieces_(parallel_pieces(rows, grain)),
        lines_(pieces_ * columns),
        totals_(pieces_ * columns),
        counts_(pieces_) {
    std::fill_n(lines_.data(), pieces_ * columns, 0.0f);
    std::fill_n(totals_.data(), pieces_ * columns, 0.0);
    std::fill_n(counts_.data(), pieces_, int64_t{0});
  }

  /// Where the piece adds its next row.
  float* line(int piece) { return lines_.data() + piece * columns_; }
  /// To be called after each row.
  void row_done(int piece) {
    if (++counts_[piece] % kBlock == 0) flush(piece);
  }
  /// Columns [begin, end) of the sum. Once all rows are done.
  void store(float* out, int64_t begin, int64_t end) {
    for (int piece = 0; piece < pieces_; ++piece) flush(piece);
    for (int64_t c = begin; c < end; ++c) {
      double sum = 0;
      for (int piece = 0; piece < pieces_; ++piece) sum += totals_[piece * columns_ + c];
      out[c - begin] = static_cast<float>(sum);
    }
  }

 private:
  static constexpr int64_t kBlock = 64;
  void flush(int piece) {
    float* from = line(piece);
    double* to = totals_.data() + piece * columns_;
    for (int64_t c = 0; c < columns_; ++c) {
      to[c] += from[c];
      from[c] = 0;
    }
  }

  int64_t columns_;
  int pieces_;
  Scratch<float> lines_;
  Scratch<double> totals_;
  Scratch<int64_t> counts_;
};

}  // namespace lockstep::cpu
