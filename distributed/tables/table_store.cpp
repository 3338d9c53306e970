#include "distributed/tables/table_store.h"

#include "core/check.h"
#include "distributed/packed_state.h"
#include "distributed/tables/row_copies.h"
#include "distributed/tables/row_parcel.h"

namespace lockstep::distributed {

TableStore::TableStore(const Tensor& tables, std::unique_ptr<optim::TableOptimizer> optimizer)
    : tables_(tables),
      optimizer_(std::move(optimizer)),
      versions_(zeros({tables.size(0)}, DType::i32)) {}

bool TableStore::handle(int, ServiceCall& call) {
  const auto walk = [this](StateIo& io) { state(io); };
  switch (static_cast<Kind>(call.kind)) {
    case pull:
    case peek:
      give(call);
      break;
    case push:
      take(call);
      break;
    case statistics: {
      int64_t* out = call.out.mutable_data<int64_t>();
      out[0] = updates_.pushes;
      std::ranges::copy(updates_.staleness, out + 1);
      break;
    }
    case state_bytes:
      call.version = packed_bytes(walk);
      break;
    case read_state:
      pack_state(call.out, walk);
      break;
    case write_state:
      unpack_state(call.in, walk);
      break;
  }
  return true;
}

void TableStore::give(ServiceCall& call) {
  const auto rows = rows_in(call.in);
  const int64_t width = tables_.size(1);
  for (const int64_t row : rows)
    check(row >= 0 && row < tables_.size(0), "[tables.pull] row; expected 0 to {}, got {}",
          tables_.size(0) - 1, row);
  const RowParcel parcel(call.out, call.in.numel(), width, RowParcel::Rows::left_out);
  gather_rows(parcel.values().mutable_data<float>(), tables_.data<float>(), rows, 0, width);
  scratch_.clear();
  const int32_t* updates = versions_.data<int32_t>();
  for (const int64_t row : rows) scratch_.push_back(static_cast<uint32_t>(updates[row]));
  parcel.write_versions(scratch_);
}

void TableStore::take(ServiceCall& call) {
  const auto count = static_cast<int64_t>(call.weight);
  const RowParcel parcel(call.in, count, tables_.size(1), RowParcel::Rows::sent);
  const Tensor rows = parcel.rows();
  optim::StepVerdict verdict;
  verdict.factor = static_cast<float>(call.numbers[0]);
  optimizer_->set_lr(call.numbers[1]);
  optimizer_->step({.rows = rows, .values = parcel.values()}, verdict);  // checks the rows

  ++updates_.pushes;
  scratch_.resize(static_cast<size_t>(count));
  parcel.read_versions(scratch_);
  int32_t* updates = versions_.mutable_data<int32_t>();
  for (size_t i = 0; const int64_t row : rows_in(rows)) {
    const auto now = static_cast<uint32_t>(updates[row]);
    updates_.add(now - scratch_[i++]);
    updates[row] = static_cast<int32_t>(now + 1);
  }
}

Tensor TableStore::statistics_room() { return zeros({1 + RowUpdates::kBins}, DType::i64); }

RowUpdates TableStore::read_statistics(const Tensor& room) {
  const int64_t* at = room.data<int64_t>();
  RowUpdates updates{.pushes = at[0], .staleness = {at + 1, at + 1 + RowUpdates::kBins}};
  return updates;
}

void TableStore::state(StateIo& io) {
  io.flat("tables", tables_, Fold::replicated);
  io.flat("versions", versions_, Fold::replicated);
  optimizer_->state(io);
  io.value("pushes", updates_.pushes, Fold::replicated);
  Tensor bins = from_values(updates_.staleness);
  io.flat("staleness", bins, Fold::replicated);
  updates_.staleness = values<int64_t>(bins);
}

}  // namespace lockstep::distributed
