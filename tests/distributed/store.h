#pragma once
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/memory_state.h"
#include "distributed/parameter_service.h"
#include "optim/optimizer.h"
#include "tests/support/precision.h"

namespace lockstep::distributed {

/// What a service of `numel` equal parameters starts from.
class StoreSetup {
 public:
  StoreSetup(const ServiceOptions& options, int workers, const optim::OptimizerOptions& optimizer,
             int64_t numel = 1, const std::string& name = "sgd", float start = 0)
      : slices_{{.name = "w", .shape = {numel}, .begin = 0, .end = numel}},
        param_(full({numel}, start)) {
    setup_ = {.options = options,
              .workers = workers,
              .start = {.param = param_, .grad = param_, .slices = slices_},
              .optimizer = [=](optim::FlatView view) {
                return optim::make_optimizer(name, std::move(view), optimizer);
              }};
  }
  StoreSetup(const StoreSetup&) = delete;
  StoreSetup& operator=(const StoreSetup&) = delete;
  ServiceSetup& operator*() { return setup_; }
  ServiceSetup* operator->() { return &setup_; }

 private:
  std::vector<optim::ParamSlice> slices_;
  Tensor param_;
  ServiceSetup setup_;
};

/// The logic of a service alone, called as its workers would.
class DirectStore {
 public:
  DirectStore(const ServiceOptions& options, int workers, const optim::OptimizerOptions& optimizer,
              int64_t numel = 1, const std::string& name = "sgd", float start = 0)
      : setup(options, workers, optimizer, numel, name, start),
        lr_(optimizer.lr),
        logic(*setup),
        out_(zeros({numel})) {}

  PushReply push(int rank, int64_t clock, double gradient, double weight = 1, double scale = 1) {
    ServiceCall call;
    call.kind = ParameterStore::push;
    call.clock = clock;
    call.weight = weight;
    call.numbers = {scale, 0, 0, lr_};
    call.in = full(out_.shape(), gradient * weight * scale);
    EXPECT_TRUE(logic.handle(rank, call));
    return {static_cast<PushOutcome>(call.outcome), call.version, call.staleness};
  }
  /// None: it waits.
  std::optional<Snapshot> pull(int rank, int64_t clock) {
    ServiceCall call;
    call.kind = ParameterStore::pull;
    call.clock = clock;
    call.out = out_;
    if (!logic.handle(rank, call)) return std::nullopt;
    return Snapshot{call.version, call.clock};
  }
  void leave(int rank) {
    ServiceCall call;
    call.kind = ParameterStore::leave;
    logic.handle(rank, call);
  }
  const Tensor& pulled() const { return out_; }
  double weight() const { return test::floats(logic.parameters())[0]; }

  StoreSetup setup;

 private:
  double lr_;

 public:
  ParameterStore logic;

 private:
  Tensor out_;
};

}  // namespace lockstep::distributed
