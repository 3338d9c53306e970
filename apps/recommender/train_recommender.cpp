#include "apps/recommender/train_recommender.h"

#include "apps/cli/interrupt.h"
#include "apps/recommender/click_report.h"
#include "apps/recommender/evaluate_clicks.h"
#include "apps/training/books.h"
#include "apps/training/cluster_report.h"
#include "apps/training/compress_report.h"
#include "apps/training/divergence.h"
#include "apps/training/due.h"
#include "apps/training/probe_report.h"
#include "apps/training/registries.h"
#include "apps/training/step_exchange.h"
#include "apps/training/sync_report.h"
#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/parallel.h"
#include "core/profile.h"
#include "data/click_loader.h"
#include "distributed/comm/launch.h"
#include "distributed/tables/table_sync.h"

#include <fmt/format.h>

namespace lockstep::apps {
namespace {

using autograd::backward;
using distributed::GradientProbe;
using distributed::Sync;
using optim::StepVerdict;

data::SamplerOptions sampling(const RecommenderOptions& o, const data::ClickSource& source,
                              int rank) {
  return {.samples = source.samples(),
          .global_batch = o.global_batch,
          .ranks = static_cast<int>(o.ranks),
          .rank = rank,
          .micro_batches = static_cast<int>(o.accumulate),
          .seed = static_cast<uint64_t>(o.seed),
          .order = source.order()};
}

// What all ranks' run has in common; rank 0 writes it.
struct Session {
  std::optional<Books> books;
  distributed::CommStats comm;  ///< rank 0's, up to its last step
  bool closed = false;          ///< the summary is written
};

// One rank's run; `result` is filled by rank 0, `profile` may be null.
void train_rank(distributed::Communicator& comm, const RecommenderOptions& o, const ClickData& data,
                const std::optional<data::BestPossible>& best, const nlohmann::ordered_json& config,
                Session& session, TrainResult& result, Profile* profile,
                const distributed::virtual_cluster::Run* modelled) {
  const Profile::Attach profiling(profile);
  const ThreadBudget budget(static_cast<int>(o.threads));
  const data::ClickSchema& schema = data.source->schema();
  const auto tables = distributed::make_table_sync(table_strategy_of(o.sync));
  const DlrmConfig shape = o.model(schema);
  distributed::TableContext context{
      .comm = &comm,
      .rows = schema.table_rows,
      .width = o.dim,
      .lookups = checked_mul(checked_mul(o.batch, schema.largest_bag), o.accumulate),
      .initial = {},
      .optimizer = [&](const Tensor& rows) {
        return optim::make_table_optimizer(o.table_optimizer, rows, {.lr = o.table_lr});
      }};
  Dlrm model(shape, static_cast<uint64_t>(o.seed), tables->local_rows(context));
  context.initial = [&](const Tensor& out, int64_t row) { model.initial_rows(out, row); };
  const autograd::Autocast autocast(o.precision.compute_dtype());
  optim::FlatParams params(model, o.precision.buffers());
  // Before ranks may go apart: another one's failure finds them open.
  Books* books = nullptr;
  const int64_t parameters = params.all().numel() + table_elements(schema, o.dim);
  if (comm.rank() == 0)
    books = &session.books.emplace(o, "train recommender", config, parameters,
                                   Throughput{.samples_per_step = o.global_batch});
  const auto strategy = distributed::make_strategy(o.sync);
  o.check_uneven(o.sync, *strategy);
  distributed::Reducer reducer(params, comm, *strategy, o.reducer_options());
  tables->attach(context, model.tables().weight(), model.tables().gradient());
  reducer.add_tables(*tables);
  const auto optimizer = optim::make_optimizer(o.optimizer, params.all(), o.optimizer_options());
  const optim::Schedule learning_rate = o.learning_rate(),
                        table_learning_rate = o.table_learning_rate();
  optim::GradScaler scaler(
      o.precision.scaler(static_cast<double>(checked_mul(o.batch, o.accumulate))));
  reducer.start(*optimizer);
  data::ClickLoader loader(data.source, sampling(o, *data.source, comm.rank()), {});
  // Whether this rank knows its own loss only, and decides by it.
  const auto alone = [&] {
    return strategy->verdict_scope() != distributed::VerdictScope::all_ranks;
  };
  const bool apart = strategy->steps_between_sync() == 0;  // ranks never meet
  StepExchange exchange(comm, *strategy);
  std::optional<GradientProbe> probe;
  if (books && o.precision.probing())
    probe.emplace(params, o.precision.buffers().grads, comm.size());
  const int64_t held_out = data.source->held_out();
  const int64_t evaluated = o.val_samples > 0 ? std::min(o.val_samples, held_out) : held_out;
  std::optional<ClickEvaluation> newest;
  const auto reports = [&](nlohmann::ordered_json& more) {
    distributed::StrategyReport dense, sparse;
    strategy->report(dense);
    tables->report(sparse);
    if (!dense.empty()) more["sync"] = sync_json(dense);
    if (!sparse.empty()) more["tables"] = sync_json(sparse);
    result.sync = dense.text() + (sparse.empty() ? "" : "tables: " + sparse.text());
  };
  int64_t steps_made = 0;
  const auto finish = [&](const std::string& status) {
    nlohmann::ordered_json more{{"parameters", parameters},
                                {"buckets", reducer.buckets().size()},
                                {"loss_scale", scaler.loss_scale()}};
    if (newest) more.update(evaluation_json(*newest, best));
    if (modelled && !(alone() && status == "diverged")) more.update(cluster_json(*modelled, 0));
    more.update(bad_rows_json(*data.source));
    if (profile != nullptr) more["profile"] = profile_json(*profile);
    if (status != "diverged") reports(more);  // the other ranks may have gone
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
    if (books) finish("diverged");
    if (!alone())
      comm.barrier();  // the first rank to throw ends the others: not before the books are closed
    throw SystemError(Fault::numeric, how);
  };

  int signal = 0;
  int64_t updates = 0;  // steps that were applied: what the schedule goes by
  std::optional<StepSeen> last;
  for (int64_t step = 0; step < o.steps && signal == 0; ++step) {
    const ProfileSpan profiled(Profile::Kind::step, "step");
    ProfilePhases phase;
    const StepClock clock(comm);
    optimizer->set_lr(learning_rate.at(updates));
    tables->set_lr(table_learning_rate.at(updates));
    const bool probing = probe && due_since(step - 1, step, o.precision.probe_every);
    if (probing) probe->begin(scaler.loss_scale());
    reducer.observe(probing ? &*probe : nullptr);

    // The loss is a sum over samples: ranks and micro-batches add up, and the verdict divides by
    // the weight of them all, once.
    double loss_sum = 0;
    int64_t samples = 0;
    // Ranks that go apart end as they do when they run out of data: together where they must.
    const int stopping = apart ? interrupt_signal() : 0;
    for (int64_t micro = 0; micro < o.accumulate && stopping == 0; ++micro) {
      phase.enter("data");
      const data::ClickBatch& batch = loader.next();
      const int64_t n = batch.samples();  // 0 in the short last step of an epoch, or all malformed
      phase.enter("fetch");
      const Tensor rows = tables->fetch(n > 0 ? batch.rows : Tensor(), batch.offsets);
      if (n == 0) continue;
      const auto window =
          reducer.micro({.sync = micro + 1 == o.accumulate ? Sync::now : Sync::later,
                         .weight = static_cast<double>(n),
                         .scale = scaler.scale()});
      phase.enter("forward");
      const Tensor loss =
          model.loss_sum(batch.dense, rows, batch.offsets,
                         shape.mode == BagMode::weighted ? batch.weights : Tensor(), batch.labels);
      loss_sum += loss.item();
      samples += n;
      phase.enter("backward");
      backward(scaler.scale(loss));
    }
    phase.enter("synchronise");
    StepVerdict verdict = reducer.finish_backward(scaler);
    // A window of malformed rows, or one of a short step without any for a rank that decides alone,
    // is not the end of the data.
    const bool idle = verdict.active_ranks == 0 && stopping == 0;
    if (!idle && reducer.exhausted(verdict)) {  // --uneven stop, and a rank has none
      signal = stopping;
      break;
    }
    exchange.post(loss_sum, samples, apart ? 0 : interrupt_signal());
    phase.enter("clip");
    if (o.clip > 0) verdict.clip(reducer.grad_norm(verdict), o.clip);
    phase.enter("optimizer");
    verdict = reducer.step(*optimizer, verdict);  // and the tables'
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
    if (modelled) add_times(record, *comm.virtual_time(), modelled->steps[comm.rank()].back());
    // Without data of its own a rank that goes apart knows no newer one.
    record.loss = all.tokens > 0 ? all.loss_sum / static_cast<double>(all.tokens)
                  : last         ? last->loss
                                 : 0;
    record.lr = optimizer->lr();
    record.samples = all.tokens;
    record.scale = scale;
    record.skipped = !verdict.apply;
    last = {.step = record.step,
            .loss = record.loss,
            .verdict = verdict,
            .updates = updates,
            .tables = true};
    const auto divergence = find_divergence(*last, params, scaler);
    const bool due = record.step == o.steps || due_since(step, record.step, o.eval_every);
    if (due && evaluated > 0 && signal == 0 && !divergence) {
      phase.enter("evaluation");
      const auto evaluating = reducer.evaluating(*optimizer);  // on all ranks, whoever looks at it
      ClickEvaluation seen;
      if (books || !apart)
        seen = evaluate_clicks(model, *tables, *data.source, evaluated, o.batch,
                               apart ? nullptr : &comm);
      if (!apart) signal = seen.signal;
      if (seen.signal == 0 && seen.samples > 0) {
        record.val_loss = last->val_loss = seen.log_loss;
        record.more.update(evaluation_json(seen, std::nullopt));
        record.note = "held out: " + evaluation_text(seen, best);
        if (books) result.evaluation = evaluation_text(seen, best);
        newest = seen;
      }
    }
    phase.enter("account");
    if (books && due && !divergence) reports(record.more);
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
  }
  if (last && signal == 0)
    if (const auto divergence = find_divergence_at_end(*last, params, scaler)) diverge(*divergence);
  reducer.end();
  if (modelled) await_all();
  if (!books) return;
  books->directory.keep();
  finish(signal == 0 ? "finished" : "interrupted");
  result.exit_code = signal == 0 ? 0 : 128 + signal;
}

// Ends the books of a run that another rank than rank 0 found to be lost.
void close_books(Session& session, const distributed::virtual_cluster::Run* modelled) {
  if (session.closed || !session.books) return;
  nlohmann::ordered_json more = nlohmann::ordered_json::object();
  if (modelled) more.update(cluster_json(*modelled, 0));
  session.books->log.finish({"diverged", session.comm, std::move(more)});
  session.books->directory.keep();
  session.closed = true;
}

}  // namespace

TrainResult train_recommender(const RecommenderOptions& o, const ClickData& data,
                              const nlohmann::ordered_json& config) {
  TrainResult result;
  const Profiles profiles = make_profiles(o);
  Session session;
  std::optional<data::BestPossible> best;
  if (data.find_best) best = data.find_best();
  const distributed::CommOptions comm = o.comm_options();
  const auto& cluster = comm.virtual_run;
  try {
    distributed::run_ranks(static_cast<int>(o.ranks), comm, [&](distributed::Communicator& rank) {
      train_rank(rank, o, data, best, config, session, result,
                 o.profile ? profiles[static_cast<size_t>(rank.rank())].get() : nullptr,
                 cluster.get());
    });
  } catch (const SystemError& e) {
    if (e.fault() == Fault::numeric) close_books(session, cluster.get());
    throw;
  }
  if (cluster) result.cluster = report_cluster(*cluster, result.directory);
  if (o.profile) result.profile = report_profiles(profiles, result.directory);
  return result;
}

}  // namespace lockstep::apps
