#include "distributed/comm/threads/member.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "core/parallel.h"
#include "distributed/comm/flight_recorder.h"

// Note [Collectives without helper threads]
//
// Every rank publishes operation s in its own ring entry and raises its `posted` counter to s. A
// rank that is inside the communicator (progress, wait) looks whether all have posted the oldest
// operation of which it has not done its share, checks that the entries agree, does its share on
// everybody's buffers, and raises its `finished` counter. An operation is over when all counters
// have passed it.
//
// For an all-reduce the share is a slice: folded from all buffers in rank order and written to all
// buffers. So there is one pass over memory, every bit is the same everywhere, and 2·(n-1)/n of the
// bytes cross between ranks, as with a ring.
//
// Entries are recycled: posting s waits until all have finished s - kRing. A rank's tensors stay
// referenced by its entry until then. Failing is two steps: set `failed`, then wait until nobody is
// `busy`; a share raises `busy` before it looks at `failed`. So after an error was thrown on a rank
// nobody reads or writes its tensors any more.

namespace lockstep::distributed::threads {
namespace {

// Pauses before a rank gives its core away; a hundred are some 2 to 5 microseconds. Where spinning
// does not help (uneven ranks, a busy machine) a rank soon spins no longer than the least.
constexpr int kLeastSpins = 200, kMostSpins = 4000;
constexpr int kYields = 16;

std::string seconds_text(std::chrono::milliseconds t) {
  return fmt::format("{:g} s", std::chrono::duration<double>(t).count());
}

}  // namespace

Member::Member(std::shared_ptr<Group> group, int rank)
    : group_(std::move(group)), rank_(rank), crowded_(group_->size() > available_cores()) {
  ins_.resize(static_cast<size_t>(size()));
  outs_.resize(static_cast<size_t>(size()));
}

void Member::leave() noexcept {
  group_->seat(rank_).left.store(true);
  group_->wake();
}

void Member::post(const Operation& op, int color, int key) {
  if (group_->failed()) throw_failure();
  const int64_t sequence = op.sequence, recycled = sequence - Group::kRing;
  if (recycled > all_finished_) {
    wait_until(
        recycled, [&] { return all_reached(recycled, &Seat::finished); }, nullptr);
    all_finished_ = recycled;
  }

  Entry& entry = mine(sequence);
  entry.verb = op.verb;
  entry.dtype = op.in.defined() ? op.in.dtype() : op.out.defined() ? op.out.dtype() : DType::f32;
  entry.in_numel = op.in.defined() ? op.in.numel() : 0;
  entry.out_numel = op.out.defined() ? op.out.numel() : 0;
  entry.reduce = op.reduce;
  entry.root = op.root;
  entry.to = op.to;
  entry.from = op.from;
  entry.in = op.in.defined() ? op.in.bytes_data() : nullptr;
  entry.out = op.out.defined() ? op.out.mutable_bytes_data() : nullptr;
  entry.counts.assign(op.counts.begin(), op.counts.end());
  entry.send_counts.assign(op.send_counts.begin(), op.send_counts.end());
  entry.receive_counts.assign(op.receive_counts.begin(), op.receive_counts.end());
  entry.color = color;
  entry.key = key;
  entry.part = nullptr;
  entry.keep_in = op.in;
  entry.keep_out = op.out;
  entry.reduce.tag = op.tag;
  entry.phase.store(op.phase.what, std::memory_order_relaxed);
  entry.phase_step.store(op.phase.step, std::memory_order_relaxed);

  posted_ = sequence;
  group_->seat(rank_).posted.store(sequence);
  // Whoever comes last wakes the sleepers; who waits for single partners cannot tell who is last.
  if (op.verb == Verb::send_recv || ready(sequence)) group_->wake();
}

bool Member::matters(int64_t sequence, int other) {
  if (other == rank_) return false;
  const Entry& entry = mine(sequence);
  return entry.verb != Verb::send_recv || other == entry.to || other == entry.from;
}

template <class Counter>
bool Member::all_reached(int64_t sequence, Counter counter) {
  for (int rank = 0; rank < size(); ++rank)
    if ((group_->seat(rank).*counter).load() < sequence) return false;
  return true;
}

bool Member::ready(int64_t sequence) {
  for (int rank = 0; rank < size(); ++rank)
    if (matters(sequence, rank) && group_->seat(rank).posted.load() < sequence) return false;
  return true;
}

bool Member::finished(int64_t sequence) {
  if (sequence <= all_finished_) return true;
  if (shared_ < sequence) return false;
  for (int rank = 0; rank < size(); ++rank)
    if (matters(sequence, rank) && group_->seat(rank).finished.load() < sequence) return false;
  if (mine(sequence).verb != Verb::send_recv) all_finished_ = sequence;
  return true;
}

void Member::do_shares() {
  Seat& seat = group_->seat(rank_);
  while (shared_ < posted_ && ready(shared_ + 1)) {
    const int64_t sequence = shared_ + 1;
    seat.busy.store(true);
    if (group_->failed()) {
      seat.busy.store(false);
      return;
    }
    if (std::string text = mismatch(sequence); !text.empty()) {
      seat.busy.store(false);
      fail({std::move(text), {rank_, std::string(name_of(mine(sequence).verb)), sequence}, rank_});
    }
    run_share(sequence);
    seat.busy.store(false);
    shared_ = sequence;
    seat.finished.store(sequence);
    if (mine(sequence).verb == Verb::send_recv || all_reached(sequence, &Seat::finished))
      group_->wake();
  }
}

void Member::progress() {
  do_shares();
  if (group_->failed()) throw_failure();
}

// What has finished has not failed, whatever came after: first look, then throw.
bool Member::poll(int64_t sequence) {
  do_shares();
  if (finished(sequence)) return true;
  if (group_->failed()) throw_failure();
  return false;
}

bool Member::wait(int64_t sequence, const Clock::time_point* until) {
  return wait_until(
      sequence, [&] { return finished(sequence); }, until);
}

int Member::departed(int64_t sequence) {
  for (int rank = 0; rank < size(); ++rank) {
    const Seat& seat = group_->seat(rank);
    if (rank != rank_ && seat.left.load() && seat.finished.load() < sequence &&
        matters(sequence, rank))
      return rank;
  }
  return kNobody;
}

template <class Done>
bool Member::wait_until(int64_t sequence, Done&& done, const Clock::time_point* until) {
  const Clock::time_point limit = until ? *until : Clock::now() + group_->timeout();
  const auto something_to_do = [&] {
    return (shared_ < posted_ && ready(shared_ + 1)) || done() || group_->failed() ||
           departed(oldest_open(sequence)) != kNobody;
  };
  for (;;) {
    do_shares();
    if (done()) return true;  // before a failure is looked for; see poll()
    if (group_->failed()) throw_failure();
    if (const int rank = departed(oldest_open(sequence)); rank != kNobody) leave_behind(rank);
    bool woken = false;
    for (int i = 0; i < (crowded_ ? kYields : spins_) && !woken; ++i) {
      if (crowded_)
        std::this_thread::yield();
      else
        pause_briefly();
      woken = something_to_do();
    }
    spins_ = woken ? std::min(2 * spins_, kMostSpins) : std::max(spins_ / 2, kLeastSpins);
    if (woken || group_->sleep(something_to_do, limit)) continue;
    if (until) return false;
    time_out(sequence);
  }
}

void Member::release(int64_t sequence) {
  if (sequence <= posted_ - Group::kRing) return;  // the entry serves another operation by now
  mine(sequence).keep_in = {};
  mine(sequence).keep_out = {};
}

void Member::abort(const std::string& cause) noexcept {
  group_->fail({cause, {group_->world_rank(rank_), "", -1}, rank_});
  group_->quiesce(rank_);
}

void Member::fail(Failure failure) {
  group_->fail(std::move(failure));
  throw_failure();
}

void Member::throw_failure() {
  group_->quiesce(rank_);
  throw SystemError(Fault::communication, group_->failure().text, group_->failure().site);
}

std::string Member::describe_mine(int64_t sequence) {
  const Entry& entry = mine(sequence);
  return describe(entry.verb, sequence, entry.reduce.tag,
                  std::max(entry.in_numel, entry.out_numel) * size_of(entry.dtype));
}

std::string Member::last_finished(int rank) {
  const int64_t last = group_->seat(rank).finished.load();
  if (last == 0) return "has finished nothing yet";
  const Entry& entry = group_->entry(rank, last);
  const std::string phase = describe(Phase{entry.phase.load(std::memory_order_relaxed),
                                           entry.phase_step.load(std::memory_order_relaxed)});
  return fmt::format("last finished #{}{}", last, phase.empty() ? "" : " (" + phase + ")");
}

void Member::leave_behind(int rank) {
  const int64_t sequence = oldest_open(posted_);
  fail({fmt::format("{} left before {}; it {}", group_->name_of_rank(rank), describe_mine(sequence),
                    last_finished(rank)),
        {rank, std::string(name_of(mine(sequence).verb)), sequence},
        rank_});
}

std::string Member::late_text(const std::vector<int>& late) {
  if (late.size() == 1) return group_->name_of_rank(late[0]);
  return fmt::format("ranks {} of {}", fmt::join(late, ", "), size());
}

void Member::time_out(int64_t waited_for) {
  const int64_t sequence = oldest_open(waited_for);
  std::vector<int> absent, slow;
  for (int rank = 0; rank < size(); ++rank) {
    if (!matters(sequence, rank)) continue;
    const Seat& seat = group_->seat(rank);
    if (seat.posted.load() < sequence)
      absent.push_back(rank);
    else if (seat.finished.load() < sequence)
      slow.push_back(rank);
  }
  const std::vector<int>& late = absent.empty() ? slow : absent;
  if (late.empty()) return;  // they came at the last moment
  std::string text =
      fmt::format("{} {} {} within {}; ", late_text(late),
                  absent.empty() ? "started but did not finish" : "did not arrive at",
                  describe_mine(sequence), seconds_text(group_->timeout()));
  for (size_t i = 0; i < late.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ",
                        late.size() == 1 ? "it" : fmt::format("rank {}", late[i]),
                        last_finished(late[i]));
  fail({std::move(text), {late[0], std::string(name_of(mine(sequence).verb)), sequence}, rank_});
}

}  // namespace lockstep::distributed::threads
