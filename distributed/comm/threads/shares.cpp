// What one rank does for each verb, once all who matter have published their entries.
#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "distributed/comm/fold.h"
#include "distributed/comm/threads/member.h"

namespace lockstep::distributed::threads {
namespace {

constexpr int64_t kLine = 64;  // bytes: slices end at cache lines, so that ranks do not share one

const std::byte* at(const void* base, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(base) + elements * size_of(dtype);
}
std::byte* at(void* base, int64_t elements, DType dtype) {
  return static_cast<std::byte*>(base) + elements * size_of(dtype);
}

int64_t sum_before(const std::vector<int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

}  // namespace

void Member::run_share(int64_t sequence) {
  switch (mine(sequence).verb) {
    case Verb::all_reduce:
      return share_all_reduce(sequence);
    case Verb::reduce_scatter:
      return share_reduce_scatter(sequence);
    case Verb::all_gather:
      return share_all_gather(sequence);
    case Verb::all_to_all:
      return share_all_to_all(sequence);
    case Verb::broadcast:
      return share_broadcast(sequence);
    case Verb::send_recv:
      return share_send_recv(sequence);
    case Verb::split:
      return share_split(sequence);
    case Verb::barrier:
      return;
  }
}

void Member::pull(void* to, int from_rank, const void* from, int64_t bytes) {
  if (bytes == 0 || to == from) return;
  std::memcpy(to, from, static_cast<size_t>(bytes));
  if (from_rank != rank_) moved_ += bytes;
}

void Member::share_all_reduce(int64_t sequence) {
  const Entry& entry = mine(sequence);
  const int64_t line = kLine / size_of(entry.dtype);
  const int64_t lines = (entry.in_numel + line - 1) / line;
  const auto border = [&](int rank) {
    return std::min(lines * rank / size() * line, entry.in_numel);
  };
  const int64_t begin = border(rank_), numel = border(rank_ + 1) - begin;
  if (numel == 0) return;
  for (int rank = 0; rank < size(); ++rank) {
    outs_[rank] = at(group_->entry(rank, sequence).out, begin, entry.dtype);
    ins_[rank] = outs_[rank];
  }
  fold(outs_, ins_, entry.dtype, numel, entry.reduce);
  moved_ +=
      2 * (size() - 1) * numel * size_of(entry.dtype);  // read from the others, written to them
}

void Member::share_reduce_scatter(int64_t sequence) {
  const Entry& entry = mine(sequence);
  const int64_t begin = sum_before(entry.counts, rank_);
  for (int rank = 0; rank < size(); ++rank)
    ins_[rank] = at(group_->entry(rank, sequence).in, begin, entry.dtype);
  if (entry.out_numel == 0) return;
  outs_[0] = entry.out;
  fold({outs_.data(), 1}, ins_, entry.dtype, entry.out_numel, entry.reduce);
  moved_ += (size() - 1) * entry.out_numel * size_of(entry.dtype);
}

void Member::share_all_gather(int64_t sequence) {
  const Entry& entry = mine(sequence);
  int64_t begin = 0;
  for (int rank = 0; rank < size(); ++rank) {
    pull(at(entry.out, begin, entry.dtype), rank, group_->entry(rank, sequence).in,
         entry.counts[rank] * size_of(entry.dtype));
    begin += entry.counts[rank];
  }
}

void Member::share_all_to_all(int64_t sequence) {
  const Entry& entry = mine(sequence);
  int64_t begin = 0;
  for (int rank = 0; rank < size(); ++rank) {
    const Entry& other = group_->entry(rank, sequence);
    pull(at(entry.out, begin, entry.dtype), rank,
         at(other.in, sum_before(other.send_counts, rank_), entry.dtype),
         entry.receive_counts[rank] * size_of(entry.dtype));
    begin += entry.receive_counts[rank];
  }
}

void Member::share_broadcast(int64_t sequence) {
  const Entry& entry = mine(sequence);
  pull(entry.out, entry.root, group_->entry(entry.root, sequence).in,
       entry.in_numel * size_of(entry.dtype));
}

void Member::share_send_recv(int64_t sequence) {
  const Entry& entry = mine(sequence);
  if (entry.from == kNobody) return;
  pull(entry.out, entry.from, group_->entry(entry.from, sequence).in,
       entry.out_numel * size_of(entry.dtype));
}

std::vector<int> Member::ranks_of_color(int64_t sequence) {
  const int color = mine(sequence).color;
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank)
    if (group_->entry(rank, sequence).color == color) ranks.push_back(rank);
  std::ranges::stable_sort(ranks, {}, [&](int rank) { return group_->entry(rank, sequence).key; });
  return ranks;
}

void Member::share_split(int64_t sequence) {
  if (mine(sequence).color == kNobody) return;
  const std::vector<int> ranks = ranks_of_color(sequence);
  if (ranks.front() == rank_) mine(sequence).part = group_->make_part(ranks);
}

std::pair<std::shared_ptr<Group>, int> Member::part(int64_t sequence) {
  const std::vector<int> ranks = ranks_of_color(sequence);
  const auto place = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
  return {group_->entry(ranks.front(), sequence).part, static_cast<int>(place)};
}

}  // namespace lockstep::distributed::threads
