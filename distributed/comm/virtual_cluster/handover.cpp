#include "distributed/comm/virtual_cluster/handover.h"

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>

namespace lockstep::distributed::virtual_cluster {
namespace {

thread_local cpu_set_t allowed;  // what the thread had when it entered

}  // namespace

void Handover::enter() {
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) thread_ = gettid();
}

void Handover::to_my_core() {
  const int core = sched_getcpu();
  if (thread_ == 0 || core < 0 || core >= CPU_SETSIZE) return;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(core, &mine);
  bound_ = sched_setaffinity(thread_, sizeof mine, &mine) == 0;
}

void Handover::woken() {
  if (bound_) sched_setaffinity(0, sizeof allowed, &allowed);
  bound_ = false;
}

}  // namespace lockstep::distributed::virtual_cluster

#else

namespace lockstep::distributed::virtual_cluster {

void Handover::enter() {}
void Handover::to_my_core() {}
void Handover::woken() {}

}  // namespace lockstep::distributed::virtual_cluster

#endif
