#pragma once
#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/report/run_directory.h"
#include "apps/training/run_options.h"
#include "distributed/reducer.h"
#include "layers/module.h"

namespace lockstep::apps {

/// What a model makes of held-out data, the same on all ranks that took part.
struct Evaluated {
  int signal = 0;              ///< the one that cut it short: then there are no figures
  std::optional<double> loss;  ///< mean; nothing: there was nothing to evaluate
  std::optional<double> accuracy;
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  ///< for metrics.jsonl
  std::string text;  ///< all of it in one line, where it is more than loss and accuracy
};

/// One rank's share of what an app trains: its model, its data, and what only that app has. The
/// loop around it (train_loop.h) is the same for all apps.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual layers::Module& model() = 0;
  /// Trained values that are no parameters of the model: embedding tables.
  virtual int64_t more_parameters() const { return 0; }
  /// Embedding tables are trained, too.
  virtual bool has_tables() const { return false; }

  /// Before the first step, on all ranks: adds what takes part in synchronisation besides the
  /// model's parameters.
  virtual void attach(distributed::Reducer& /*reducer*/) {}
  /// Before step number `step` (from 0), when `updates` were applied.
  virtual void before_step(int64_t /*step*/, int64_t /*updates*/) {}

  /// Goes to the next micro-batch; the weight of its loss sum, in tokens or samples. 0: it has no
  /// samples, as in the short last step of an epoch.
  virtual int64_t next() = 0;
  /// Brings what the micro-batch needs from other ranks: on all of them, with samples or without.
  virtual void fetch() {}
  /// Whether other ranks wait in forward and backward for a rank whose micro-batch is empty.
  virtual bool runs_empty() const { return false; }
  /// The sum of the losses of the micro-batch: forward.
  virtual Tensor loss_sum() = 0;

  /// Whether there are held-out data.
  virtual bool evaluates() const = 0;
  /// Goes once through them, each rank through its part; without `comm` this rank through all.
  virtual Evaluated evaluate(distributed::Communicator* comm) = 0;
  /// Adds to a line of metrics.jsonl or to the summary what strategies of its own have to tell, and
  /// the same for people to `text`.
  virtual void report(nlohmann::ordered_json& /*more*/, std::string& /*text*/) const {}
  /// What a person should know before the run, in a line; empty: nothing.
  virtual std::string warning() const { return ""; }
  /// Adds to the summary.
  virtual void summarise(nlohmann::ordered_json& /*more*/) const {}
  /// What a finished run keeps: the parameters from `weights` (flat, as params.all()).
  virtual void save(const RunDirectory& /*directory*/, const optim::FlatParams& /*params*/,
                    const Tensor& /*weights*/) {}
};

/// A run as an app asks for it.
struct Training {
  const RunOptions& options;                 ///< resolved
  std::string command;                       ///< "train transformer"
  nlohmann::ordered_json config;             ///< all options' values
  int64_t eval_every = 0;                    ///< steps; 0: at the end only
  std::optional<int64_t> tokens_per_sample;  ///< nothing: losses are weighed by samples
  /// A window without samples on any rank is not the end of the data: they may be malformed.
  bool empty_windows = false;
  /// One rank's workload, whose next micro-batch is the first of step `first_step`.
  std::function<std::unique_ptr<Workload>(distributed::Communicator& comm, int64_t first_step)>
      make;
  int64_t weight_per_sample() const { return tokens_per_sample.value_or(1); }
};

}  // namespace lockstep::apps
