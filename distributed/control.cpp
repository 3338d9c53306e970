#include "distributed/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "core/check.h"

namespace lockstep::distributed {
namespace {

constexpr int64_t kHead = sizeof(Control);

// FNV-1a, 64 bit
int64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return static_cast<int64_t>(hash);
}

// The first line in which b differs from a: its number, a's and b's.
std::string first_difference(const std::string& a, const std::string& b, int rank) {
  std::istringstream lines_a(a), lines_b(b);
  for (int number = 1;; ++number) {
    std::string x, y;
    const bool more_x = static_cast<bool>(std::getline(lines_a, x));
    const bool more_y = static_cast<bool>(std::getline(lines_b, y));
    if (!more_x && !more_y) return "";
    if (more_x && more_y && x == y) continue;
    const auto quoted = [](bool there, const std::string& line) {
      return there ? "'" + line + "'" : std::string("nothing");
    };
    return fmt::format("line {}: rank 0 has {}, rank {} has {}", number, quoted(more_x, x), rank,
                       quoted(more_y, y));
  }
}

}  // namespace

ControlExchange::ControlExchange(Communicator& comm, int flags)
    : flags_(flags),
      mine_(Tensor::empty({kHead + flags}, DType::u8)),
      all_(Tensor::empty({comm.size() * (kHead + flags)}, DType::u8)),
      used_(static_cast<size_t>(flags)) {}

const uint8_t* ControlExchange::block(int rank) const {
  return all_.data<uint8_t>() + rank * (kHead + flags_);
}

Control ControlExchange::control(int rank) const {
  Control control;
  std::memcpy(&control, block(rank), kHead);
  return control;
}

Control ControlExchange::combine(Communicator* comm, const Control& mine,
                                 std::span<const uint8_t> used) {
  uint8_t* out = mine_.mutable_data<uint8_t>();
  std::memcpy(out, &mine, kHead);
  std::copy(used.begin(), used.end(), out + kHead);
  ranks_ = comm == nullptr ? 1 : comm->size();
  if (comm != nullptr)
    comm->all_gather_v(all_, mine_)->wait();
  else
    std::memcpy(all_.mutable_data<uint8_t>(), out, static_cast<size_t>(kHead + flags_));

  Control sum;
  sum.scale = control(0).scale;
  std::fill(used_.begin(), used_.end(), uint8_t{0});
  for (int rank = 0; rank < ranks_; ++rank) {
    const Control one = control(rank);
    sum.weight += one.weight;
    sum.micros += one.micros;
    sum.active += one.active;
    sum.non_finite += one.non_finite;
    sum.first_bad = std::max(sum.first_bad, one.first_bad);
    const uint8_t* flags = block(rank) + kHead;
    for (int i = 0; i < flags_; ++i) used_[i] |= flags[i];
  }
  return sum;
}

void ControlExchange::expect_equal_scales(int64_t step) const {
  bool equal = true;
  std::string text;
  for (int rank = 0; rank < ranks_; ++rank) equal &= control(rank).scale == control(0).scale;
  if (equal) return;
  for (int rank = 0; rank < ranks_; ++rank)
    text += fmt::format("{}rank {} has {:g}", rank == 0 ? "" : ", ", rank, control(rank).scale);
  throw UsageError(fmt::format(
      "[reducer.finish_backward] loss scales; expected equal ones on all ranks, got in step {}: {}",
      step, text));
}

std::vector<int> ControlExchange::ranks_without(int flag) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (control(rank).active != 0 && block(rank)[kHead + flag] == 0) ranks.push_back(rank);
  }
  return ranks;
}

void expect_same_on_all_ranks(Communicator& comm, const std::string& text, const char* what) {
  const int n = comm.size();
  const auto length = static_cast<int64_t>(text.size());
  const Tensor mine = from_values(std::vector<int64_t>{length, hash_of(text)});
  const Tensor all = Tensor::empty({2 * n}, DType::i64);
  comm.all_gather_v(all, mine)->wait();
  const int64_t* marks = all.data<int64_t>();
  int other = 0;
  while (other < n && marks[2 * other] == marks[0] && marks[2 * other + 1] == marks[1]) ++other;
  if (other == n) return;

  std::vector<int64_t> lengths;
  int64_t total = 0;
  for (int rank = 0; rank < n; ++rank) lengths.push_back(marks[2 * rank]), total += lengths.back();
  const Tensor texts = Tensor::empty({total}, DType::u8);
  comm.all_gather_v(texts, from_values(std::vector<uint8_t>(text.begin(), text.end())), lengths)
      ->wait();
  std::vector<std::string> by_rank;
  const uint8_t* at = texts.data<uint8_t>();
  for (int64_t bytes : lengths) by_rank.emplace_back(at, at + bytes), at += bytes;
  throw SystemError(Fault::communication,
                    fmt::format("[reducer] {} differ between ranks; {}", what,
                                first_difference(by_rank[0], by_rank[other], other)),
                    {other, std::string(name_of(Verb::all_gather)), comm.recorder().posted()});
}

}  // namespace lockstep::distributed
