#include "distributed/comm/local_service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::distributed {
namespace {

using Clock = std::chrono::steady_clock;

// How often a rank that waits looks after collectives and at the state of its group. Answers do not
// wait for it.
constexpr std::chrono::milliseconds kLook{1};

std::string text_of(const LocalRanks& self, const std::vector<int>& ranks) {
  if (ranks.size() == 1) return self.name_of_rank(ranks[0]);
  return fmt::format("ranks {} of {}", fmt::join(ranks, ", "), self.size());
}

}  // namespace

// A rank's place while it waits; it is taken back whatever happens, before the call's owner goes.
class LocalService::Seat {
 public:
  Seat(Place& place, ServiceCall& call, std::unique_lock<std::mutex>& lock)
      : place_(place), lock_(lock) {
    place_ = {.heard = place.heard, .call = &call};
  }
  ~Seat() {
    if (!lock_.owns_lock()) lock_.lock();
    place_ = {.heard = place_.heard};
  }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

 private:
  Place& place_;
  std::unique_lock<std::mutex>& lock_;
};

LocalService::LocalService(int ranks, std::unique_ptr<ServiceLogic> logic)
    : logic_(std::move(logic)), places_(static_cast<size_t>(ranks)) {}

void LocalService::call(LocalRanks& self, ServiceCall& call) {
  self.progress();
  std::unique_lock lock(mutex_);
  places_[self.rank()].heard = Clock::now();
  if (logic_->handle(self.rank(), call)) return ask_again();
  Place& place = places_[self.rank()];
  const Seat seat(place, call, lock);
  const Clock::time_point limit = Clock::now() + self.timeout();
  while (!place.answered) {
    look_for_trouble(self, limit, lock);
    if (changed_.wait_for(lock, kLook, [&] { return place.answered; })) break;
    lock.unlock();
    self.progress();
    lock.lock();
  }
  if (place.error) std::rethrow_exception(place.error);
}

void LocalService::ask_again() {
  bool any = false;
  while (answer_one()) any = true;
  if (any) changed_.notify_all();
}

bool LocalService::answer_one() {
  for (size_t rank = 0; rank < places_.size(); ++rank) {
    Place& place = places_[rank];
    if (place.call == nullptr || place.answered) continue;
    try {
      place.answered = logic_->handle(static_cast<int>(rank), *place.call);
    } catch (...) {
      place.error = std::current_exception();
      place.answered = true;
    }
    if (place.answered) return true;
  }
  return false;
}

void LocalService::look_for_trouble(LocalRanks& self, Clock::time_point limit,
                                    std::unique_lock<std::mutex>& lock) {
  std::vector<int> gone, busy;  // ranks that do not wait here
  for (int rank = 0; rank < self.size(); ++rank) {
    const Place& place = places_[rank];
    if (place.call != nullptr && !place.answered) continue;
    (self.left(rank) ? gone : busy).push_back(rank);
  }
  const Clock::time_point now = Clock::now();
  if (now < limit && gone.empty() && !busy.empty()) return;

  ServiceHold hold = logic_->hold(self.rank(), *places_[self.rank()].call);
  const std::vector<int>& awaited = hold.ranks.empty() ? busy : hold.ranks;
  // Who calls now and then may take long to get there.
  const bool late = now >= limit && std::ranges::any_of(awaited, [&](int rank) {
                      return now >= places_[rank].heard + self.timeout();
                    });
  const auto among = [&](const std::vector<int>& ranks) {
    std::vector<int> both;
    std::ranges::copy_if(hold.ranks, std::back_inserter(both),
                         [&](int rank) { return std::ranges::count(ranks, rank) > 0; });
    return both;
  };
  const auto fail = [&](const std::string& text, int rank) {
    lock.unlock();
    self.fail(text, {rank, "service", -1});
  };
  const std::string waiting =
      fmt::format("{} waits for {}", self.name_of_rank(self.rank()), hold.what);
  if (const std::vector<int> missed = among(gone); !missed.empty())
    fail(fmt::format("{} left the group; {}", text_of(self, missed), waiting), missed[0]);
  if (busy.empty())
    fail(fmt::format("all ranks wait for a service and none can go on; {}", waiting), self.rank());
  if (!late) return;
  std::vector<int> culprits;
  std::ranges::copy_if(awaited, std::back_inserter(culprits),
                       [&](int rank) { return now >= places_[rank].heard + self.timeout(); });
  fail(fmt::format("{} did not call a service within {:g} s; {}", text_of(self, culprits),
                   std::chrono::duration<double>(self.timeout()).count(), waiting),
       culprits[0]);
}

std::shared_ptr<LocalService> LocalServices::get(int64_t number, int ranks,
                                                 const MakeServiceLogic& make) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<LocalService>& kept = services_[number];
  std::shared_ptr<LocalService> service = kept.lock();
  if (!service) kept = service = std::make_shared<LocalService>(ranks, make());
  return service;
}

}  // namespace lockstep::distributed
