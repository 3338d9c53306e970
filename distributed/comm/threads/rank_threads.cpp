#include "distributed/comm/threads/rank_threads.h"

#include <fmt/format.h>

#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "core/parallel.h"

namespace lockstep::distributed::threads {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

// The failure that ended the group was reported by the rank that met it first; what the others
// threw only follows from it.
void throw_root_cause(const Group& group, const std::vector<std::exception_ptr>& errors) {
  if (group.failed() && group.failure().origin >= 0)
    if (const std::exception_ptr& root = errors[group.failure().origin])
      std::rethrow_exception(root);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace

void run_rank_threads(int ranks, Group& group,
                      const std::function<std::unique_ptr<CommBackend>(int rank)>& connect,
                      const std::function<void(const Failure&)>& failed,
                      const RankFunction& function) {
  if (ranks == 1) {
    Communicator comm(connect(0));
    return function(comm);
  }
  const auto fail = [&](const Failure& failure) {
    group.fail(failure);
    failed(failure);
  };
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  const auto run_rank = [&](int rank) {
    const ThreadBudget budget(1);
    try {  // nothing may leave the thread, not even what making the communicator throws
      Communicator comm(connect(rank));
      try {
        function(comm);
      } catch (...) {
        errors[rank] = std::current_exception();
        comm.abort(fmt::format("rank {} of {} failed: {}", rank, ranks, text_of(errors[rank])));
      }
    } catch (...) {
      if (!errors[rank]) errors[rank] = std::current_exception();
      fail({text_of(errors[rank]), {}, rank});
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  std::string refused;
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  } catch (const std::system_error& e) {
    refused = fmt::format("[comm.threads] thread {} of {} could not be started: {}", threads.size(),
                          ranks, e.what());
    fail({refused, {}, kNobody});
  }
  for (std::thread& thread : threads) thread.join();
  if (!refused.empty()) throw SystemError(Fault::device, refused);
  throw_root_cause(group, errors);
}

}  // namespace lockstep::distributed::threads
