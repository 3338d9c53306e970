#include "core/kernels/attention.h"

#include <cmath>
#include <cstring>

#include "core/kernels/cpu/attention_loops.h"
#include "core/kernels/cpu/floats.h"

namespace lockstep::cpu {
namespace {

using kernel::AttentionOptions;

struct Extents {
  int64_t batch, positions, channels, heads, width;
};

Extents extents_of(std::string_view kernel, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                   const AttentionOptions& options) {
  expect_floats(kernel, {&qkv, &out});
  expect_dtype(kernel, "lse", lse, DType::f32);
  check(qkv.rank() == 3 && qkv.size(2) % 3 == 0, "[kernel.{}] qkv; expected [B, T, 3C], got {}",
        kernel, qkv.shape());
  const Extents e{qkv.size(0), qkv.size(1), qkv.size(2) / 3, options.heads,
                  options.heads > 0 ? qkv.size(2) / 3 / options.heads : 0};
  check(e.heads > 0 && e.width * e.heads == e.channels && e.width > 0,
        "[kernel.{}] heads; {} do not divide {} channels", kernel, e.heads, e.channels);
  expect_shape(kernel, "out", out, {e.batch, e.positions, e.channels});
  expect_shape(kernel, "lse", lse, {e.batch, e.heads, e.positions});
  if (options.lengths.defined()) {
    expect_dtype(kernel, "lengths", options.lengths, DType::i32);
    expect_shape(kernel, "lengths", options.lengths, {e.batch});
    const int32_t* lengths = options.lengths.data<int32_t>();
    for (int64_t b = 0; b < e.batch; ++b)
      check(lengths[b] >= 0 && lengths[b] <= e.positions,
            "[kernel.{}] length of sequence {}; expected 0..{}, got {}", kernel, b, e.positions,
            lengths[b]);
  }
  return e;
}

// Where a head's elements begin, in qkv, in out and in lse.
struct Place {
  int64_t q, k, v, out, lse;
};

// The matrices of one head, [positions, width] each: where they lie, or, if an operand of the call
// is narrow, one after the other in rooms of their own.
class HeadRooms {
 public:
  HeadRooms(const AttentionHead& h, float* rooms) : head_(h), next_(rooms) {}
  const float* read(const FloatsIn& x, int64_t at, int64_t stride) {
    if (next_ == nullptr) return x.read(at, 0, nullptr);
    float* room = take();
    for (int64_t i = 0; i < head_.length; ++i) {
      float* to = room + i * head_.width;
      const float* row = x.read(at + i * stride, head_.width, to);
      if (row != to) std::memcpy(to, row, bytes());
    }
    return room;
  }
  float* place(const FloatsOut& out, int64_t at) {
    return next_ == nullptr ? out.place(at, nullptr) : take();
  }
  void write(const FloatsOut& out, int64_t at, int64_t stride, const float* from) const {
    if (next_ == nullptr) return;
    for (int64_t i = 0; i < head_.positions; ++i, at += stride, from += head_.width) {
      if (out.narrow())
        out.write(at, head_.width, from);
      else
        std::memcpy(out.place(at, nullptr), from, bytes());
    }
  }

 private:
  size_t bytes() const { return static_cast<size_t>(head_.width) * sizeof(float); }
  float* take() { return std::exchange(next_, next_ + head_.positions * head_.width); }

  const AttentionHead& head_;
  float* next_;
};

// Calls f(head, place, rooms) for all pairs of sequence and head, each thread with working memory
// of its own, and rooms for `matrices` of a head where operands are narrow (else null).
template <class F>
void for_heads(const Extents& e, const AttentionOptions& options, int64_t work_floats,
               int64_t matrices, F f) {
  const int32_t* lengths = options.lengths.defined() ? options.lengths.data<int32_t>() : nullptr;
  const int64_t pairs = e.batch * e.heads,
                grain = row_grain(e.positions * e.positions * e.width / 8);
  if (pairs == 0 || e.positions == 0) return;
  const int64_t rooms = matrices * e.positions * e.width,
                row = matrices > 0 ? e.width : 3 * e.channels,
                out_row = matrices > 0 ? e.width : e.channels;
  const Scratch<float> work(
      checked_mul(parallel_pieces(pairs, grain), checked_add(work_floats, rooms)));
  parallel_for(pairs, grain, [&](int64_t begin, int64_t end, int piece) {
    float* own = work.data() + piece * (work_floats + rooms);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / e.heads, head = i % e.heads,
                    q = 3 * b * e.positions * e.channels + head * e.width;
      f(AttentionHead{.positions = e.positions,
                      .length = lengths ? lengths[b] : e.positions,
                      .width = e.width,
                      .scale = 1.0f / std::sqrt(static_cast<float>(e.width)),
                      .causal = options.causal,
                      .row = row,
                      .out_row = out_row,
                      .work = own},
        Place{.q = q,
              .k = q + e.channels,
              .v = q + 2 * e.channels,
              .out = b * e.positions * e.channels + head * e.width,
              .lse = i * e.positions},
        matrices > 0 ? own + work_floats : nullptr);
    }
  });
}

void attention(const Tensor& out, const Tensor& lse, const Tensor& qkv,
               const AttentionOptions& options) {
  const Extents e = extents_of("attention", qkv, out, lse, options);
  const auto& loops = LOCKSTEP_PICK_LOOPS(Attention);
  const FloatsIn from(qkv);
  const FloatsOut to(out);
  float* l = lse.mutable_data<float>();
  const int64_t row = 3 * e.channels;
  for_heads(e, options, loops.forward_floats(e.positions, e.width), any_narrow(from, to) ? 4 : 0,
            [&](AttentionHead h, const Place& at, float* rooms) {
              HeadRooms matrices(h, rooms);
              h.q = matrices.read(from, at.q, row);
              h.k = matrices.read(from, at.k, row);
              h.v = matrices.read(from, at.v, row);
              h.out = matrices.place(to, at.out);
              h.lse = l + at.lse;
              loops.forward(h);
              matrices.write(to, at.out, e.channels, h.out);
            });
}

void attention_backward(const Tensor& dqkv, const Tensor& dout, const Tensor& qkv,
                        const Tensor& out, const Tensor& lse, const AttentionOptions& options) {
  const Extents e = extents_of("attention_backward", qkv, out, lse, options);
  expect_same_floats("attention_backward", {&qkv, &dqkv});
  expect_same_floats("attention_backward", {&out, &dout});
  check(dqkv.bytes_data() != qkv.bytes_data(),
        "[kernel.attention_backward] dqkv must not be qkv's memory");
  const auto& loops = LOCKSTEP_PICK_LOOPS(Attention);
  const FloatsIn from(qkv), o(out), d(dout);
  const FloatsOut to(dqkv);
  const float* l = lse.data<float>();
  const int64_t row = 3 * e.channels;
  for_heads(e, options, loops.backward_floats(e.positions, e.width),
            any_narrow(from, o, d, to) ? 8 : 0,
            [&](AttentionHead h, const Place& at, float* rooms) {
              HeadRooms matrices(h, rooms);
              h.q = matrices.read(from, at.q, row);
              h.k = matrices.read(from, at.k, row);
              h.v = matrices.read(from, at.v, row);
              h.out = const_cast<float*>(matrices.read(o, at.out, e.channels));
              h.lse = const_cast<float*>(l) + at.lse;
              h.dout = matrices.read(d, at.out, e.channels);
              h.dq = matrices.place(to, at.q);
              h.dk = matrices.place(to, at.k);
              h.dv = matrices.place(to, at.v);
              loops.backward(h);
              matrices.write(to, at.q, row, h.dq);
              matrices.write(to, at.k, row, h.dk);
              matrices.write(to, at.v, row, h.dv);
            });
}

const Provide provided[] = {
    {kernel::attention, DeviceType::cpu, attention},
    {kernel::attention_backward, DeviceType::cpu, attention_backward},
};

}  // namespace
}  // namespace lockstep::cpu
