#include "apps/transformer/train.h"

#include "apps/cli/interrupt.h"
#include "apps/training/books.h"
#include "apps/training/cluster_report.h"
#include "apps/training/compress_report.h"
#include "apps/training/divergence.h"
#include "apps/training/due.h"
#include "apps/training/probe_report.h"
#include "apps/training/step_exchange.h"
#include "apps/training/sync_report.h"
#include "apps/transformer/evaluate.h"
#include "apps/transformer/model_file.h"
#include "apps/transformer/snapshots.h"
#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/parallel.h"
#include "core/profile.h"
#include "data/loader.h"
#include "distributed/comm/launch.h"

#include <fmt/format.h>

#include <limits>

namespace lockstep::apps {
namespace {

using autograd::backward;
using distributed::CommStats;
using distributed::GradientProbe;
using distributed::Sync;
using optim::StepVerdict;

data::SamplerOptions sampling(const TrainOptions& o, const LanguageData& data, int rank) {
  return {.samples = data.training->count(),
          .global_batch = o.global_batch,
          .ranks = static_cast<int>(o.ranks),
          .rank = rank,
          .micro_batches = static_cast<int>(o.accumulate),
          .seed = static_cast<uint64_t>(o.seed)};
}

Throughput throughput(const TrainOptions& o) {
  return {.samples_per_step = o.global_batch, .tokens_per_sample = o.context};
}

// What a run keeps where it falls back to another strategy and begins again. Rank 0 writes it.
struct Session {
  std::optional<Books> books;
  std::string sync;                ///< spec of the strategy
  Snapshots* snapshots = nullptr;  ///< to fall back to; null: a divergence ends the run
  const Snapshot* from = nullptr;  ///< where this attempt begins; null: at the beginning
  double virtual_s = 0;            ///< modelled time of the attempts before
  nlohmann::ordered_json fallbacks = nlohmann::ordered_json::array();
  CommStats comm;       ///< rank 0's, up to its last step
  bool closed = false;  ///< the summary is written
};

// One rank's run; `result` is filled by rank 0, `profile` may be null.
void train_rank(distributed::Communicator& comm, const TrainOptions& o, const LanguageData& data,
                const nlohmann::ordered_json& config, Session& session, TrainResult& result,
                Profile* profile, const distributed::virtual_cluster::Run* modelled) {
  const Profile::Attach profiling(profile);
  const ThreadBudget budget(static_cast<int>(o.threads));
  const auto seed = static_cast<uint64_t>(o.seed);
  Gpt model(o.model(data.tokenizer->vocab()), seed);
  const autograd::Autocast autocast(o.precision.compute_dtype());
  optim::FlatParams params(model, o.precision.buffers());
  if (session.from) restore_weights(*session.from, params);
  // Before ranks may go apart: another one's failure finds them open.
  std::optional<Books>* const own = comm.rank() == 0 ? &session.books : nullptr;
  if (own && !*own)
    own->emplace(o, "train transformer", config, params.all().numel(), throughput(o));
  Books* const books = own ? &**own : nullptr;
  const auto strategy = distributed::make_strategy(session.sync);
  distributed::Reducer reducer(params, comm, *strategy, o.reducer_options());
  const auto optimizer = optim::make_optimizer(o.optimizer, params.all(), o.optimizer_options());
  const optim::Schedule learning_rate = o.learning_rate();
  optim::GradScaler scaler(
      o.precision.scaler(static_cast<double>(o.batch * o.accumulate * o.context)));
  if (session.from) restore_rest(*session.from, *optimizer, scaler);
  reducer.start(*optimizer);
  const int64_t first_step = session.from ? session.from->step : 0;
  data::Loader loader(data.training, sampling(o, data, comm.rank()), {.first_step = first_step});
  // Whether this rank knows its own loss only, and decides by it. May change with a warm-up.
  const auto alone = [&] {
    return strategy->verdict_scope() != distributed::VerdictScope::all_ranks;
  };
  const bool apart = strategy->steps_between_sync() == 0;  // ranks never meet
  o.check_uneven(session.sync, *strategy);
  StepExchange exchange(comm, *strategy);
  std::optional<GradientProbe> probe;
  if (books && o.precision.probing())
    probe.emplace(params, o.precision.buffers().grads, comm.size());
  int64_t steps_made = 0;
  const auto finish = [&](const std::string& status) {
    nlohmann::ordered_json more{{"parameters", params.all().numel()},
                                {"buckets", reducer.buckets().size()},
                                {"loss_scale", scaler.loss_scale()}};
    if (modelled && !(alone() && status == "diverged"))
      more.update(cluster_json(*modelled, session.virtual_s));
    if (strategy->waiting() > 0) more["gradients_never_applied"] = strategy->waiting();
    if (data.best_loss) more["best_possible_loss"] = *data.best_loss;
    if (!session.fallbacks.empty()) more["fallbacks"] = session.fallbacks;
    if (profile != nullptr) more["profile"] = profile_json(*profile);
    if (status != "diverged") {  // the other ranks may have gone
      distributed::StrategyReport report;
      strategy->report(report);
      if (!report.empty()) more["sync"] = sync_json(report);
      result.sync = report.text();
    }
    if (const auto report = reducer.exchange().report(); !report.spec.empty()) {
      more["compression"] = compression_json(report, steps_made);
      result.compression = compression_text(report, steps_made, o.link_bandwidth());
    }
    result.summary = books->log.finish({status, comm.stats(), std::move(more)});
    result.directory = books->directory.path();
    session.closed = true;
  };

  // The books of a modelled cluster close when all ranks' steps have ended.
  const auto await_all = [&] {
    const distributed::Untimed untimed(comm);
    comm.barrier();
  };
  const auto diverge = [&](const std::string& how) {
    if (modelled && !alone()) await_all();
    if (books && !(session.snapshots && session.snapshots->good())) {
      finish("diverged");
      if (!result.probe.empty()) books->log.note(result.probe);
    }
    if (!alone())
      comm.barrier();  // the first rank to throw ends the others: not before the books are closed
    throw SystemError(Fault::numeric, how);
  };

  if (books && session.snapshots)
    session.snapshots->after_step(0, 0, std::numeric_limits<double>::max(), *optimizer, scaler);
  int signal = 0;
  // Steps that were applied: what the schedule goes by.
  int64_t updates = session.from ? session.from->updates : 0;
  std::optional<StepSeen> last;
  // Steps that others have made without this rank (backup), and their data, are left out; but the
  // books end with the last one.
  const auto after = [&](int64_t step) {
    const int64_t next = reducer.next_step(step, books ? o.steps - 1 : o.steps);
    const int64_t left_out = next - step - 1;
    for (int64_t micro = left_out * o.accumulate; micro > 0; --micro) loader.next();
    updates += left_out;  // others have made them
    return next;
  };
  int64_t accounted = first_step;  // steps done when this rank last looked what is due
  for (int64_t step = first_step; step < o.steps && signal == 0; step = after(step)) {
    const ProfileSpan profiled(Profile::Kind::step, "step");
    ProfilePhases phase;
    const StepClock clock(comm);
    optimizer->set_lr(learning_rate.at(updates));
    const bool probing = probe && due_since(accounted - 1, step, o.precision.probe_every);
    if (probing) probe->begin(scaler.loss_scale());
    reducer.observe(probing ? &*probe : nullptr);

    // The loss is a sum over tokens: ranks and micro-batches add up, and the verdict divides by the
    // weight of them all, once.
    double loss_sum = 0;
    int64_t tokens = 0;
    // Ranks that go apart end as they do when they run out of data: together where they must.
    const int stopping = apart ? interrupt_signal() : 0;
    for (int64_t micro = 0; micro < o.accumulate && stopping == 0; ++micro) {
      phase.enter("data");
      const data::TokenBatch& batch = loader.next();
      if (batch.rows() == 0) continue;  // the short last step of an epoch
      const auto window =
          reducer.micro({.sync = micro + 1 == o.accumulate ? Sync::now : Sync::later,
                         .weight = static_cast<double>(batch.tokens()),
                         .scale = scaler.scale()});
      phase.enter("forward");
      const Tensor loss = model.loss_sum(
          batch.inputs, batch.targets,
          {.seed = seed, .first_sample = step * o.global_batch + batch.first_sample});
      loss_sum += loss.item();
      tokens += batch.tokens();
      phase.enter("backward");
      backward(scaler.scale(loss));
    }
    phase.enter("synchronise");
    StepVerdict verdict = reducer.finish_backward(scaler);
    // Some ranks have no rows in the short last step of an epoch; where each decides alone that is
    // not the end of its data.
    const bool idle = apart && tokens == 0 && interrupt_signal() == 0;
    if (!idle && reducer.exhausted(verdict)) {  // --uneven stop, and a rank ran out of data
      signal = stopping;
      break;
    }
    // Not before: a rank without data hands over its buckets in finish_backward, the others during
    // backward, and collectives have one order.
    exchange.post(loss_sum, tokens, apart ? 0 : interrupt_signal());
    phase.enter("clip");
    if (o.clip > 0) verdict.clip(reducer.grad_norm(verdict), o.clip);
    phase.enter("optimizer");
    verdict = reducer.step(*optimizer, verdict);
    const double scale = scaler.loss_scale();
    scaler.update(verdict);
    reducer.finish_step(step);
    ++steps_made;
    updates += verdict.apply ? 1 : 0;

    phase.enter("synchronise");
    const StepExchange::Result all = exchange.wait();
    phase.enter("account");
    signal = all.signal;
    StepRecord record = clock.record(step + 1);
    if (modelled)
      add_times(record, session.virtual_s + *comm.virtual_time(),
                modelled->steps[comm.rank()].back());
    // Without data of its own a rank that goes apart knows no newer one.
    record.loss = all.tokens > 0 ? all.loss_sum / static_cast<double>(all.tokens)
                  : last         ? last->loss
                                 : 0;
    record.lr = optimizer->lr();
    record.samples = all.tokens / o.context;
    record.scale = scale;
    record.skipped = !verdict.apply;
    last = {.step = record.step, .loss = record.loss, .verdict = verdict, .updates = updates};
    const auto divergence = find_divergence(*last, params, scaler);
    const bool due = record.step == o.steps || due_since(accounted, record.step, o.eval_every);
    accounted = record.step;
    if (due && data.validation && signal == 0 && !divergence) {
      phase.enter("evaluation");
      const auto evaluating = reducer.evaluating(*optimizer);  // on all ranks, whoever looks at it
      Evaluation seen;
      if (books || !apart)
        seen = evaluate(model, *data.validation, o.batch, apart ? nullptr : &comm);
      if (!apart) signal = seen.signal;
      if (seen.signal == 0 && seen.tokens > 0) {
        record.val_loss = last->val_loss = seen.loss;
        record.val_accuracy = seen.accuracy;
      }
    }
    phase.enter("account");
    if (books && due && !divergence) {
      distributed::StrategyReport report;
      strategy->report(report);
      if (!report.empty()) record.more["sync"] = sync_json(report);
    }
    if (probing) {
      record.more["probe"] = probe_json(*probe, params);
      books->log.note(fmt::format("step {}: {}", record.step, probe_line(*probe, params)));
      result.probe = fmt::format("gradients of step {}, loss scale {}, this rank's view:\n{}",
                                 record.step, scale, probe_text(*probe, params));
    }
    if (books) {
      books->log.step(record);
      session.comm = comm.stats();
    }
    if (divergence) diverge(*divergence);
    if (books && session.snapshots)
      session.snapshots->after_step(record.step, updates, record.loss, *optimizer, scaler);
  }
  if (last && signal == 0)
    if (const auto divergence = find_divergence_at_end(*last, params, scaler)) diverge(*divergence);
  reducer.end();
  // What is kept: one model, with all ranks' steps in it.
  const auto evaluating = reducer.evaluating(*optimizer);
  if (modelled) await_all();
  if (!books) return;
  save_model(books->directory.file(kModelFile), model.config(), *data.tokenizer, params,
             optimizer->weights());
  books->directory.keep();
  finish(signal == 0 ? "finished" : "interrupted");
  result.exit_code = signal == 0 ? 0 : 128 + signal;
}

// Ends the books of a run that another rank than rank 0 found to be lost.
void close_books(Session& session, const distributed::virtual_cluster::Run* modelled) {
  if (session.closed) return;
  nlohmann::ordered_json more = nlohmann::ordered_json::object();
  if (modelled) more.update(cluster_json(*modelled, session.virtual_s));
  if (!session.fallbacks.empty()) more["fallbacks"] = session.fallbacks;
  session.books->log.finish({"diverged", session.comm, std::move(more)});
  session.books->directory.keep();
  session.closed = true;
}

}  // namespace

TrainResult train_transformer(const TrainOptions& o, const LanguageData& data,
                              const nlohmann::ordered_json& config) {
  TrainResult result;
  const Profiles profiles = make_profiles(o);
  const OnDivergence on_divergence = OnDivergence::parse(o.on_divergence);
  Snapshots snapshots;
  Session session{.sync = o.sync};
  if (!on_divergence.fallback.empty()) session.snapshots = &snapshots;
  std::shared_ptr<distributed::virtual_cluster::Run> cluster;
  const auto attempt = [&] {
    const distributed::CommOptions comm = o.comm_options();
    cluster = comm.virtual_run;
    distributed::run_ranks(static_cast<int>(o.ranks), comm, [&](distributed::Communicator& rank) {
      train_rank(rank, o, data, config, session, result,
                 o.profile ? profiles[static_cast<size_t>(rank.rank())].get() : nullptr,
                 cluster.get());
    });
  };
  try {
    attempt();
  } catch (const SystemError& e) {
    if (e.fault() != Fault::numeric || !session.books) throw;
    const Snapshot* good = snapshots.good();
    if (good == nullptr || session.snapshots == nullptr) {
      close_books(session, cluster.get());
      throw;
    }
    session.books->log.note(fmt::format("{}; back to step {} and on with {}", e.what(), good->step,
                                        on_divergence.fallback));
    session.fallbacks.push_back(
        {{"cause", e.what()}, {"from_step", good->step}, {"sync", on_divergence.fallback}});
    if (cluster) session.virtual_s = virtual_seconds(*cluster);
    session.from = good;
    session.sync = on_divergence.fallback;
    session.snapshots = nullptr;  // the second time is the last
    try {
      attempt();
    } catch (const SystemError& again) {
      if (again.fault() == Fault::numeric) close_books(session, cluster.get());
      throw;
    } catch (const UsageError&) {  // the other strategy does not fit
      close_books(session, cluster.get());
      throw;
    }
  }
  if (cluster) result.cluster = report_cluster(*cluster, result.directory);
  if (o.profile) result.profile = report_profiles(profiles, result.directory);
  return result;
}

}  // namespace lockstep::apps
