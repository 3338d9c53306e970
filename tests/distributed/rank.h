#pragma once
#include <memory>
#include <string>
#include <utility>

#include "models.h"
#include "optim/optimizer.h"
#include "precision.h"

namespace lockstep::distributed {

inline const optim::OptimizerOptions kPlainSgd{.lr = 1, .weight_decay = 0};

/// A rank's model, parameters, strategy, reducer and SGD, or Adam where it must be.
template <class Model = Linears>
struct Rank {
  template <class... Args>
  Rank(Communicator& comm, const ReducerOptions& options, const optim::OptimizerOptions& sgd,
       Args&&... model_args)
      : Rank("allreduce", comm, options, sgd, std::forward<Args>(model_args)...) {}
  template <class... Args>
  Rank(const std::string& spec, Communicator& comm, const ReducerOptions& options,
       const optim::OptimizerOptions& sgd, Args&&... model_args)
      : Rank(optim::Precision{}, spec, comm, options, sgd, std::forward<Args>(model_args)...) {}
  template <class... Args>
  Rank(const optim::Precision& precision, const std::string& spec, Communicator& comm,
       const ReducerOptions& options, const optim::OptimizerOptions& sgd, Args&&... model_args)
      : model(std::forward<Args>(model_args)...),
        params(model, precision),
        strategy(make_strategy(spec)),
        reducer(params, comm, *strategy, options),
        optimizer(optim::make_optimizer(strategy->steps_with("sgd") ? "sgd" : "adam", params.all(),
                                        sgd)) {}

  void micro(const Tensor& loss, Sync sync, double weight,
             const optim::GradScaler& scaler = optim::GradScaler()) {
    const auto window = reducer.micro({.sync = sync, .weight = weight, .scale = scaler.scale()});
    autograd::backward(scaler.scale(loss));
  }
  StepVerdict finish(const optim::GradScaler& scaler = optim::GradScaler()) {
    return reducer.finish_backward(scaler);
  }
  void step(const StepVerdict& verdict) {
    reducer.step(*optimizer, verdict);
    reducer.finish_step(steps++);
  }
  /// The gradient that a step would use.
  float mean_grad(const StepVerdict& verdict, int i = 0) { return model.grad(i) * verdict.factor; }
  Floats weights() const { return floats(params.all().param); }

  Model model;
  optim::FlatParams params;
  std::unique_ptr<SyncStrategy> strategy;
  Reducer reducer;
  std::unique_ptr<Optimizer> optimizer;
  int64_t steps = 0;
};

}  // namespace lockstep::distributed
