#include "distributed/buffer_sync.h"

#include <algorithm>
#include <cstring>

#include "distributed/control.h"

namespace lockstep::distributed {
namespace {

template <class T>
T read(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Element by element over the ranks, whose bytes are `stride` apart.
void average(float* out, const uint8_t* all, int64_t stride, int ranks, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += read<float>(all + rank * stride + 4 * i);
    out[i] = static_cast<float>(sum / ranks);
  }
}
void largest(int64_t* out, const uint8_t* all, int64_t stride, int ranks, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = read<int64_t>(all + 8 * i);
    for (int rank = 1; rank < ranks; ++rank)
      out[i] = std::max(out[i], read<int64_t>(all + rank * stride + 8 * i));
  }
}

}  // namespace

BufferSync::BufferSync(std::vector<layers::Buffer> buffers, Communicator& comm)
    : buffers_(std::move(buffers)), comm_(comm) {
  std::string text;
  for (const layers::Buffer& b : buffers_) {
    text += fmt::format("{} {}\n", b.name, *b.slot);
    bytes_ = checked_add(bytes_, b.slot->bytes());
  }
  expect_same_on_all_ranks(comm, text, "buffers");
  own_ = Tensor::empty({bytes_}, DType::u8);
}

void BufferSync::make_equal() {
  if (bytes_ == 0) return;
  auto* to = own_.mutable_data<uint8_t>();
  for (const layers::Buffer& b : buffers_) {
    std::memcpy(to, b.slot->bytes_data(), static_cast<size_t>(b.slot->bytes()));
    to += b.slot->bytes();
  }
  const int ranks = comm_.size();
  if (ranks == 1) return;
  const Tensor all = Tensor::empty({checked_mul(ranks, bytes_)}, DType::u8);
  comm_.all_gather_v(all, own_)->wait();
  const auto* from = all.data<uint8_t>();
  for (const layers::Buffer& b : buffers_) {
    const int64_t n = b.slot->numel();
    if (b.slot->dtype() == DType::f32)
      average(b.slot->mutable_data<float>(), from, bytes_, ranks, n);
    else
      largest(b.slot->mutable_data<int64_t>(), from, bytes_, ranks, n);
    from += b.slot->bytes();
  }
}

void BufferSync::before_evaluation() { make_equal(); }

void BufferSync::after_evaluation() {
  if (bytes_ == 0) return;
  const auto* from = own_.data<uint8_t>();
  for (const layers::Buffer& b : buffers_) {
    std::memcpy(b.slot->mutable_bytes_data(), from, static_cast<size_t>(b.slot->bytes()));
    from += b.slot->bytes();
  }
}

}  // namespace lockstep::distributed
