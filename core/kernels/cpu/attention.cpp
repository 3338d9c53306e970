#include "core/kernels/attention.h"

#include <cmath>

#include "core/kernels/cpu/attention_loops.h"
#include "core/kernels/cpu/host.h"

namespace lockstep::cpu {
namespace {

using kernel::AttentionOptions;

struct Extents {
  int64_t batch, positions, channels, heads, width;
};

Extents extents_of(std::string_view kernel, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                   const AttentionOptions& options) {
  expect_f32(kernel, {&qkv, &out, &lse});
  check(qkv.rank() == 3 && qkv.size(2) % 3 == 0, "[kernel.{}] qkv; expected [B, T, 3C], got {}",
        kernel, to_string(qkv.shape()));
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

// Calls f(head, batch, number of the head) for all pairs, each thread with working memory of its
// own.
template <class F>
void for_heads(const Extents& e, const AttentionOptions& options, const float* qkv,
               int64_t work_floats, F f) {
  const int32_t* lengths = options.lengths.defined() ? options.lengths.data<int32_t>() : nullptr;
  const int64_t pairs = e.batch * e.heads,
                grain = row_grain(e.positions * e.positions * e.width / 8);
  if (pairs == 0 || e.positions == 0) return;
  const Scratch<float> work(checked_mul(parallel_pieces(pairs, grain), work_floats));
  parallel_for(pairs, grain, [&](int64_t begin, int64_t end, int piece) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / e.heads, head = i % e.heads, row = 3 * e.channels;
      const float* q = qkv + b * e.positions * row + head * e.width;
      f(AttentionHead{.positions = e.positions,
                      .length = lengths ? lengths[b] : e.positions,
                      .width = e.width,
                      .scale = 1.0f / std::sqrt(static_cast<float>(e.width)),
                      .causal = options.causal,
                      .row = row,
                      .out_row = e.channels,
                      .q = q,
                      .k = q + e.channels,
                      .v = q + 2 * e.channels,
                      .work = work.data() + piece * work_floats},
        b, head);
    }
  });
}

void attention(const Tensor& out, const Tensor& lse, const Tensor& qkv,
               const AttentionOptions& options) {
  const Extents e = extents_of("attention", qkv, out, lse, options);
  const auto& loops = LOCKSTEP_PICK_LOOPS(Attention);
  const float* from = qkv.data<float>();
  float *to = out.mutable_data<float>(), *l = lse.mutable_data<float>();
  for_heads(e, options, from, loops.forward_floats(e.positions, e.width),
            [&](AttentionHead h, int64_t b, int64_t head) {
              h.out = to + b * e.positions * e.channels + head * e.width;
              h.lse = l + (b * e.heads + head) * e.positions;
              loops.forward(h);
            });
}

void attention_backward(const Tensor& dqkv, const Tensor& dout, const Tensor& qkv,
                        const Tensor& out, const Tensor& lse, const AttentionOptions& options) {
  const Extents e = extents_of("attention_backward", qkv, out, lse, options);
  expect_same("attention_backward", {&qkv, &dqkv});
  expect_same("attention_backward", {&out, &dout});
  check(dqkv.bytes_data() != qkv.bytes_data(),
        "[kernel.attention_backward] dqkv must not be qkv's memory");
  const auto& loops = LOCKSTEP_PICK_LOOPS(Attention);
  const float *from = qkv.data<float>(), *o = out.data<float>(), *d = dout.data<float>(),
              *l = lse.data<float>();
  float* to = dqkv.mutable_data<float>();
  for_heads(e, options, from, loops.backward_floats(e.positions, e.width),
            [&](AttentionHead h, int64_t b, int64_t head) {
              const int64_t at = b * e.positions * e.channels + head * e.width;
              h.out = const_cast<float*>(o) + at;
              h.lse = const_cast<float*>(l) + (b * e.heads + head) * e.positions;
              h.dout = d + at;
              h.dq = to + 3 * b * e.positions * e.channels + head * e.width;
              h.dk = h.dq + e.channels;
              h.dv = h.dk + e.channels;
              loops.backward(h);
            });
}

const Provide provided[] = {
    {kernel::attention, DeviceType::cpu, attention},
    {kernel::attention_backward, DeviceType::cpu, attention_backward},
};

}  // namespace
}  // namespace lockstep::cpu
