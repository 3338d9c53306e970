#include "apps/training/snapshots.h"

#include "apps/training/due.h"
#include "apps/training/registries.h"
#include "core/check.h"
#include "core/kernels/elementwise.h"

#include <cmath>

namespace lockstep::apps {
namespace {

constexpr double kRise = 1.5;  // of the loss, from which on it does not look well

auto walk(optim::Optimizer& optimizer, optim::GradScaler& scaler, layers::Module& model) {
  return [&](StateIo& io) {
    optimizer.state(io);
    scaler.state(io);
    layers::buffer_state(model, io);
  };
}

}  // namespace

OnDivergence OnDivergence::parse(const std::string& text) {
  const std::string prefix = "fallback:";
  if (text == "stop") return {};
  check(text.rfind(prefix, 0) == 0 && text.size() > prefix.size(),
        "--on-divergence: expected stop or fallback:STRATEGY, got '{}'; try fallback:allreduce",
        text);
  OnDivergence parsed{text.substr(prefix.size())};
  check_strategy(parsed.fallback, "--on-divergence fallback");
  return parsed;
}

void Snapshots::after_step(int64_t step, int64_t updates, double loss, optim::Optimizer& optimizer,
                           optim::GradScaler& scaler, layers::Module& model) {
  const bool due = due_since(seen_, step, kEvery);
  seen_ = step;
  if (!due || !std::isfinite(loss)) return;
  if (newest_ && loss > kRise * newest_->loss) return;
  good_ = std::move(newest_);
  const Tensor& weights = optimizer.authority().param;
  Snapshot taken{.step = step, .updates = updates, .loss = loss};
  taken.weights = Tensor::empty(weights.shape(), DType::f32);
  kernel::cast(taken.weights, weights);
  taken.rest.save(walk(optimizer, scaler, model));
  newest_ = std::move(taken);
}

void restore_weights(const Snapshot& from, optim::FlatParams& params) {
  kernel::cast(params.all().param, from.weights);
  params.bump_versions();
}

void restore_rest(const Snapshot& from, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                  layers::Module& model) {
  from.rest.load(walk(optimizer, scaler, model));
  optimizer.publish();
}

}  // namespace lockstep::apps
