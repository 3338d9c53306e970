#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/kernels/fold_options.h"

namespace lockstep::distributed {

namespace virtual_cluster {
struct Run;
}

/// How ranks are connected, and how patient they are.
struct CommOptions {
  std::string backend = "threads";            ///< spec of a registered backend; `help` lists them
  std::chrono::milliseconds timeout{60'000};  ///< of every wait; its error names the late ranks
  std::shared_ptr<virtual_cluster::Run> virtual_run;  ///< what `virtual` models; null: no compute
};

/// What a communicator can do. Every rank of a communicator calls the same verbs in the same order.
enum class Verb : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  send_recv,
  barrier,
  split,
};
inline constexpr int kVerbs = 8;
constexpr std::string_view name_of(Verb verb) {
  constexpr std::array<std::string_view, kVerbs> names = {
      "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
      "broadcast",  "send_recv",      "barrier",    "split"};
  return names[static_cast<int>(verb)];
}
/// As profiles call the time that a rank waits for it.
constexpr std::string_view waiting_for(Verb verb) {
  constexpr std::array<std::string_view, kVerbs> names = {
      "wait for all_reduce", "wait for reduce_scatter", "wait for all_gather",
      "wait for all_to_all", "wait for broadcast",      "wait for send_recv",
      "wait for barrier",    "wait for split"};
  return names[static_cast<int>(verb)];
}

/// sum, mean, max or min over ranks.
using ReduceOp = FoldOp;
constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::array<std::string_view, 4> names = {"sum", "mean", "max", "min"};
  return names[static_cast<int>(op)];
}

/// The dtype that sums of f16 and bf16 are made in: f32, or the wire's own.
using ReduceIn = FoldIn;

/// A word and a number for error texts and traces: {"bucket", 3}. The word must be a literal.
struct OpTag {
  const char* what = nullptr;
  int64_t index = 0;
};

/// What the rank is doing: {"backward of step", 612}. The words must be a literal.
struct Phase {
  const char* what = nullptr;
  int64_t step = 0;
};

/// How values are combined: post · Σ over ranks 0…N-1, in this order, of (pre · x). The factors are
/// powers of two, so that they are exact; they are for floating dtypes only.
struct ReduceSpec {
  ReduceOp op = ReduceOp::sum;
  ReduceIn reduce_in = ReduceIn::f32;
  float pre = 1, post = 1;
  OpTag tag = {};
};

}  // namespace lockstep::distributed
