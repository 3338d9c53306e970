#pragma once

namespace lockstep::distributed::virtual_cluster {

/// Where a rank's thread runs when another rank gives its core to it.
///
/// Note [Handing over a core]
/// A rank that goes to sleep first wakes the one that gets its core. The kernel sees no idle core
/// at that moment and may queue the woken thread behind another busy rank; once the sleeper's core
/// is idle it takes some milliseconds until the kernel moves anything there. At 32 ranks on two
/// cores that was half of what the modelled cluster cost. So the sleeper asks for its own core for
/// the woken thread, which takes the wish back as soon as it runs. A hint for Linux: elsewhere, or
/// where the kernel refuses, nothing happens.
class Handover {
 public:
  /// Called by the thread itself: this one will wake on handed-over cores.
  void enter();
  /// Called by a thread that is about to sleep: the thread that entered shall wake on its core.
  void to_my_core();
  /// Called by the woken thread: it may move again.
  void woken();

 private:
  int thread_ = 0;  // 0: not entered
  bool bound_ = false;
};

}  // namespace lockstep::distributed::virtual_cluster
