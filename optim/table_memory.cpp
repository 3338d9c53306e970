#include "optim/table_memory.h"

#include "optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

// Adds up what an object would save.
class CountBytes final : public StateIo {
 public:
  void flat(const std::string&, Tensor& value, Fold) override { bytes += value.bytes(); }
  void value(const std::string&, int64_t&, Fold) override {}
  void value(const std::string&, double&, Fold) override {}
  int64_t bytes = 0;
};

int64_t sum(std::span<const int64_t> rows) {
  int64_t all = 0;
  for (const int64_t n : rows) all = checked_add(all, n);
  return all;
}

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.3g} GB", static_cast<double>(bytes) * 1e-9);
}

}  // namespace

int64_t TableMemory::all() const { return checked_add(weights, state); }

TableMemory table_memory(std::span<const int64_t> rows, int64_t width, const Spec& optimizer) {
  // State is per row, so that one row tells.
  CountBytes row;
  make_table_optimizer(optimizer, zeros({1, width}), {})->state(row);
  const int64_t all = sum(rows);
  return {.weights = checked_mul(checked_mul(all, width), int64_t{sizeof(float)}),
          .state = checked_mul(all, row.bytes)};
}

void expect_tables_fit(std::span<const int64_t> rows, int64_t width, const Spec& optimizer,
                       int64_t available, const TableHolding& holding) {
  const TableMemory memory = table_memory(rows, width, optimizer);
  const int64_t counts = checked_mul(sum(rows), holding.count_bytes);
  const int64_t needed = checked_mul(checked_add(memory.all(), counts), holding.copies);
  if (needed <= available) return;
  throw SystemError(
      Fault::device,
      fmt::format(
          "[optim.table_memory] {} tables with {} rows x {} x 4 B = {}, state of {} {}{}{}; "
          "expected at most the {} of this machine, got {}; fewer or narrower rows, or "
          "optimizers with less state (sgd, rowwise_adagrad), need less",
          rows.size(), sum(rows), width, gigabytes(memory.weights), optimizer.name(),
          gigabytes(memory.state),
          counts > 0 ? fmt::format(", counts of updates {}", gigabytes(counts)) : "",
          holding.copies > 1 ? fmt::format(", on each of {} ranks", holding.copies) : "",
          gigabytes(available), gigabytes(needed)));
}

}  // namespace lockstep::optim
