#include "distributed/tables/row_routes.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"

namespace lockstep::distributed {

RowRoutes::RowRoutes(Communicator& comm, int64_t rows)
    : comm_(comm),
      rows_(rows),
      share_((rows + comm.size() - 1) / comm.size()),
      sent_count_(Tensor::empty({comm.size()}, DType::i64)),
      received_count_(Tensor::empty({comm.size()}, DType::i64)) {}

void RowRoutes::plan(std::span<const int64_t> rows) {
  const int n = comm_.size();
  auto begin = rows.begin();
  sent_.clear();
  for (int rank = 0; rank < n; ++rank) {
    const auto end = std::lower_bound(begin, rows.end(), first_owned(rank + 1));
    sent_.push_back(end - begin);
    begin = end;
  }
  std::ranges::copy(sent_, sent_count_.mutable_data<int64_t>());
  send_.assign(static_cast<size_t>(n), 1);
  comm_.all_to_all_v(received_count_, send_, sent_count_, send_, {"row counts"})->wait();
  const int64_t* counts = received_count_.data<int64_t>();
  received_.assign(counts, counts + n);
}

int64_t RowRoutes::received_rows() const {
  return std::accumulate(received_.begin(), received_.end(), int64_t{0});
}

Tensor RowRoutes::to_owners(const Tensor& in, int64_t width, OpTag tag) {
  return swap(in, received_, sent_, width, tag);
}
Tensor RowRoutes::to_askers(const Tensor& in, int64_t width, OpTag tag) {
  return swap(in, sent_, received_, width, tag);
}

Tensor RowRoutes::swap(const Tensor& in, std::span<const int64_t> out_rows,
                       std::span<const int64_t> in_rows, int64_t width, OpTag tag) {
  send_.clear();
  receive_.clear();
  int64_t total = 0;
  for (size_t rank = 0; rank < in_rows.size(); ++rank) {
    send_.push_back(checked_mul(in_rows[rank], width));
    receive_.push_back(checked_mul(out_rows[rank], width));
    total = checked_add(total, out_rows[rank]);
  }
  const Tensor out = Tensor::empty({total, width}, in.dtype());
  comm_.all_to_all_v(out, receive_, in, send_, tag)->wait();
  bytes_ += static_cast<double>((out.numel() - receive_[comm_.rank()]) * size_of(out.dtype()));
  return out;
}

}  // namespace lockstep::distributed
