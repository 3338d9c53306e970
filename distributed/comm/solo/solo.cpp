// The backend `solo`: one rank, nobody to talk to. Every operation is done when it returns.
#include <cstring>

#include "core/check.h"
#include "distributed/comm/fold.h"
#include "distributed/comm/launch.h"
#include "distributed/comm/local_service.h"

namespace lockstep::distributed {
namespace {

class DoneWork final : public Work {
 protected:
  bool poll() override { return true; }
  bool block(const Clock::time_point*) override { return true; }
};

// What the rank shares with the ports of its services.
struct Solo {
  std::string failure;
  int64_t moved = 0;  // to and from services
  void expect_alive() const {
    if (!failure.empty()) throw SystemError(Fault::communication, failure, {0, "", -1});
  }
};

class SoloPort final : public ServicePort, private LocalRanks {
 public:
  SoloPort(std::shared_ptr<Solo> solo, const MakeServiceLogic& make)
      : solo_(std::move(solo)), service_(1, make()) {}
  void call(ServiceCall& call) override {
    service_.call(*this, call);
    solo_->moved += call.bytes();
  }

 private:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string name_of_rank(int) const override { return "rank 0 of 1"; }
  std::chrono::milliseconds timeout() const override { return {}; }  // nobody to wait for
  bool left(int) const override { return false; }
  void progress() override { solo_->expect_alive(); }
  [[noreturn]] void fail(const std::string& text, const FaultSite& site) override {
    solo_->failure = text;
    throw SystemError(Fault::communication, text, site);
  }

  std::shared_ptr<Solo> solo_;
  LocalService service_;
};

class SoloBackend final : public CommBackend {
 public:
  std::string_view name() const override { return "solo"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  WorkPtr post(const Operation& op) override {
    progress();
    if (op.out.defined()) {
      const void* in = op.in.bytes_data();
      void* out = op.out.mutable_bytes_data();
      const bool folds = op.verb == Verb::all_reduce || op.verb == Verb::reduce_scatter;
      if (folds && (op.reduce.pre != 1 || op.reduce.post != 1))
        fold({&out, 1}, {&in, 1}, op.in.dtype(), op.in.numel(), op.reduce);
      else if (out != in && op.out.numel() > 0)
        std::memcpy(out, in, static_cast<size_t>(op.out.bytes()));
    }
    return make_pooled<DoneWork>();
  }
  void progress() override { solo_->expect_alive(); }
  std::unique_ptr<CommBackend> split(const Operation&, int color, int) override {
    progress();
    return color == kNobody ? nullptr : std::make_unique<SoloBackend>();
  }
  void abort(const std::string& cause) noexcept override { solo_->failure = cause; }
  std::unique_ptr<ServicePort> open_service(int64_t, const MakeServiceLogic& make) override {
    return std::make_unique<SoloPort>(solo_, make);
  }
  int64_t moved_bytes() const override { return solo_->moved; }

 private:
  std::shared_ptr<Solo> solo_ = std::make_shared<Solo>();
};

class SoloLauncher final : public Launcher {
 public:
  explicit SoloLauncher(const Spec&) {}
  void run(int ranks, const CommOptions&, const RankFunction& function) override {
    check(ranks == 1, "[comm.solo] expected 1 rank, got {}; use the backend threads", ranks);
    Communicator comm(std::make_unique<SoloBackend>());
    function(comm);
  }
};

const Register<Launcher, SoloLauncher> registered{"solo", "one rank on the calling thread"};

}  // namespace
}  // namespace lockstep::distributed
