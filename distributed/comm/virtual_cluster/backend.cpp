// The backend `virtual`: ranks are threads of this process that compute real gradients and move
// real tensors, while the time this takes is that of a modelled cluster.
#include <algorithm>
#include <numeric>

#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/comm/threads/rank_threads.h"
#include "distributed/comm/virtual_cluster/group.h"
#include "distributed/comm/virtual_cluster/service.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

// Whether a communicator is that of the run, or one that was split off for use inside of the
// computation (SyncBN): waiting in such a one, a rank does not compute.
enum class Part { whole, some };

class VirtualWork final : public Work {
 public:
  VirtualWork(std::shared_ptr<Group> group, int rank, Part part, int64_t sequence)
      : group_(std::move(group)), rank_(rank), part_(part), sequence_(sequence) {}

 protected:
  // Over once its time has come for this rank.
  bool poll() override {
    const Scheduler::Lock lock = group_->world().scheduler.lock();
    if (!group_->complete(rank_, sequence_)) {
      group_->world().scheduler.throw_if_failed();
      return false;
    }
    if (group_->end(rank_, sequence_) > group_->world().scheduler.now(group_->world_rank(rank_)))
      return false;
    group_->tell(rank_, sequence_);
    return true;
  }
  bool block(const Clock::time_point*) override {
    World& world = group_->world();
    Scheduler::Lock lock = world.scheduler.lock();
    const int self = group_->world_rank(rank_);
    const double before = world.scheduler.now(self);
    group_->wait(rank_, sequence_, lock);
    if (Computing& span = world.computing[static_cast<size_t>(self)];
        part_ == Part::some && span.open)
      span.begin += world.scheduler.now(self) - before;
    return true;
  }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
  Part part_;
  int64_t sequence_;
};

class VirtualBackend final : public CommBackend {
 public:
  VirtualBackend(std::shared_ptr<Group> group, int rank, Part part)
      : group_(std::move(group)), rank_(rank), part_(part), self_(group_->world_rank(rank)) {
    if (part_ == Part::some) return;
    Scheduler::Lock lock = scheduler().lock();
    scheduler().enter(self_, lock);
  }
  ~VirtualBackend() override {
    if (part_ == Part::some) return;
    const Scheduler::Lock lock = scheduler().lock();
    scheduler().leave(self_);
  }

  std::string_view name() const override { return "virtual"; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  WorkPtr post(const Operation& operation) override {
    post_now(operation, kNobody, 0);
    return make_pooled<VirtualWork>(group_, rank_, part_, operation.sequence);
  }
  void progress() override {
    const Scheduler::Lock lock = scheduler().lock();
    scheduler().throw_if_failed();
  }
  std::unique_ptr<CommBackend> split(const Operation& operation, int color, int key) override {
    post_now(operation, color, key);
    Scheduler::Lock lock = scheduler().lock();
    group_->wait(rank_, operation.sequence, lock);
    if (color == kNobody) return nullptr;
    auto [group, rank] = group_->part(rank_, operation.sequence);
    return std::make_unique<VirtualBackend>(std::move(group), rank, Part::some);
  }
  void abort(const std::string& cause) noexcept override {
    const Scheduler::Lock lock = scheduler().lock();
    group_->data().fail({cause, {self_, "", -1}, rank_});
    scheduler().fail(cause, {self_, "", -1});
  }
  std::unique_ptr<ServicePort> open_service(int64_t number, const MakeServiceLogic& make) override {
    const Scheduler::Lock lock = scheduler().lock();
    return connect(group_, rank_, group_->service(number, make));
  }

  void compute_begins(const ComputeSpan& described) override {
    const Scheduler::Lock lock = scheduler().lock();
    const Durations& durations = group_->world().durations;
    Computing& span = computing();
    span = {.begin = scheduler().now(self_),
            .forward = durations.seconds(self_, described.micro, Pass::forward),
            .backward = durations.seconds(self_, described.micro, Pass::backward),
            .micro = described.micro,
            .open = true};
    scheduler().promise(self_, span.at(described.first_ready));
  }
  void compute_reached(double fraction) override {
    const Scheduler::Lock lock = scheduler().lock();
    Computing& span = computing();
    if (!span.open) return;
    scheduler().advance(self_, span.at(fraction));
    if (fraction < 1) return;
    Timeline& timeline = group_->world().run->timeline;
    const double middle = span.begin + span.forward;
    timeline.computed(self_, {span.begin, middle}, Pass::forward, span.micro);
    timeline.computed(self_, {middle, span.at(1)}, Pass::backward, span.micro);
    span.open = false;
  }
  void step_ends(int64_t) override {
    const Scheduler::Lock lock = scheduler().lock();
    Run& run = *group_->world().run;
    run.steps[self_].push_back(run.timeline.end_step(self_, scheduler().now(self_)));
  }
  std::optional<double> virtual_time() const override {
    const Scheduler::Lock lock = scheduler().lock();
    return scheduler().now(self_);
  }
  int64_t moved_bytes() const override {
    const Scheduler::Lock lock = scheduler().lock();
    return group_->member(rank_).moved_bytes();
  }

 private:
  Scheduler& scheduler() const { return group_->world().scheduler; }
  Computing& computing() const { return group_->world().computing[static_cast<size_t>(self_)]; }

  void post_now(const Operation& operation, int color, int key) {
    Scheduler::Lock lock = scheduler().lock();
    const auto timing = operation.untimed ? Group::Timing::untimed : Group::Timing::modelled;
    try {
      group_->post(rank_, operation, timing, lock, color, key);
    } catch (const SystemError& e) {  // ranks that disagree: the end for all of them
      scheduler().fail(e.what(), e.site());
      throw;
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
  Part part_;
  int self_;  // in the world
};

class VirtualLauncher final : public Launcher {
 public:
  explicit VirtualLauncher(const Spec&) {}

  void run(int ranks, const CommOptions& options, const RankFunction& function) override {
    std::shared_ptr<Run> run = options.virtual_run;
    if (!run) {  // computing takes no time, the network is the default one
      Cluster cluster;
      cluster.compute = 0;
      run = std::make_shared<Run>(cluster, ranks, 0);
    }
    check(run->timeline.ranks() == ranks,
          "[comm.virtual] a cluster of {} ranks was described, got {}", run->timeline.ranks(),
          ranks);
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    const int cores = run->cores > 0 ? run->cores : available_cores();
    const auto world = std::make_shared<World>(run, ranks, cores, options.timeout);
    const auto data = std::make_shared<threads::Group>(all, options.timeout);
    const auto group = std::make_shared<Group>(world, data, std::move(all));
    threads::run_rank_threads(
        ranks, *data,
        [&](int rank) { return std::make_unique<VirtualBackend>(group, rank, Part::whole); },
        [&](const threads::Failure& failure) {
          const Scheduler::Lock lock = world->scheduler.lock();
          world->scheduler.fail(failure.text, failure.site);
        },
        function);
  }
};

const Register<Launcher, VirtualLauncher> registered{
    "virtual", "real gradients, modelled time: --cluster describes compute and network"};

}  // namespace
}  // namespace lockstep::distributed::virtual_cluster
