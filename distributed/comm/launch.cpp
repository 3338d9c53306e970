#include "distributed/comm/launch.h"

#include "core/check.h"

namespace lockstep::distributed {

void run_ranks(int ranks, const CommOptions& options, const RankFunction& function) {
  check(ranks >= 1, "[comm.run_ranks] ranks; expected at least 1, got {}", ranks);
  check(options.timeout.count() > 0,
        "[comm.run_ranks] time-out; expected more than 0 ms, got {} ms", options.timeout.count());
  Registry<Launcher>::instance().make(options.backend)->run(ranks, options, function);
}

}  // namespace lockstep::distributed
