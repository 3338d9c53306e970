#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/state_io.h"
#include "distributed/comm/service.h"
#include "distributed/tables/row_updates.h"
#include "optim/table_optimizer.h"

namespace lockstep::distributed {

/// The logic behind a table service: the one copy of embedding tables, their optimiser, and how
/// often each row was updated. Steps happen one at a time, whole. Nobody waits for anybody.
///
///     pull        in: i64 rows; out: a RowParcel without rows
///     peek        the same, for looking only
///     push        in: a RowParcel with rows, ascending, their gradients and the versions that
///                 these were made with; weight: how many; numbers: factor of the gradients,
///                 learning rate. Makes a step of the optimiser
///     statistics  out: statistics_room()
class TableStore final : public ServiceLogic {
 public:
  enum Kind { pull, peek, push, statistics, state_bytes, read_state, write_state };

  /// `tables` [rows, D] is the copy.
  TableStore(const Tensor& tables, std::unique_ptr<optim::TableOptimizer> optimizer);

  bool handle(int rank, ServiceCall& call) override;
  const RowUpdates& updates() const { return updates_; }

  /// Room for what the service has counted, and what was written there.
  static Tensor statistics_room();
  static RowUpdates read_statistics(const Tensor& room);

 private:
  void give(ServiceCall& call);
  void take(ServiceCall& call);
  void state(StateIo& io);

  Tensor tables_;
  std::unique_ptr<optim::TableOptimizer> optimizer_;
  Tensor versions_;  // i32 [rows]: updates of each, modulo 2^32
  RowUpdates updates_;
  std::vector<uint32_t> scratch_;  // versions of a call's rows
};

}  // namespace lockstep::distributed
