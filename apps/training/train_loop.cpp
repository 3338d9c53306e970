#include "apps/training/train_loop.h"

#include "apps/cli/interrupt.h"
#include "apps/training/books.h"
#include "apps/training/cluster_report.h"
#include "apps/training/compress_report.h"
#include "apps/training/divergence.h"
#include "apps/training/due.h"
#include "apps/training/probe_report.h"
#include "apps/training/snapshots.h"
#include "apps/training/step_exchange.h"
#include "apps/training/sync_report.h"
#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "core/check.h"
#include "core/parallel.h"
#include "core/profile.h"
#include "distributed/comm/launch.h"

#include <fmt/format.h>

#include <limits>

namespace lockstep::apps {
namespace {

using distributed::Communicator;
using distributed::GradientProbe;
using distributed::MicroOptions;
using distributed::Sync;
using optim::StepVerdict;
using ClusterRun = distributed::virtual_cluster::Run;
using nlohmann::ordered_json;

// What a run keeps where it falls back to another strategy and begins again. Rank 0 writes it.
struct Session {
  std::optional<Books> books;
  std::string sync;                ///< spec of the strategy
  Snapshots* snapshots = nullptr;  ///< to fall back to; null: a divergence ends the run
  const Snapshot* from = nullptr;  ///< where this attempt begins; null: at the beginning
  double virtual_s = 0;            ///< modelled time of the attempts before
  ordered_json fallbacks = ordered_json::array();
  distributed::CommStats comm;  ///< rank 0's, up to its last step
  bool closed = false;          ///< the summary is written
  TrainResult result;
};

// One rank's run, from the first step to the last.
class RankRun {
 public:
  // `profile` and `modelled` may be null.
  RankRun(Communicator& comm, const Training& training, Session& session, Profile* profile,
          const ClusterRun* modelled)
      : training_(training),
        o_(training.options),
        comm_(comm),
        session_(session),
        profile_(profile),
        modelled_(modelled),
        profiling_(profile),
        budget_(static_cast<int>(o_.threads)),
        workload_(training.make(comm, session.from ? session.from->step : 0)),
        autocast_(o_.precision.compute_dtype()),
        params_(workload_->model(), o_.precision.buffers()),
        books_(open_books()),
        strategy_(distributed::make_strategy(session.sync)),
        reducer_(params_, comm, *strategy_, o_.reducer_options()),
        optimizer_(optim::make_optimizer(o_.optimizer, params_.all(), o_.optimizer_options())),
        learning_rate_(o_.learning_rate()),
        scaler_(o_.precision.scaler(static_cast<double>(
            checked_mul(checked_mul(o_.batch, o_.accumulate), training.weight_per_sample())))),
        apart_(strategy_->steps_between_sync() == 0),
        exchange_(comm, *strategy_) {
    workload_->attach(reducer_);
    if (session.from) {
      restore_rest(*session.from, *optimizer_, scaler_, workload_->model());
      updates_ = session.from->updates;
      accounted_ = session.from->step;
    }
    reducer_.start(*optimizer_);
    if (books_ && o_.precision.probing())
      probe_.emplace(params_, o_.precision.buffers().grads, comm.size());
  }

  void run() {
    if (const std::string text = workload_->warning(); books_ && !text.empty())
      books_->log.warn(text);
    take_snapshot(0, std::numeric_limits<double>::max());
    for (int64_t step = accounted_; step < o_.steps && signal_ == 0; step = after(step))
      if (!make_step(step)) break;
    if (last_ && signal_ == 0)
      if (const auto how = find_divergence_at_end(*last_, params_, scaler_)) diverge(*how);
    reducer_.end();
    // What is kept: one model, with all ranks' steps in it.
    const auto evaluating = reducer_.evaluating(*optimizer_);
    if (modelled_) await_all();
    if (!books_) return;
    workload_->save(books_->directory, params_, optimizer_->weights());
    books_->directory.keep();
    finish(signal_ == 0 ? "finished" : "interrupted");
    session_.result.exit_code = signal_ == 0 ? 0 : 128 + signal_;
  }

 private:
  // A window of micro-batches on this rank.
  struct Window {
    double loss_sum = 0;
    int64_t weight = 0;
    int stopping = 0;  // the signal that kept this rank from it
  };

  // Before ranks may go apart: another one's failure finds the books open.
  Books* open_books() {
    if (session_.from) restore_weights(*session_.from, params_);
    if (comm_.rank() != 0) return nullptr;
    if (!session_.books)
      session_.books.emplace(o_, training_.command, training_.config,
                             params_.all().numel() + workload_->more_parameters(),
                             Throughput{.samples_per_step = o_.global_batch,
                                        .tokens_per_sample = training_.tokens_per_sample});
    return &*session_.books;
  }

  // Whether this rank knows its own loss only, and decides by it. May change with a warm-up.
  bool alone() const { return strategy_->verdict_scope() != distributed::VerdictScope::all_ranks; }

  // Steps that others have made without this rank (backup), and their data, are left out; but the
  // books end with the last one.
  int64_t after(int64_t step) {
    const int64_t next = reducer_.next_step(step, books_ ? o_.steps - 1 : o_.steps);
    const int64_t left_out = next - step - 1;
    for (int64_t micro = left_out * o_.accumulate; micro > 0; --micro) workload_->next();
    updates_ += left_out;  // others have made them
    return next;
  }

  // The loss is a sum over tokens or samples: ranks and micro-batches add up, and the verdict
  // divides by the weight of them all, once.
  Window compute(ProfilePhases& phase) {
    Window window;
    // Ranks that go apart end as they do when they run out of data: together where they must.
    window.stopping = apart_ ? interrupt_signal() : 0;
    for (int64_t micro = 0; micro < o_.accumulate && window.stopping == 0; ++micro) {
      phase.enter("data");
      const int64_t weight = workload_->next();
      if (workload_->has_tables()) phase.enter("fetch");
      workload_->fetch();
      if (weight == 0 && !workload_->runs_empty()) continue;
      const auto open = reducer_.micro(
          {.sync = micro + 1 == o_.accumulate ? Sync::now : Sync::later,
           .weight = static_cast<double>(weight),
           .scale = scaler_.scale(),
           .samples = weight > 0 ? MicroOptions::Samples::yes : MicroOptions::Samples::no});
      phase.enter("forward");
      const Tensor loss = workload_->loss_sum();
      window.loss_sum += loss.item();
      window.weight += weight;
      phase.enter("backward");
      autograd::backward(scaler_.scale(loss));
    }
    return window;
  }

  // False: training ends before this step, for want of data.
  bool make_step(int64_t step) {
    const ProfileSpan profiled(Profile::Kind::step, "step");
    ProfilePhases phase;
    const StepClock clock(comm_);
    optimizer_->set_lr(learning_rate_.at(updates_));
    workload_->before_step(step, updates_);
    const bool probing = probe_ && due_since(accounted_ - 1, step, o_.precision.probe_every);
    if (probing) probe_->begin(scaler_.loss_scale());
    reducer_.observe(probing ? &*probe_ : nullptr);

    const Window window = compute(phase);
    phase.enter("synchronise");
    StepVerdict verdict = reducer_.finish_backward(scaler_);
    // Some ranks have no samples in the short last step of an epoch; where each decides alone that
    // is not the end of its data. Nor is a window of malformed ones.
    const bool idle =
        verdict.active_ranks == 0 && window.stopping == 0 && (apart_ || training_.empty_windows);
    if (!idle && reducer_.exhausted(verdict)) {  // --uneven stop, and a rank ran out of data
      signal_ = window.stopping;
      return false;
    }
    // Not before: a rank without data hands over its buckets in finish_backward, the others during
    // backward, and collectives have one order.
    exchange_.post(window.loss_sum, window.weight, apart_ ? 0 : interrupt_signal());
    phase.enter("clip");
    if (o_.clip > 0) verdict.clip(reducer_.grad_norm(verdict), o_.clip);
    phase.enter("optimizer");
    verdict = reducer_.step(*optimizer_, verdict);
    const double scale = scaler_.loss_scale();
    scaler_.update(verdict);
    reducer_.finish_step(step);
    ++steps_made_;
    updates_ += verdict.apply ? 1 : 0;

    phase.enter("synchronise");
    const StepExchange::Result all = exchange_.wait();
    phase.enter("account");
    signal_ = all.signal;
    StepRecord record = clock.record(step + 1);
    if (modelled_)
      add_times(record, session_.virtual_s + *comm_.virtual_time(),
                modelled_->steps[comm_.rank()].back());
    // Without data of its own a rank that goes apart knows no newer one.
    record.loss = all.tokens > 0 ? all.loss_sum / static_cast<double>(all.tokens)
                  : last_        ? last_->loss
                                 : 0;
    record.lr = optimizer_->lr();
    record.samples = all.tokens / training_.weight_per_sample();
    record.scale = scale;
    record.skipped = !verdict.apply;
    last_ = {.step = record.step,
             .loss = record.loss,
             .verdict = verdict,
             .updates = updates_,
             .tables = workload_->has_tables()};
    account(record, probing, phase);
    return true;
  }

  // What follows a step: evaluation, books, and whether the run is lost.
  void account(StepRecord& record, bool probing, ProfilePhases& phase) {
    const auto divergence = find_divergence(*last_, params_, scaler_);
    const bool due =
        record.step == o_.steps || due_since(accounted_, record.step, training_.eval_every);
    accounted_ = record.step;
    if (due && workload_->evaluates() && signal_ == 0 && !divergence) {
      phase.enter("evaluation");
      evaluate(record);
    }
    phase.enter("account");
    if (books_ && due && !divergence) report(record.more);
    if (probing) note_probe(record);
    if (books_) {
      books_->log.step(record);
      session_.comm = comm_.stats();
    }
    if (divergence) diverge(*divergence);
    take_snapshot(record.step, record.loss);
  }

  void evaluate(StepRecord& record) {
    const auto evaluating = reducer_.evaluating(*optimizer_);  // on all ranks, whoever looks at it
    if (apart_ && !books_) return;
    const Evaluated seen = workload_->evaluate(apart_ ? nullptr : &comm_);
    if (!apart_) signal_ = seen.signal;
    if (seen.signal != 0 || !seen.loss) return;
    record.val_loss = last_->val_loss = seen.loss;
    record.val_accuracy = seen.accuracy;
    record.more.update(seen.more);
    if (seen.text.empty()) return;
    record.note = "held out: " + seen.text;
    if (books_) session_.result.evaluation = seen.text;
  }

  void note_probe(StepRecord& record) {
    record.more["probe"] = probe_json(*probe_, params_);
    books_->log.note(fmt::format("step {}: {}", record.step, probe_line(*probe_, params_)));
    session_.result.probe =
        fmt::format("gradients of step {}, loss scale {}, this rank's view:\n{}", record.step,
                    record.scale, probe_text(*probe_, params_));
  }

  void take_snapshot(int64_t step, double loss) {
    if (books_ && session_.snapshots)
      session_.snapshots->after_step(step, updates_, loss, *optimizer_, scaler_,
                                     workload_->model());
  }

  // What strategies have to tell.
  void report(ordered_json& more) {
    distributed::StrategyReport report;
    strategy_->report(report);
    if (!report.empty()) more["sync"] = sync_json(report);
    session_.result.sync = report.text();
    workload_->report(more, session_.result.sync);
  }

  // Writes the summary.
  void finish(const std::string& status) {
    TrainResult& result = session_.result;
    ordered_json more{{"parameters", params_.all().numel() + workload_->more_parameters()},
                      {"buckets", reducer_.buckets().size()},
                      {"loss_scale", scaler_.loss_scale()}};
    if (modelled_ && !(alone() && status == "diverged"))
      more.update(cluster_json(*modelled_, session_.virtual_s));
    if (strategy_->waiting() > 0) more["gradients_never_applied"] = strategy_->waiting();
    workload_->summarise(more);
    if (const std::string text = workload_->warning(); !text.empty()) more["warning"] = text;
    if (!session_.fallbacks.empty()) more["fallbacks"] = session_.fallbacks;
    if (profile_ != nullptr) more["profile"] = profile_json(*profile_);
    if (status != "diverged") report(more);  // the other ranks may have gone
    if (const auto report = reducer_.exchange().report(); !report.spec.empty()) {
      more["compression"] = compression_json(report, steps_made_);
      result.compression = compression_text(report, steps_made_, o_.link_bandwidth());
    }
    result.summary = books_->log.finish({status, comm_.stats(), std::move(more)});
    result.directory = books_->directory.path();
    session_.closed = true;
  }

  // The books of a modelled cluster close when all ranks' steps have ended.
  void await_all() {
    const distributed::Untimed untimed(comm_);
    comm_.barrier();
  }

  [[noreturn]] void diverge(const std::string& how) {
    if (modelled_ && !alone()) await_all();
    if (books_ && !(session_.snapshots && session_.snapshots->good())) {
      finish("diverged");
      if (!session_.result.probe.empty()) books_->log.note(session_.result.probe);
    }
    if (!alone())
      comm_.barrier();  // the first rank to throw ends the others: not before the books are closed
    throw SystemError(Fault::numeric, how);
  }

  const Training& training_;
  const RunOptions& o_;
  Communicator& comm_;
  Session& session_;
  Profile* profile_;
  const ClusterRun* modelled_;
  const Profile::Attach profiling_;
  const ThreadBudget budget_;
  std::unique_ptr<Workload> workload_;
  const autograd::Autocast autocast_;
  optim::FlatParams params_;
  Books* books_;
  std::unique_ptr<distributed::SyncStrategy> strategy_;
  distributed::Reducer reducer_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Schedule learning_rate_;
  optim::GradScaler scaler_;
  const bool apart_;  // ranks never meet
  StepExchange exchange_;
  std::optional<GradientProbe> probe_;
  std::optional<StepSeen> last_;
  int64_t steps_made_ = 0;
  int64_t updates_ = 0;    // steps that were applied: what the schedule goes by
  int64_t accounted_ = 0;  // steps done when this rank last looked what is due
  int signal_ = 0;
};

// Ends the books of a run that another rank than rank 0 found to be lost.
void close_books(Session& session, const ClusterRun* modelled) {
  if (session.closed || !session.books) return;
  ordered_json more = ordered_json::object();
  if (modelled) more.update(cluster_json(*modelled, session.virtual_s));
  if (!session.fallbacks.empty()) more["fallbacks"] = session.fallbacks;
  session.books->log.finish({"diverged", session.comm, std::move(more)});
  session.books->directory.keep();
  session.closed = true;
}

}  // namespace

TrainResult train(const Training& training) {
  const RunOptions& o = training.options;
  const Profiles profiles = make_profiles(o);
  const OnDivergence on_divergence = OnDivergence::parse(o.on_divergence);
  Snapshots snapshots;
  Session session{.sync = o.sync};
  if (!on_divergence.fallback.empty()) session.snapshots = &snapshots;
  std::shared_ptr<ClusterRun> cluster;
  const auto attempt = [&] {
    const distributed::CommOptions comm = o.comm_options();
    cluster = comm.virtual_run;
    distributed::run_ranks(static_cast<int>(o.ranks), comm, [&](Communicator& rank) {
      RankRun(rank, training, session,
              o.profile ? profiles[static_cast<size_t>(rank.rank())].get() : nullptr, cluster.get())
          .run();
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
  TrainResult& result = session.result;
  if (cluster) result.cluster = report_cluster(*cluster, result.directory);
  if (o.profile) result.profile = report_profiles(profiles, result.directory);
  return std::move(result);
}

}  // namespace lockstep::apps
