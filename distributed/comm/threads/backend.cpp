// The backend `threads`: ranks are threads of this process.
#include <numeric>

#include "distributed/comm/threads/member.h"
#include "distributed/comm/threads/rank_threads.h"

namespace lockstep::distributed::threads {
namespace {

class ThreadsWork final : public Work {
 public:
  ThreadsWork(std::shared_ptr<Member> member, int64_t sequence)
      : member_(std::move(member)), sequence_(sequence) {}

 protected:
  bool poll() override { return seen(member_->finished(sequence_) || member_->poll(sequence_)); }
  bool block(const Clock::time_point* until) override {
    return seen(member_->wait(sequence_, until));
  }

 private:
  bool seen(bool finished) {
    if (finished) member_->release(sequence_);
    return finished;
  }
  std::shared_ptr<Member> member_;
  int64_t sequence_;
};

class ThreadsPort final : public ServicePort, private LocalRanks {
 public:
  ThreadsPort(std::shared_ptr<Member> member, std::shared_ptr<LocalService> service)
      : member_(std::move(member)), service_(std::move(service)) {}
  void call(ServiceCall& call) override {
    service_->call(*this, call);
    member_->count_moved(call.bytes());
  }

 private:
  int rank() const override { return member_->rank(); }
  int size() const override { return member_->size(); }
  std::string name_of_rank(int rank) const override { return group().name_of_rank(rank); }
  std::chrono::milliseconds timeout() const override { return group().timeout(); }
  bool left(int rank) const override { return group().seat(rank).left.load(); }
  void progress() override { member_->progress(); }
  [[noreturn]] void fail(const std::string& text, const FaultSite& site) override {
    member_->fail({text, site, rank()});
  }
  Group& group() const { return member_->group(); }

  std::shared_ptr<Member> member_;
  std::shared_ptr<LocalService> service_;
};

class ThreadsBackend final : public CommBackend {
 public:
  ThreadsBackend(std::shared_ptr<Group> group, int rank)
      : member_(std::make_shared<Member>(std::move(group), rank)) {}
  ~ThreadsBackend() override { member_->leave(); }

  std::string_view name() const override { return "threads"; }
  int rank() const override { return member_->rank(); }
  int size() const override { return member_->size(); }

  WorkPtr post(const Operation& operation) override {
    member_->post(operation);
    return make_pooled<ThreadsWork>(member_, operation.sequence);
  }
  void progress() override { member_->progress(); }
  std::unique_ptr<CommBackend> split(const Operation& operation, int color, int key) override {
    member_->post(operation, color, key);
    member_->wait(operation.sequence, nullptr);
    if (color == kNobody) return nullptr;
    auto [group, rank] = member_->part(operation.sequence);
    return std::make_unique<ThreadsBackend>(std::move(group), rank);
  }
  void abort(const std::string& cause) noexcept override { member_->abort(cause); }
  std::unique_ptr<ServicePort> open_service(int64_t number, const MakeServiceLogic& make) override {
    return std::make_unique<ThreadsPort>(member_,
                                         member_->group().services().get(number, size(), make));
  }
  int64_t moved_bytes() const override { return member_->moved_bytes(); }

 private:
  std::shared_ptr<Member> member_;
};

class ThreadsLauncher final : public Launcher {
 public:
  explicit ThreadsLauncher(const Spec&) {}

  void run(int ranks, const CommOptions& options, const RankFunction& function) override {
    std::vector<int> world(static_cast<size_t>(ranks));
    std::iota(world.begin(), world.end(), 0);
    const auto group = std::make_shared<Group>(std::move(world), options.timeout);
    run_rank_threads(
        ranks, *group, [&](int rank) { return std::make_unique<ThreadsBackend>(group, rank); },
        [](const Failure&) {}, function);
  }
};

const Register<Launcher, ThreadsLauncher> registered{
    "threads", "ranks are threads of this process; slices folded in rank order"};

}  // namespace
}  // namespace lockstep::distributed::threads
