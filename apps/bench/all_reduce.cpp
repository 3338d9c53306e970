#include "apps/bench/measure.h"
#include "distributed/comm/launch.h"

#include <fmt/format.h>

namespace lockstep::apps {

Measurements bench_all_reduce(const BenchOptions& options) {
  Measurements out;
  for (const int64_t kib : {4, 256, 4096, 40960}) {
    double ms = 0;
    distributed::run_ranks(static_cast<int>(options.ranks), [&](distributed::Communicator& comm) {
      const Tensor x = zeros({kib * 256});
      const double mine = median_ms(options.repeats, [&] { comm.all_reduce(x)->wait(); });
      if (comm.rank() == 0) ms = mine;
    });
    out.push_back({fmt::format("allreduce {} ranks {} KiB", options.ranks, kib),
                   ms,
                   {{"gb_per_s", static_cast<double>(kib) * 1024 / ms * 1e-6}}});
  }
  return out;
}

}  // namespace lockstep::apps
