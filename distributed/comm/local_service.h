#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/check.h"
#include "distributed/comm/service.h"

namespace lockstep::distributed {

/// What a service in this process asks about the ranks that call it. One rank's side; used by its
/// thread only.
class LocalRanks {
 public:
  virtual ~LocalRanks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name_of_rank(int rank) const = 0;
  virtual std::chrono::milliseconds timeout() const = 0;
  /// Whether the rank has gone and will call no more.
  virtual bool left(int rank) const = 0;
  /// Moves collectives along, which others may wait for meanwhile. Throws the failure of the group.
  virtual void progress() = 0;
  /// Ends the group with this text and throws it.
  [[noreturn]] virtual void fail(const std::string& text, const FaultSite& site) = 0;
};

/// A service whose ranks are threads of this process: the logic behind a mutex. Calls are answered
/// in the order in which they come, so what it does is as repeatable as that.
class LocalService {
 public:
  LocalService(int ranks, std::unique_ptr<ServiceLogic> logic);

  /// ServicePort::call of one rank.
  void call(LocalRanks& self, ServiceCall& call);

 private:
  /// A rank that waits for its answer.
  struct Place {
    std::chrono::steady_clock::time_point heard;  // of this rank, when it last called
    ServiceCall* call = nullptr;                  // null: it does not wait
    bool answered = false;
    std::exception_ptr error;  // what answering threw
  };
  class Seat;
  void ask_again();
  bool answer_one();  // the first rank that can be; whether there was one
  void look_for_trouble(LocalRanks& self, std::chrono::steady_clock::time_point limit,
                        std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // guards all
  std::condition_variable changed_;
  std::unique_ptr<ServiceLogic> logic_;
  std::vector<Place> places_;  // by rank
};

/// The services of a group of ranks, by number.
class LocalServices {
 public:
  /// Made by the first rank that asks; alive as long as a rank has it.
  std::shared_ptr<LocalService> get(int64_t number, int ranks, const MakeServiceLogic& make);

 private:
  std::mutex mutex_;
  std::map<int64_t, std::weak_ptr<LocalService>> services_;
};

}  // namespace lockstep::distributed
