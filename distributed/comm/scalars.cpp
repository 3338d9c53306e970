#include "distributed/comm/scalars.h"

#include <cmath>
#include <cstring>

namespace lockstep::distributed {
namespace {

// A double of every rank, as eight bytes each.
template <class F>
double combine(Communicator& comm, double value, F&& f) {
  const Tensor mine = Tensor::empty({8}, DType::u8);
  const Tensor all = Tensor::empty({8 * comm.size()}, DType::u8);
  std::memcpy(mine.mutable_bytes_data(), &value, 8);
  comm.all_gather_v(all, mine)->wait();
  double result;
  std::memcpy(&result, all.bytes_data(), 8);
  for (int rank = 1; rank < comm.size(); ++rank) {
    double next;
    std::memcpy(&next, all.data<uint8_t>() + 8 * rank, 8);
    result = f(result, next);
  }
  return result;
}

}  // namespace

double sum_over_ranks(Communicator& comm, double value) {
  return combine(comm, value, [](double a, double b) { return a + b; });
}

double max_over_ranks(Communicator& comm, double value) {
  return combine(comm, value, [](double a, double b) { return b > a || std::isnan(b) ? b : a; });
}

}  // namespace lockstep::distributed
