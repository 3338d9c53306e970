#include "distributed/comm/threads/group.h"

#include <fmt/format.h>

#include <thread>

namespace lockstep::distributed::threads {

Group::Group(std::vector<int> world_ranks, std::chrono::milliseconds timeout)
    : world_ranks_(std::move(world_ranks)),
      timeout_(timeout),
      seats_(world_ranks_.size()),
      entries_(world_ranks_.size() * kRing) {}

std::string Group::name_of_rank(int rank) const {
  std::string text = fmt::format("rank {} of {}", rank, size());
  if (world_rank(rank) != rank) text += fmt::format(" (rank {} of all)", world_rank(rank));
  return text;
}

void Group::fail(Failure failure) noexcept {
  std::vector<std::weak_ptr<Group>> parts;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = std::move(failure);
    failed_.store(true);
    parts = std::move(parts_);
  }
  changed_.notify_all();
  for (const std::weak_ptr<Group>& weak : parts)
    if (const std::shared_ptr<Group> part = weak.lock()) part->fail(*failure_);
}

void Group::quiesce(int self) const noexcept {
  for (int rank = 0; rank < size(); ++rank)
    while (rank != self && seats_[rank].busy.load()) std::this_thread::yield();
}

void Group::wake() noexcept {
  if (sleepers_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }  // a sleeper is now either waiting or will look again
  changed_.notify_all();
}

std::shared_ptr<Group> Group::make_part(const std::vector<int>& ranks) {
  std::vector<int> world;
  for (int rank : ranks) world.push_back(world_ranks_[rank]);
  auto part = std::make_shared<Group>(std::move(world), timeout_);
  std::unique_lock lock(mutex_);
  if (failure_) {
    lock.unlock();
    part->fail(*failure_);
  } else {
    parts_.push_back(part);
  }
  return part;
}

}  // namespace lockstep::distributed::threads
