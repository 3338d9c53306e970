#pragma once
#include "data/sampler.h"

#include "core/tensor.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

/// What a source's samples look like: F dense features and one bag of rows for each of T tables.
struct ClickSchema {
  int64_t dense = 0;                ///< F
  std::vector<int64_t> table_rows;  ///< of each table, 1 … 2^31 - 1
  int64_t largest_bag = 1;          ///< rows; 1: every bag has exactly one
  bool weighted = false;            ///< each row of a bag has a weight
  int64_t tables() const { return static_cast<int64_t>(table_rows.size()); }
  /// UsageError for what no table can have.
  void check_sizes() const;
};

/// B samples. Bags are ordered by table, then sample: bag (t, b) is
/// rows[offsets[t·B + b] … offsets[t·B + b + 1]).
struct ClickBatch {
  Tensor dense;    ///< f32 [B, F]; undefined without dense features
  Tensor rows;     ///< i32 [N], each within its table
  Tensor offsets;  ///< i32 [T·B + 1]; undefined where every bag has one row, so that N = T·B
  Tensor weights;  ///< f32 [N]; undefined where all are 1
  Tensor labels;   ///< f32 [B], 0 or 1
  int64_t step = 0;
  int64_t first_sample = 0;  ///< position of the first within the step's global batch
  int64_t samples() const { return labels.defined() ? labels.size(0) : 0; }
};

/// Memory for batches of up to a number of samples, used again and again.
class ClickBuffer {
 public:
  ClickBuffer(const ClickSchema& schema, int64_t most_samples);
  /// Sets the batch's sizes: B samples that hold N rows altogether (T·B where bags have one row).
  ClickBatch& resize(int64_t samples, int64_t rows);
  ClickBatch& batch() { return batch_; }
  const ClickBatch& batch() const { return batch_; }
  int64_t most_samples() const { return whole_.samples(); }
  /// For readers, which know what a sample holds before they know its place.
  std::vector<int32_t> scratch_rows;
  std::vector<uint8_t> scratch_valid;
  std::vector<std::vector<char>> scratch_text;

 private:
  ClickBatch whole_, batch_;
};

/// Malformed rows that were met and left out.
struct BadRowReport {
  int64_t count = 0;               ///< each once, however often it was read
  std::vector<std::string> first;  ///< "line 17: expected 40 columns, got 39", the lowest lines met
};

/// Where clicks come from. A sample is a pure function of the source and its number, so any split
/// of a batch over ranks and micro-batches, and any resumed run, sees the same ones.
///
/// Training samples are numbered 0 … samples() - 1; the next held_out() numbers are for validation
/// and no others are. fill() may be called from several threads at once, each with its own buffer.
class ClickSource {
 public:
  using Buffer = ClickBuffer;
  virtual ~ClickSource() = default;
  virtual const ClickSchema& schema() const = 0;
  virtual int64_t samples() const = 0;
  virtual int64_t held_out() const = 0;
  /// In which order a training run should go through them.
  virtual SamplerOptions::Order order() const = 0;
  /// Puts these samples into the buffer's batch, in this order, using the calling thread's budget
  /// of threads. Samples that are malformed rows of a file are left out, so the batch may have
  /// fewer than asked for; or, under BadRows::stop, are a SystemError(file).
  virtual void fill(std::span<const int64_t> samples, ClickBuffer& to) const = 0;
  virtual BadRowReport bad_rows() const { return {}; }
};

/// What to do about a malformed row of a file.
enum class BadRows { stop, skip };

}  // namespace lockstep::data
