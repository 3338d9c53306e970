#include "apps/compare/claims/sleeping_ranks.h"

#include "core/tensor.h"
#include "distributed/comm/launch.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace lockstep::apps {

using distributed::Communicator, distributed::virtual_cluster::Durations,
    distributed::virtual_cluster::Pass;

std::vector<double> sleep_together(int ranks, int64_t steps,
                                   const std::function<double(int, int64_t)>& seconds) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> took;
  distributed::run_ranks(ranks, [&](Communicator& comm) {
    const Tensor numbers = zeros({1000});
    comm.all_reduce(numbers)->wait();
    for (int64_t step = 0; step < steps; ++step) {
      const auto begin = Clock::now();
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds(comm.rank(), step)));
      comm.all_reduce(numbers)->wait();
      if (comm.rank() == 0)
        took.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  });
  return took;
}

double micro_batch(const Durations& durations, int rank, int64_t micro) {
  return durations.seconds(rank, micro, Pass::forward) +
         durations.seconds(rank, micro, Pass::backward);
}

std::vector<double> slowest(int ranks, int64_t steps, const Durations& durations) {
  std::vector<double> longest;
  for (int64_t step = 0; step < steps; ++step) {
    double most = 0;
    for (int rank = 0; rank < ranks; ++rank)
      most = std::max(most, micro_batch(durations, rank, step));
    longest.push_back(most);
  }
  return longest;
}

}  // namespace lockstep::apps
