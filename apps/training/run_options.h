#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/option_table.h"
#include "apps/training/precision_options.h"
#include "data/sampler.h"
#include "distributed/comm/launch.h"
#include "distributed/reducer.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace lockstep::apps {

/// What every app that trains can be told, under the same names with the same defaults. An app's
/// options are derived from it and declare these groups where they belong.
struct RunOptions {
  // Enough for anything real and far from where products of them would overflow.
  static constexpr int64_t kMaxSize = 1'000'000, kMaxSteps = 1'000'000'000'000;

  // training
  int64_t batch = 12, global_batch = 0, accumulate = 1, steps = 2000;
  std::string optimizer = "adamw", schedule = "constant";
  double lr = 1e-3, min_lr = 0, eps = 1e-8, momentum = 0, weight_decay = 0.01, clip = 0;
  bool nesterov = false;
  std::array<double, 2> betas{0.9, 0.999};
  int64_t warmup = 0;
  int64_t seed = 1;
  PrecisionOptions precision;
  // ranks and synchronisation
  int64_t ranks = 1, threads = 0;
  std::string backend = "auto", cluster, sync = "allreduce", compress;
  double timeout = 60, bucket_mb = 1;
  std::string unused = "zero", uneven = "active", teach = "none", on_divergence = "stop";
  // output
  std::string out;
  bool overwrite = false, json = false, quiet = false, profile = false;

  /// What an app calls things in its help and messages.
  struct Words {
    std::string samples;  ///< "windows"
    std::string seeded;   ///< what --seed is of
  };
  void declare_training(OptionTable& table, const Words& words);
  /// What an optimiser's spec can say as well.
  void declare_moments(OptionTable& table);
  void declare_ranks(OptionTable& table);
  /// Of apps whose whole state a snapshot can keep.
  void declare_on_divergence(OptionTable& table);
  /// With --config, and the lists of what the groups above can be told.
  void declare_output(OptionTable& table);

  /// Fills in what follows from other options (batch or accumulate, global_batch, threads, backend,
  /// weight decay, precision) and checks what a single option cannot; UsageError.
  void resolve(const OptionTable& given, const Words& words);

  /// UsageError for what --compress does not go with.
  void check_compress(const OptionTable& given);
  /// UsageError where a strategy does not go with --compress, --optimizer or --uneven.
  void check_fits(const std::string& option, const std::string& spec) const;
  /// The strategies that the run may train with, each after the option that named it: what does not
  /// go with one to fall back to is refused before the run, not hours later.
  std::vector<std::pair<std::string, std::string>> strategies() const;
  /// Where a cluster is modelled whose `compute` nobody told: what measure() says, in seconds.
  void complete_cluster(const std::function<double()>& measure);
  bool on_virtual_cluster() const { return backend.rfind("virtual", 0) == 0; }
  /// Bytes per second of a rank's link to what it exchanges gradients with, where that is modelled.
  std::optional<double> link_bandwidth() const;
  optim::OptimizerOptions optimizer_options() const;
  optim::Schedule learning_rate() const;
  /// How a rank goes through so many training samples.
  data::SamplerOptions sampler(int64_t samples, int rank) const;
  distributed::ReducerOptions reducer_options() const;
  /// How ranks are connected; where they are modelled, in a new run of the cluster.
  distributed::CommOptions comm_options() const;
};

}  // namespace lockstep::apps
