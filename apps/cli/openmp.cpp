#include "apps/cli/openmp.h"

#include <unistd.h>

#include <cstdlib>

namespace lockstep::apps {

// Note [Spinning]
// At the end of a parallel region a thread waits for the others. libgomp spins for up to 300,000
// pauses, some 15 ms, before it sleeps. If anything else runs on the machine, the spinning thread
// takes the core that the thread it waits for should have: on two busy cores a step of the 4x128
// GPT took 200-880 ms so, and 50-77 ms with 3,000 pauses, while on idle ones both took 19 ms.
// libgomp reads the number from the environment when it is loaded, hence before main; there is no
// call for it. Whoever has set a policy keeps it.
void spin_briefly(char** argv) noexcept {
#if defined(_OPENMP)
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (::setenv("GOMP_SPINCOUNT", "3000", 0) == 0) ::execv("/proc/self/exe", argv);
#else
  static_cast<void>(argv);
#endif
}

}  // namespace lockstep::apps
