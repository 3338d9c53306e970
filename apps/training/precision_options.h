#pragma once
#include <string>

#include "apps/cli/option_table.h"
#include "distributed/exchange.h"
#include "optim/grad_scaler.h"
#include "optim/precision.h"

namespace lockstep::apps {

/// The knobs of mixed precision, the same in every app: `--precision` sets them together, each
/// can be set apart.
struct PrecisionOptions {
  std::string precision = "fp32";
  std::string compute = "fp32", params = "fp32", grads = "fp32", wire = "fp32";
  std::string accumulate_in = "auto", reduce_in = "fp32", divide = "auto", scale = "auto";
  bool master = true;
  std::string probe = "none";
  int64_t probe_every = 50;

  static bool is_name(const std::string& precision);
  /// All as one of the names of --precision says, with one micro-batch a step.
  static PrecisionOptions named(const std::string& precision);

  void declare(OptionTable& table);
  /// Fills in what --precision, --grads and the number of micro-batches imply; UsageError for what
  /// does not fit.
  void resolve(const OptionTable& given, int64_t micro_batches);

  DType compute_dtype() const;
  optim::Precision buffers() const;
  distributed::ExchangeOptions exchange() const;
  optim::GradScalerOptions scaler(double nominal_weight) const;
  bool probing() const { return probe != "none"; }

 private:
  void settle(int64_t micro_batches);
};

/// What `--precision help` and `--scale help` print.
std::string precision_help();
std::string scale_help();

}  // namespace lockstep::apps
