// Whether the ranks' entries of one operation fit together, and what to say when they do not.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "distributed/comm/threads/member.h"

namespace lockstep::distributed::threads {
namespace {

bool same_reduction(const ReduceSpec& a, const ReduceSpec& b) {
  return a.op == b.op && a.reduce_in == b.reduce_in && a.pre == b.pre && a.post == b.post;
}

// Whether rank b's entry fits rank a's.
bool fits(const Entry& x, int a, const Entry& y, int b) {
  if (x.verb != y.verb) return false;
  switch (x.verb) {
    case Verb::all_reduce:
      return x.dtype == y.dtype && x.in_numel == y.in_numel && same_reduction(x.reduce, y.reduce);
    case Verb::reduce_scatter:
      return x.dtype == y.dtype && x.counts == y.counts && same_reduction(x.reduce, y.reduce);
    case Verb::all_gather:
      return x.dtype == y.dtype && x.counts == y.counts;
    case Verb::all_to_all:
      return x.dtype == y.dtype && x.send_counts[b] == y.receive_counts[a] &&
             x.receive_counts[b] == y.send_counts[a];
    case Verb::broadcast:
      return x.dtype == y.dtype && x.in_numel == y.in_numel && x.root == y.root;
    case Verb::send_recv:
      return (x.to == b) == (y.from == a) && (x.from == b) == (y.to == a) &&
             (x.to != b || (x.dtype == y.dtype && x.in_numel == y.out_numel)) &&
             (x.from != b || (x.dtype == y.dtype && x.out_numel == y.in_numel));
    case Verb::barrier:
    case Verb::split:
      return true;
  }
  return false;
}

std::string describe_reduction(const ReduceSpec& spec) {
  std::string text(name_of(spec.op));
  if (spec.pre != 1 || spec.post != 1)
    text += fmt::format(", pre {}, post {}", spec.pre, spec.post);
  if (spec.reduce_in == ReduceIn::wire) text += ", added in the wire's dtype";
  return text;
}

std::string describe_call(const Entry& e) {
  const std::string_view verb = name_of(e.verb), dtype = name_of(e.dtype);
  switch (e.verb) {
    case Verb::all_reduce:
      return fmt::format("{} of {} {} ({})", verb, e.in_numel, dtype, describe_reduction(e.reduce));
    case Verb::reduce_scatter:
      return fmt::format("{} of [{}] {} ({})", verb, fmt::join(e.counts, ", "), dtype,
                         describe_reduction(e.reduce));
    case Verb::all_gather:
      return fmt::format("{} of [{}] {}", verb, fmt::join(e.counts, ", "), dtype);
    case Verb::all_to_all:
      return fmt::format("{} sending [{}] and expecting [{}] {}", verb,
                         fmt::join(e.send_counts, ", "), fmt::join(e.receive_counts, ", "), dtype);
    case Verb::broadcast:
      return fmt::format("{} of {} {} from rank {}", verb, e.in_numel, dtype, e.root);
    case Verb::send_recv:
      return fmt::format("{} of {} {} to rank {} and {} from rank {}", verb, e.in_numel, dtype,
                         e.to, e.out_numel, e.from);
    case Verb::barrier:
    case Verb::split:
      break;
  }
  return std::string(verb);
}

}  // namespace

std::string Member::mismatch(int64_t sequence) {
  bool fit = true;
  for (int rank = 0; rank < size() && fit; ++rank)
    if (matters(sequence, rank))
      fit = fits(mine(sequence), rank_, group_->entry(rank, sequence), rank);
  if (fit) return "";
  std::string text = fmt::format("ranks disagree on operation #{}", sequence);
  std::vector<bool> named(static_cast<size_t>(size()));
  const auto concerned = [&](int rank) { return rank == rank_ || matters(sequence, rank); };
  for (int first = 0; first < size(); ++first) {
    if (named[first] || !concerned(first)) continue;
    const std::string call = describe_call(group_->entry(first, sequence));
    std::vector<int> callers;
    for (int rank = first; rank < size(); ++rank) {
      if (!concerned(rank) || describe_call(group_->entry(rank, sequence)) != call) continue;
      named[rank] = true;
      callers.push_back(rank);
    }
    text +=
        fmt::format("{} {} {} {}", first == 0 ? ":" : ";", callers.size() == 1 ? "rank" : "ranks",
                    fmt::join(callers, ", "), (callers.size() == 1 ? "calls " : "call ") + call);
  }
  return text;
}

}  // namespace lockstep::distributed::threads
