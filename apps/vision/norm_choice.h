#pragma once
#include "apps/vision/residual_net.h"

#include <string>

namespace lockstep::apps {

/// What `--norm` says: how activations are normalised, and over which samples.
struct NormChoice {
  enum class Kind {
    batch,         ///< this rank's micro-batch
    sync_batch,    ///< the micro-batches of all ranks
    frozen_batch,  ///< running statistics, which are constants from step `after` on
    group,
    none
  };
  Kind kind = Kind::batch;
  int64_t after = 0;  ///< steps of ordinary batch normalisation before it is frozen

  /// "sync_batch", "frozen_batch:after=100"; UsageError.
  static NormChoice parse(const std::string& text, int64_t after_by_default);
  std::string to_string() const;
  ResidualNetConfig::Norm layer() const;
  /// What to know where micro-batches are accumulated, or where statistics are frozen that no
  /// batch has made; empty: nothing. `statistics`: the model begins with such that batches made.
  std::string warning(int64_t batch, int64_t accumulate, bool statistics) const;
  /// UsageError where ranks must meet for it and do not under the strategy that an option names.
  void expect_fits(const std::string& option, const std::string& spec) const;
};

/// What `--norm help` prints.
std::string norm_help();

}  // namespace lockstep::apps
