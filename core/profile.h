#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// What a call has to do, where that is known: floating operations, bytes it must read and write.
struct Cost {
  double flops = 0, bytes = 0;
};

/// Where the time of one thread's steps goes. Kernels, backward passes and collectives report to
/// the profile of their thread (Attach), if there is one; where no thread has one, that costs them
/// a relaxed load and a branch. Spans nest, and a span's self time is its own without those inside
/// it. Counted is what happens within steps, but for the first few: caches fill and memory arrives
/// there. Once warm, recording allocates nothing unless a name is met for the first time or steps
/// have more than twice the spans of the last warm-up step. Names are literals.
///
///     Profile profile({.warm_up = 3});
///     const Profile::Attach attached(&profile);
///     for (…) { const ProfileSpan step(Profile::Kind::step, "step"); … }
///     for (const Profile::Row& row : profile.rows()) …
class Profile {
 public:
  enum class Kind : uint8_t {
    step,
    phase,       ///< of a step, as the app names them
    kernel,      ///< kernel::NAME
    backward,    ///< of the recorded operation NAME, the kernels it calls included
    collective,  ///< the thread posts, moves or awaits communication
    transfer,    ///< from posting a collective until it was seen finished: beside the others
  };
  struct Options {
    int64_t warm_up = 3;  ///< steps that do not count
    int64_t traced = 5;   ///< steps after them whose spans are kept
    int64_t (*now)() = steady_ns;
  };
  /// All calls of one name in one phase.
  struct Row {
    Kind kind = Kind::kernel;
    std::string_view name, phase;  ///< the innermost phase; "" outside all
    int64_t calls = 0, total_ns = 0, self_ns = 0;
    Cost cost;  ///< of all calls
  };
  struct Span {
    Kind kind = Kind::kernel;
    std::string_view name;
    int64_t begin_ns = 0, end_ns = 0;
    Cost cost;
  };

  Profile() : Profile(Options{}) {}
  explicit Profile(const Options& options);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  int64_t warm_up() const;  ///< steps that were left out
  int64_t steps() const;    ///< steps that count
  /// Largest self time first. Rows of a step and its phases: what was in no operation.
  std::vector<Row> rows() const;
  /// Of the traced steps, in the order in which they ended.
  std::span<const Span> spans() const;
  /// Spans of traced steps that were not kept: a million are.
  int64_t dropped() const;

  /// A collective was on its way; outside of steps nothing is noted.
  void transfer(std::string_view name, int64_t begin_ns, int64_t end_ns, Cost cost);
  int64_t now() const;

  /// The calling thread's profile; null for none.
  static Profile* here() {
    return attached_.load(std::memory_order_relaxed) == 0 ? nullptr : of_thread();
  }
  static bool any() { return attached_.load(std::memory_order_relaxed) != 0; }
  static int64_t steady_ns();

  /// Makes a profile (null: none) that of the calling thread while it lives.
  class Attach {
   public:
    explicit Attach(Profile* profile);
    ~Attach();
    Attach(const Attach&) = delete;
    Attach& operator=(const Attach&) = delete;

   private:
    Profile* before_;
  };

 private:
  friend class ProfileSpan;
  friend class ProfilePhases;
  static Profile* of_thread();
  bool begin(Kind kind, std::string_view name, Cost cost);  // false: outside of all steps
  void end() noexcept;

  static inline constinit std::atomic<int> attached_{0};
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Tells the profile of this thread, if any, what it is doing while it lives.
class ProfileSpan {
 public:
  ProfileSpan(Profile::Kind kind, std::string_view name, Cost cost = {})
      : profile_(Profile::here()) {
    if (profile_ != nullptr && !profile_->begin(kind, name, cost)) profile_ = nullptr;
  }
  ~ProfileSpan() {
    if (profile_ != nullptr) profile_->end();
  }
  ProfileSpan(const ProfileSpan&) = delete;
  ProfileSpan& operator=(const ProfileSpan&) = delete;

 private:
  Profile* profile_;
};

/// Phases one after the other: each ends where the next one begins.
class ProfilePhases {
 public:
  ProfilePhases() = default;
  ~ProfilePhases() { leave(); }
  ProfilePhases(const ProfilePhases&) = delete;
  ProfilePhases& operator=(const ProfilePhases&) = delete;
  void enter(std::string_view name) {
    leave();
    Profile* profile = Profile::here();
    if (profile != nullptr && profile->begin(Profile::Kind::phase, name, {})) profile_ = profile;
  }
  void leave() {
    if (profile_ != nullptr) std::exchange(profile_, nullptr)->end();
  }

 private:
  Profile* profile_ = nullptr;
};

}  // namespace lockstep
