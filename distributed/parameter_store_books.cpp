// What a parameter service keeps over a stop, and what it tells.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/check.h"
#include "distributed/parameter_store.h"

namespace lockstep::distributed {

void ParameterStore::state(StateIo& io) {
  check(std::ranges::all_of(workers_, [](const Worker& w) { return w.pushed == Worker::nothing; }),
        "[service.state] gradients of clock {} wait for others", open_);
  io.flat("service.parameters", view_.param, Fold::replicated);
  optimizer_->state(io);
  const auto all = [&](const std::string& name, auto& number) {
    io.value("service." + name, number, Fold::replicated);
  };
  all("steps", statistics_.steps);
  all("overflowed", statistics_.overflowed);
  all("max_ahead", statistics_.max_ahead);
  all("open", open_);
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    Worker& worker = workers_[rank];
    WorkerStatistics& counts = statistics_.workers[rank];
    const auto its = [&](const char* name, auto& number) {
      all(fmt::format("worker.{}.{}", rank, name), number);
    };
    int64_t here = worker.here ? 1 : 0;
    its("here", here);
    worker.here = here != 0;
    its("next", worker.next);
    its("running", worker.running);
    its("pulled", worker.pulled);
    its("accepted", counts.accepted);
    its("late", counts.late);
    its("dropped", counts.dropped);
    its("not_finite", counts.not_finite);
    its("empty", counts.empty);
    its("duplicate", counts.duplicate);
    its("skipped", counts.skipped);
    its("lost_weight", counts.lost_weight);
    Tensor bins = from_values(counts.staleness);
    io.flat(fmt::format("service.worker.{}.staleness", rank), bins, Fold::replicated);
    counts.staleness = values<int64_t>(bins);
    if (worker.seen.defined())
      io.flat(fmt::format("service.worker.{}.seen", rank), worker.seen, Fold::replicated);
  }
}

namespace {

// Columns before the bins of staleness
constexpr int64_t kHead = 8;

}  // namespace

Tensor statistics_tensor(int workers) {
  return zeros({workers + 1, kHead + WorkerStatistics::kBins}, DType::i64);
}

void ParameterStore::report(const Tensor& out) const {
  const int64_t columns = kHead + WorkerStatistics::kBins;
  check(out.dtype() == DType::i64 &&
            out.numel() == static_cast<int64_t>(workers_.size() + 1) * columns,
        "[service.statistics] expected the room of statistics_tensor(), got {}", out);
  int64_t* row = out.mutable_data<int64_t>();
  for (const WorkerStatistics& w : statistics_.workers) {
    const int64_t head[kHead] = {w.accepted,
                                 w.late,
                                 w.dropped,
                                 w.not_finite,
                                 w.empty,
                                 w.duplicate,
                                 std::bit_cast<int64_t>(w.lost_weight),
                                 w.skipped};
    std::ranges::copy(head, row);
    std::ranges::copy(w.staleness, row + kHead);
    row += columns;
  }
  row[0] = statistics_.steps;
  row[1] = statistics_.overflowed;
  row[2] = statistics_.max_ahead;
}

ServiceStatistics read_statistics(const Tensor& rows) {
  const int64_t columns = kHead + WorkerStatistics::kBins;
  ServiceStatistics statistics;
  const int64_t* row = rows.data<int64_t>();
  for (int64_t worker = 0; worker + 1 < rows.size(0); ++worker, row += columns) {
    WorkerStatistics w;
    w.accepted = row[0];
    w.late = row[1];
    w.dropped = row[2];
    w.not_finite = row[3];
    w.empty = row[4];
    w.duplicate = row[5];
    w.lost_weight = std::bit_cast<double>(row[6]);
    w.skipped = row[7];
    w.staleness.assign(row + kHead, row + columns);
    statistics.workers.push_back(std::move(w));
  }
  statistics.steps = row[0];
  statistics.overflowed = row[1];
  statistics.max_ahead = row[2];
  return statistics;
}

}  // namespace lockstep::distributed
