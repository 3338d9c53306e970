// The backend `solo`: one rank, nobody to talk to. Every operation is done when it returns.
#include <cstring>

#include "core/check.h"
#include "distributed/comm/fold.h"
#include "distributed/comm/launch.h"

namespace lockstep::distributed {
namespace {

class DoneWork final : public Work {
 protected:
  bool poll() override { return true; }
  bool block(const Clock::time_point*) override { return true; }
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
  void progress() override {
    if (!failure_.empty()) throw SystemError(Fault::communication, failure_, {0, "", -1});
  }
  std::unique_ptr<CommBackend> split(const Operation&, int color, int) override {
    progress();
    return color == kNobody ? nullptr : std::make_unique<SoloBackend>();
  }
  void abort(const std::string& cause) noexcept override { failure_ = cause; }
  int64_t moved_bytes() const override { return 0; }

 private:
  std::string failure_;
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
