#include "distributed/comm/virtual_cluster/group.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/parallel.h"
#include "distributed/comm/flight_recorder.h"
#include "distributed/comm/virtual_cluster/overlap.h"
#include "distributed/comm/virtual_cluster/service.h"

namespace lockstep::distributed::virtual_cluster {

using threads::Entry;

namespace {

constexpr int64_t kWorthSharing = 1 << 16;  // bytes of an operation

}  // namespace

Group::Group(std::shared_ptr<World> world, std::shared_ptr<threads::Group> data,
             std::vector<int> world_ranks)
    : world_(std::move(world)),
      data_(std::move(data)),
      world_ranks_(std::move(world_ranks)),
      network_(world_->run->cluster, static_cast<int>(world_ranks_.size())),
      ranks_(world_ranks_.size()),
      busy_until_(world_ranks_.size()) {
  for (int rank = 0; rank < size(); ++rank) {
    ranks_[rank].member = std::make_unique<threads::Member>(data_, rank);
    ranks_[rank].pending.resize(kRing);
  }
}

double Group::end(int rank, int64_t sequence) const {
  const Rank& r = ranks_[rank];
  if (sequence <= r.posted - kRing) return 0;  // long ago
  const Pending& p = r.pending[static_cast<size_t>(sequence % kRing)];
  return p.timing == Timing::untimed ? 0 : p.end;
}

std::string Group::describe(int rank, int64_t sequence) {
  const Entry& e = data_->entry(rank, sequence);
  return distributed::describe(e.verb, sequence, e.reduce.tag,
                               std::max(e.in_numel, e.out_numel) * size_of(e.dtype));
}

bool Group::satisfied(int rank) const {
  const Rank& r = ranks_[rank];
  if (!r.for_all) return r.timed >= r.awaited;
  return std::ranges::all_of(ranks_, [&](const Rank& o) { return o.timed >= r.awaited; });
}

void Group::block(int rank, Scheduler::Lock& lock) {
  Rank& r = ranks_[rank];
  if (!satisfied(rank))
    world_->scheduler.block(
        world_rank(rank), [this, rank] { return describe(rank, ranks_[rank].awaited); }, lock);
  r.awaited = 0;
  r.for_all = false;
}

void Group::post(int rank, const Operation& operation, Timing timing, Scheduler::Lock& lock,
                 int color, int key) {
  Rank& r = ranks_[rank];
  world_->scheduler.throw_if_failed();
  if (operation.sequence > kRing) {
    r.awaited = operation.sequence - kRing;
    r.for_all = true;
    block(rank, lock);
    tell(rank, operation.sequence - kRing);  // its place is taken
  }
  r.member->post(operation, color, key);
  pending(rank, operation.sequence) = {
      .issued = world_->scheduler.now(world_rank(rank)), .end = 0, .timing = timing};
  r.posted = operation.sequence;
  settle(std::max(operation.in.defined() ? operation.in.bytes() : 0,
                  operation.out.defined() ? operation.out.bytes() : 0));
}

void Group::wait(int rank, int64_t sequence, Scheduler::Lock& lock) {
  ranks_[rank].awaited = sequence;
  block(rank, lock);
  world_->scheduler.advance(world_rank(rank), end(rank, sequence));
  tell(rank, sequence);
  ranks_[rank].member->release(sequence);
}

// What moves is a slice for each rank, so that cores which nobody computes on can help.
void Group::settle(int64_t bytes) {
  const bool together = bytes >= kWorthSharing && std::ranges::all_of(ranks_, [&](const Rank& r) {
                          return r.posted == ranks_.front().posted;
                        });
  const ThreadBudget budget(together ? 1 + world_->scheduler.free_cores() : 1);
  parallel_for(size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t rank = begin; rank < end; ++rank) ranks_[rank].member->progress();
  });
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < size(); ++rank) moved = settle_next(rank) || moved;
  }
  for (int rank = 0; rank < size(); ++rank) {
    Rank& r = ranks_[rank];
    if (r.awaited == 0 || !satisfied(rank)) continue;
    const double now = world_->scheduler.now(world_rank(rank));
    world_->scheduler.release(world_rank(rank), std::max(now, end(rank, r.awaited)));
  }
}

// The next operation of this rank, if it is through: when does it end?
bool Group::settle_next(int rank) {
  Rank& r = ranks_[rank];
  const int64_t sequence = r.timed + 1;
  if (sequence > r.posted || !r.member->finished(sequence)) return false;
  if (data_->entry(rank, sequence).verb == Verb::send_recv) {
    time_alone(rank, sequence);
    r.timed = sequence;
    return true;
  }
  for (const Rank& o : ranks_)
    if (o.timed != r.timed) return false;  // theirs come first
  time_together(sequence);
  for (Rank& o : ranks_) o.timed = sequence;
  return true;
}

void Group::finish(int rank, int64_t sequence, Interval time, double bytes) {
  Pending& p = pending(rank, sequence);
  p.end = time.end;
  p.time = time;
  p.bytes = bytes;
  p.to_tell = size() > 1;
}

// A rank's books are written at places of its own program, where it waits: when the others have
// come to a collective is known at some moment of real time, which may fall into another step.
void Group::tell(int rank, int64_t sequence) {
  if (sequence <= ranks_[rank].posted - kRing) return;  // it has been
  Pending& p = pending(rank, sequence);
  if (!p.to_tell) return;
  p.to_tell = false;
  const Entry& entry = data_->entry(rank, sequence);
  world_->run->timeline.communicated(world_rank(rank), p.time, name_of(entry.verb).data(),
                                     entry.reduce.tag, p.bytes);
}

void Group::time_together(int64_t sequence) {
  issued_.clear();
  bool untimed = false;
  for (int rank = 0; rank < size(); ++rank) {
    const Pending& p = pending(rank, sequence);
    untimed = untimed || p.timing == Timing::untimed;
    issued_.push_back(p.issued);
  }
  if (untimed) {
    for (int rank = 0; rank < size(); ++rank) pending(rank, sequence).timing = Timing::untimed;
    return;
  }
  const Cost cost = cost_of(sequence);
  const Interval time = collective(issued_, busy_until_, cost.seconds);
  for (int rank = 0; rank < size(); ++rank) finish(rank, sequence, time, cost.bytes);
}

void Group::time_alone(int rank, int64_t sequence) {
  if (pending(rank, sequence).timing == Timing::untimed) return;
  const Entry& e = data_->entry(rank, sequence);
  issued_.assign(1, pending(rank, sequence).issued);
  for (const int partner : {e.to, e.from})
    if (partner != kNobody) issued_.push_back(pending(partner, sequence).issued);
  const bool talks = (e.to != kNobody && e.to != rank) || (e.from != kNobody && e.from != rank);
  const Cost cost =
      talks ? network_.message(std::max(e.in_numel, e.out_numel) * size_of(e.dtype), size())
            : Cost{};
  const Interval time = collective(issued_, std::span(busy_until_).subspan(rank, 1), cost.seconds);
  finish(rank, sequence, time, cost.bytes);
}

Cost Group::cost_of(int64_t sequence) {
  const Entry& e = data_->entry(0, sequence);
  const auto parts = [&](const std::vector<int64_t>& counts) -> std::span<const int64_t> {
    bytes_.assign(counts.begin(), counts.end());
    for (int64_t& b : bytes_) b *= size_of(e.dtype);
    return bytes_;
  };
  switch (e.verb) {
    case Verb::all_reduce:
      return network_.all_reduce(e.in_numel * size_of(e.dtype));
    case Verb::reduce_scatter:
      return network_.reduce_scatter(parts(e.counts));
    case Verb::all_gather:
      return network_.all_gather(parts(e.counts));
    case Verb::broadcast:
      return network_.broadcast(e.in_numel * size_of(e.dtype));
    case Verb::all_to_all: {
      bytes_.clear();
      for (int rank = 0; rank < size(); ++rank)
        for (int64_t count : data_->entry(rank, sequence).send_counts)
          bytes_.push_back(count * size_of(e.dtype));
      return network_.all_to_all(bytes_);
    }
    case Verb::barrier:
    case Verb::split:
      return network_.barrier();
    case Verb::send_recv:
      break;  // see time_alone
  }
  return {};
}

std::pair<std::shared_ptr<Group>, int> Group::part(int rank, int64_t sequence) {
  auto [data, place] = ranks_[rank].member->part(sequence);
  std::weak_ptr<Group>& known = parts_[data.get()];
  std::shared_ptr<Group> part = known.lock();
  if (!part) {
    std::vector<int> worlds;
    for (int i = 0; i < data->size(); ++i) worlds.push_back(data->world_rank(i));
    known = part = std::make_shared<Group>(world_, data, std::move(worlds));
  }
  return {std::move(part), place};
}

std::shared_ptr<Service> Group::service(int64_t number, const MakeServiceLogic& make) {
  std::weak_ptr<Service>& known = services_[number];
  std::shared_ptr<Service> service = known.lock();
  if (!service) known = service = std::make_shared<Service>(make(), size());
  return service;
}

}  // namespace lockstep::distributed::virtual_cluster
