#include "data/clicks.h"

#include "core/check.h"

namespace lockstep::data {

void ClickSchema::check_sizes() const {
  check(dense >= 0, "[data.clicks] dense features; expected at least 0, got {}", dense);
  check(tables() >= 1, "[data.clicks] tables; expected at least 1, got {}", tables());
  for (const int64_t rows : table_rows)
    check(rows >= 1 && rows <= INT32_MAX, "[data.clicks] rows of a table; expected 1..{}, got {}",
          INT32_MAX, rows);
  check(largest_bag >= 1, "[data.clicks] rows of a bag; expected at least 1, got {}", largest_bag);
}

ClickBuffer::ClickBuffer(const ClickSchema& schema, int64_t most_samples) {
  schema.check_sizes();
  check(most_samples >= 1, "[data.clicks] samples; expected at least 1, got {}", most_samples);
  const int64_t bags = checked_mul(schema.tables(), most_samples);
  const int64_t rows = checked_mul(bags, schema.largest_bag);
  check(rows < INT32_MAX, "[data.clicks] rows of a batch; expected fewer than 2^31 - 1, got {}",
        rows);
  if (schema.dense > 0) whole_.dense = Tensor::empty({most_samples, schema.dense});
  whole_.rows = Tensor::empty({rows}, DType::i32);
  if (schema.largest_bag > 1) whole_.offsets = Tensor::empty({bags + 1}, DType::i32);
  if (schema.weighted) whole_.weights = Tensor::empty({rows});
  whole_.labels = Tensor::empty({most_samples});
  batch_ = whole_;
}

ClickBatch& ClickBuffer::resize(int64_t samples, int64_t rows) {
  check(samples >= 0 && samples <= most_samples(), "[data.clicks] samples; expected 0..{}, got {}",
        most_samples(), samples);
  if (samples != batch_.samples()) {
    if (whole_.dense.defined()) batch_.dense = whole_.dense.slice(0, samples);
    if (whole_.offsets.defined()) {
      const int64_t tables = (whole_.offsets.numel() - 1) / most_samples();
      batch_.offsets = whole_.offsets.slice(0, tables * samples + 1);
    }
    batch_.labels = whole_.labels.slice(0, samples);
  }
  if (rows != batch_.rows.size(0)) {
    batch_.rows = whole_.rows.slice(0, rows);
    if (whole_.weights.defined()) batch_.weights = whole_.weights.slice(0, rows);
  }
  return batch_;
}

}  // namespace lockstep::data
