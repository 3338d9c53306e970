// The backend `threads`: ranks are threads of this process.
#include <fmt/format.h>

#include <exception>
#include <numeric>
#include <system_error>
#include <thread>

#include "core/parallel.h"
#include "distributed/comm/launch.h"
#include "distributed/comm/threads/member.h"

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
  int64_t moved_bytes() const override { return member_->moved_bytes(); }

 private:
  std::shared_ptr<Member> member_;
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

class ThreadsLauncher final : public Launcher {
 public:
  explicit ThreadsLauncher(const Spec&) {}

  void run(int ranks, const CommOptions& options, const RankFunction& function) override {
    std::vector<int> world(static_cast<size_t>(ranks));
    std::iota(world.begin(), world.end(), 0);
    const auto group = std::make_shared<Group>(std::move(world), options.timeout);
    if (ranks == 1) {
      Communicator comm(std::make_unique<ThreadsBackend>(group, 0));
      return function(comm);
    }
    std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
    const auto run_rank = [&](int rank) {
      const ThreadBudget budget(1);
      try {  // nothing may leave the thread, not even what making the communicator throws
        Communicator comm(std::make_unique<ThreadsBackend>(group, rank));
        try {
          function(comm);
        } catch (...) {
          errors[rank] = std::current_exception();
          comm.abort(fmt::format("rank {} of {} failed: {}", rank, ranks, text_of(errors[rank])));
        }
      } catch (...) {
        if (!errors[rank]) errors[rank] = std::current_exception();
        group->fail({text_of(errors[rank]), {}, rank});
      }
    };
    start_and_join(ranks, *group, run_rank);
    throw_root_cause(*group, errors);
  }

 private:
  template <class F>
  static void start_and_join(int ranks, Group& group, const F& run_rank) {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(ranks));
    std::string refused;
    try {
      for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
    } catch (const std::system_error& e) {
      refused = fmt::format("[comm.threads] thread {} of {} could not be started: {}",
                            threads.size(), ranks, e.what());
      group.fail({refused, {}, kNobody});
    }
    for (std::thread& thread : threads) thread.join();
    if (!refused.empty()) throw SystemError(Fault::device, refused);
  }

  // The failure that ended the group was reported by the rank that met it first; what the others
  // threw only follows from it.
  static void throw_root_cause(const Group& group, const std::vector<std::exception_ptr>& errors) {
    if (group.failed() && group.failure().origin >= 0)
      if (const std::exception_ptr& root = errors[group.failure().origin])
        std::rethrow_exception(root);
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }
};

const Register<Launcher, ThreadsLauncher> registered{
    "threads", "ranks are threads of this process; slices folded in rank order"};

}  // namespace
}  // namespace lockstep::distributed::threads
