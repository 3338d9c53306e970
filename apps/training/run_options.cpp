#include "apps/training/run_options.h"

#include "apps/training/registries.h"
#include "apps/training/snapshots.h"
#include "core/check.h"
#include "core/parallel.h"
#include "distributed/comm/virtual_cluster/run.h"
#include "distributed/compress/compress_spec.h"

#include <chrono>
#include <cmath>

namespace lockstep::apps {

void RunOptions::declare_training(OptionTable& t, const Words& words) {
  t.group("training");
  t.integer("--batch", batch, {1, kMaxSize}, words.samples + " per rank and micro-batch");
  t.integer("--accumulate", accumulate, {1, kMaxSize}, "micro-batches per rank and step");
  t.integer("--global-batch", global_batch, {0, kMaxSteps},
            "batch · ranks · accumulate instead, 0: their product");
  t.integer("--steps", steps, {1, kMaxSteps}, "optimiser steps");
  t.text("--optimizer", optimizer, "SPEC", "name:key=value,…; --optimizer help");
  t.number("--lr", lr, {0, 1e38, ""}, "learning rate");
  t.number("--weight-decay", weight_decay, {0, 1e6, ""}, "on matrices only; sgd, adam: 0");
  t.number("--clip", clip, {0, 1e38, ""}, "largest gradient norm, 0: any");
  t.choice("--schedule", schedule, {"constant", "linear", "cosine"}, "of the learning rate");
  t.integer("--warmup", warmup, {0, kMaxSteps}, "steps of linear growth first");
  t.number("--min-lr", min_lr, {0, 1e38, ""}, "floor of the schedule");
  t.integer("--seed", seed, {0, INT64_MAX}, words.seeded);
}

void RunOptions::declare_moments(OptionTable& t) {
  t.pair("--betas", betas, {0, std::nextafter(1.0, 0.0), "0 <= b < 1"},
         "decay rates of the moments");
  t.number("--eps", eps, {0, 1, ""}, "added to the root of the second moment");
  t.number("--momentum", momentum, {0, std::nextafter(1.0, 0.0), "0 <= m < 1"}, "of sgd");
  t.on_off("--nesterov", nesterov, "Nesterov's form of the momentum");
}

void RunOptions::declare_ranks(OptionTable& t) {
  t.group("ranks and synchronisation");
  t.integer("--ranks", ranks, {1, 1024}, "workers, each with a copy of the model");
  t.text("--backend", backend, "NAME", "how ranks are connected; --backend help");
  t.text("--cluster", cluster, "SPEC",
         "what --backend virtual models, key=value,…; --cluster help");
  t.text("--sync", sync, "SPEC", "strategy, name:key=value,…; --sync help");
  t.text("--compress", compress, "SPEC", "of gradients, name:key=value,…[+ef]; --compress help");
  t.integer("--threads", threads, {0, 4096},
            "threads of a rank, 0: all cores for one rank, else 1");
  t.number("--bucket-mb", bucket_mb, {0.001, 100000, ""},
           "gradient bytes that travel together, MiB");
  t.number("--timeout", timeout, {0.01, 1e6, ""}, "seconds to wait for a late rank");
  t.choice("--unused", unused, {"zero", "error"}, "parameters some rank did not use");
  t.choice("--uneven", uneven, {"stop", "initial", "active"}, "ranks that run out of data");
  t.choice("--teach", teach, {"none", "sum", "reduce-running", "no-division"},
           "a mistake on purpose");
}

void RunOptions::declare_on_divergence(OptionTable& t) {
  t.text("--on-divergence", on_divergence, "WHAT",
         "stop, or fallback:STRATEGY: back to where all was well");
}

void RunOptions::declare_output(OptionTable& t) {
  t.group("output");
  t.text("--out", out, "DIR", "new or empty directory for the results (a new one under runs/)");
  t.flag("--overwrite", overwrite, "replace the run that is in --out");
  t.flag("--json", json, "the summary as JSON on stdout");
  t.flag("--quiet", quiet, "no progress");
  t.flag("--profile", profile, "a table of where the time went, and a trace in --out");
  t.config_file();
  t.lists("--optimizer", optimizer_help);
  t.lists("--sync", strategy_help);
  t.lists("--compress", distributed::compress_help);
  t.lists("--backend", backend_help);
  t.lists("--cluster", distributed::virtual_cluster::cluster_help);
  t.lists("--schedule", schedule_help);
  t.lists("--teach", teach_help);
}

void RunOptions::resolve(const OptionTable& given, const Words& words) {
  const bool batch_given = given.given("--batch"), accumulate_given = given.given("--accumulate");
  // The default belongs to AdamW; L2 decay is asked for by name.
  if (!given.given("--weight-decay") && optimizer.rfind("adamw", 0) != 0) weight_decay = 0;
  if (global_batch > 0) {
    if (batch_given && !accumulate_given) {
      check(global_batch % (batch * ranks) == 0,
            "--global-batch {}: expected a multiple of --batch {} x --ranks {} = {}", global_batch,
            batch, ranks, batch * ranks);
      accumulate = global_batch / (batch * ranks);
    } else if (!batch_given) {
      check(global_batch % (accumulate * ranks) == 0,
            "--global-batch {}: expected a multiple of --ranks {} x --accumulate {} = {}",
            global_batch, ranks, accumulate, accumulate * ranks);
      batch = global_batch / (accumulate * ranks);
    }
  }
  const int64_t product = checked_mul(checked_mul(batch, ranks), accumulate);
  check(global_batch == 0 || global_batch == product,
        "--global-batch {}: expected --batch {} x --ranks {} x --accumulate {} = {}", global_batch,
        batch, ranks, accumulate, product);
  global_batch = product;
  check(global_batch <= kMaxSteps && batch <= kMaxSize && accumulate <= kMaxSize,
        "--global-batch: expected at most {} {} in a micro-batch and {} in a step, got {} and {}",
        kMaxSize, words.samples, kMaxSteps, batch, global_batch);
  check(min_lr <= lr || schedule == "constant", "--min-lr {}: expected at most --lr {}", min_lr,
        lr);
  check(warmup <= steps, "--warmup {}: expected at most --steps {}", warmup, steps);
  check_compress(given);
  precision.resolve(given, accumulate);
  if (!compress.empty()) precision.wire = "fp32";  // what codes are made of
  if (backend == "auto") backend = ranks == 1 ? "solo" : "threads";
  if (threads == 0) threads = ranks == 1 ? available_cores() : 1;
  check_backend(backend, ranks);
  check(cluster.empty() || on_virtual_cluster(),
        "--cluster: expected --backend virtual beside it, got --backend {}", backend);
  if (on_virtual_cluster()) {
    const auto described = distributed::virtual_cluster::Cluster::parse(cluster);
    described.expect_ranks(static_cast<int>(ranks));
    cluster = described.to_string();
  }
  check_strategy(sync);
  check_optimizer(optimizer, optimizer_options());
  for (const auto& [option, spec] : strategies()) check_fits(option, spec);
}

std::vector<std::pair<std::string, std::string>> RunOptions::strategies() const {
  std::vector<std::pair<std::string, std::string>> all{{"--sync", sync}};
  const std::string fallback = OnDivergence::parse(on_divergence).fallback;
  if (!fallback.empty()) all.emplace_back("--on-divergence fallback", fallback);
  return all;
}

void RunOptions::check_compress(const OptionTable& given) {
  if (compress == "none") compress.clear();
  if (compress.empty()) return;
  check_compressor(compress);
  check(!given.given("--wire"), "--compress {}: a code is what travels; leave out --wire {}",
        compress, precision.wire);
  check(precision.reduce_in == "fp32",
        "--compress {}: codes are added in fp32; leave out --reduce-in {}", compress,
        precision.reduce_in);
  check(precision.divide == "auto" || precision.divide == "none" || precision.divide == "after",
        "--compress {}: nothing is divided before a code is made; leave out --divide {}", compress,
        precision.divide);
  check(teach != "reduce-running",
        "--compress {}: --teach reduce-running reduces a sum again and again, and so would what a "
        "code loses",
        compress);
}

void RunOptions::check_fits(const std::string& option, const std::string& spec) const {
  const auto strategy = distributed::make_strategy(spec);
  check(compress.empty() || strategy->sends_gradients(),
        "--compress {}: {} {} sends something else than gradients; expected e.g. allreduce",
        compress, option, spec);
  check(strategy->steps_with(Spec(optimizer).name()),
        "--optimizer {}: {} {} steps as Adam does; expected adam or adamw", optimizer, option,
        spec);
  check(strategy->steps_between_sync() != 0 || uneven != "stop",
        "--uneven stop: under {} {} no rank knows when another one runs out of data; expected "
        "active or initial",
        option, spec);
}

void RunOptions::complete_cluster(const std::function<double()>& measure) {
  if (!on_virtual_cluster()) return;
  auto described = distributed::virtual_cluster::Cluster::parse(cluster);
  if (!described.compute) described.compute = measure();
  cluster = described.to_string();
}

std::optional<double> RunOptions::link_bandwidth() const {
  if (!on_virtual_cluster()) return std::nullopt;
  return distributed::virtual_cluster::Cluster::parse(cluster).bandwidth;
}

optim::OptimizerOptions RunOptions::optimizer_options() const {
  return {.lr = lr,
          .momentum = momentum,
          .nesterov = nesterov,
          .beta1 = betas[0],
          .beta2 = betas[1],
          .eps = eps,
          .weight_decay = weight_decay,
          .master = precision.master};
}

optim::Schedule RunOptions::learning_rate() const {
  return {.shape = optim::parse_schedule(schedule),
          .base = lr,
          .floor = min_lr,
          .warmup = warmup,
          .total = steps};
}

data::SamplerOptions RunOptions::sampler(int64_t samples, int rank) const {
  return {.samples = samples,
          .global_batch = global_batch,
          .ranks = static_cast<int>(ranks),
          .rank = rank,
          .micro_batches = static_cast<int>(accumulate),
          .seed = static_cast<uint64_t>(seed)};
}

distributed::ReducerOptions RunOptions::reducer_options() const {
  using namespace distributed;
  const auto bytes = static_cast<int64_t>(bucket_mb * (1 << 20));
  ExchangeOptions exchange = precision.exchange();
  exchange.compress = compress;
  exchange.seed = static_cast<uint64_t>(seed);
  return {.bucket_bytes = bytes,
          .first_bucket_bytes = std::min<int64_t>(bytes, ReducerOptions{}.first_bucket_bytes),
          .unused = unused == "error" ? Unused::error : Unused::zero,
          .uneven = uneven == "stop"      ? Uneven::stop
                    : uneven == "initial" ? Uneven::initial
                                          : Uneven::active,
          .teach = teach == "sum"              ? Teach::sum
                   : teach == "reduce-running" ? Teach::reduce_running
                   : teach == "no-division"    ? Teach::no_division
                                               : Teach::none,
          .exchange = exchange};
}

distributed::CommOptions RunOptions::comm_options() const {
  using distributed::virtual_cluster::Cluster, distributed::virtual_cluster::Run;
  distributed::CommOptions comm{.backend = backend,
                                .timeout = std::chrono::milliseconds(std::llround(1000 * timeout)),
                                .virtual_run = nullptr};
  if (on_virtual_cluster())
    comm.virtual_run = std::make_shared<Run>(Cluster::parse(cluster), static_cast<int>(ranks),
                                             static_cast<uint64_t>(seed));
  return comm;
}

}  // namespace lockstep::apps
