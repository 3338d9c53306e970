#include "distributed/layers/sync_batch_norm.h"

#include <algorithm>
#include <cstring>

#include "core/kernels/batch_norm.h"

namespace lockstep::distributed {
namespace {

std::vector<layers::BatchNorm*> batch_norms(layers::Module& module) {
  std::vector<layers::BatchNorm*> all;
  module.visit([&](const std::string&, layers::Module& m) {
    if (auto* norm = dynamic_cast<layers::BatchNorm*>(&m)) all.push_back(norm);
  });
  return all;
}

}  // namespace

MomentsOverRanks::MomentsOverRanks(Communicator& comm)
    : comm_(comm.split(0, comm.rank())), counts_(static_cast<size_t>(comm.size())) {
  comm_->set_phase({"batch normalisation"});
}

// A rank's message is its count, eight bytes, and its moments, as bytes.
int64_t MomentsOverRanks::join(const Tensor& moments, int64_t count) {
  const int64_t bytes = moments.bytes(), message = checked_add(bytes, 8), ranks = comm_->size();
  const Tensor mine = Tensor::empty({message}, DType::u8),
               all = Tensor::empty({checked_mul(ranks, message)}, DType::u8),
               parts = Tensor::empty({ranks, 3, moments.size(1)});
  auto* out = mine.mutable_data<uint8_t>();
  std::memcpy(out, &count, 8);
  std::memcpy(out + 8, moments.bytes_data(), static_cast<size_t>(bytes));
  comm_->all_gather_v(all, mine)->wait();
  const auto* in = all.data<uint8_t>();
  auto* to = static_cast<uint8_t*>(parts.mutable_bytes_data());
  int64_t total = 0;
  for (int64_t rank = 0; rank < ranks; ++rank, in += message, to += bytes) {
    int64_t& theirs = counts_[static_cast<size_t>(rank)];
    std::memcpy(&theirs, in, 8);
    std::memcpy(to, in + 8, static_cast<size_t>(bytes));
    total = checked_add(total, theirs);
  }
  kernel::merge_moments(moments, parts, counts_);
  return total;
}

void MomentsOverRanks::add(const Tensor& sums) { comm_->all_reduce(sums)->wait(); }

int sync_batch_norms(layers::Module& module, Communicator& comm) {
  const std::vector<layers::BatchNorm*> norms = batch_norms(module);
  if (norms.empty()) return 0;
  const auto exchange = std::make_shared<MomentsOverRanks>(comm);
  for (layers::BatchNorm* norm : norms) norm->join(exchange);
  return static_cast<int>(norms.size());
}

int unsync_batch_norms(layers::Module& module) {
  const std::vector<layers::BatchNorm*> norms = batch_norms(module);
  for (layers::BatchNorm* norm : norms) norm->join(nullptr);
  return static_cast<int>(norms.size());
}

}  // namespace lockstep::distributed
