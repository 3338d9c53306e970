#pragma once
#include "distributed/tables/row_traffic.h"
#include "distributed/tables/window_tables.h"

namespace lockstep::distributed {

/// What table strategies share whose ranks step the one copy of the tables one by one, each when
/// its gradient is there: rows that were fetched remember how often they had been updated by then.
///
/// CONTRACT: a push is divided by the weight that its rank's verdict covers. Under a strategy whose
/// ranks share a verdict (hybrid) that is the weight of all, and n pushes move a row as far as one
/// mean over ranks would; where each decides alone (async) it is its own, and a push is a step of
/// its own, as it is for dense parameters. Gradients of tables are not clipped: the norm is that of
/// the dense parameters.
class ApartTables : public WindowTables {
 public:
  bool together() const override { return false; }
  bool exchange() override;
  double sum_of_squares() override { return 0; }
  void step(const optim::StepVerdict& verdict) override;

 protected:
  void start() override;
  /// Makes a step of these rows, which ascend. versions()[i] is what remember() was told of row i.
  virtual void push(const SparseGrad& gradient, float factor) = 0;
  std::span<const uint32_t> versions() const { return versions_; }
  /// The row at this place was fetched after so many updates of it, modulo 2^32.
  void remember(int64_t place, uint32_t version) { fetched_[place] = version; }

  RowTraffic traffic_;

 private:
  std::vector<uint32_t> fetched_;   // by place
  std::vector<uint32_t> versions_;  // of the rows of gradient_of_window_
  std::vector<int64_t> places_;     // theirs
  SparseGrad gradient_of_window_;
};

}  // namespace lockstep::distributed
