// The elements of largest magnitude with their positions (Aji & Heafield 2017, arXiv:1704.05021),
// exactly, or those above a threshold that a sample tells.
//
// Deep gradient compression (Lin et al. 2018, arXiv:1712.01887) is made of its options and +ef:
//   u <- m·u + g     momentum correction: momentum before the choice instead of in the optimiser
//   v <- v + u       the residual; the largest |v| are sent and applied as by plain SGD
//   u, v <- 0        where sent (factor masking: momentum that has been sent is not sent again)
// with g clipped beforehand to its share of the norm, clip / sqrt(ranks), and a ratio that falls to
// its last value within the first windows. Pieces that travel whole keep u: they are plain
// momentum. L2 decay must be part of g (the optimiser's own comes after the exchange).
#include <algorithm>
#include <cmath>

#include "core/kernels/feedback.h"
#include "core/kernels/topk.h"
#include "core/spec.h"
#include "distributed/compress/sparse_code.h"

namespace lockstep::distributed {
namespace {

class TopK final : public SparseCode {
 public:
  explicit TopK(const Spec& spec)
      : SparseCode(SparseBlock(spec)),
        ratio_(spec.number("ratio", 0.01, {.min = 1e-9, .max = 1})),
        scope_(scope_of(spec, Scope::tensor)),
        sampled_(spec.text("select", "exact", {"exact", "sampled"}) == "sampled"),
        error_(spec.number("error", 0.2, {.min = 0, .max = 1})),
        dense_below_(spec.integer("dense_below", 0, {.min = 0})),
        momentum_(spec.number("momentum", 0, {.min = 0, .max = 0.9999})),
        masking_(spec.flag("masking", true)),
        clip_(spec.number("clip", 0, {.min = 0})),
        warmup_(spec.integer("warmup", 0, {.min = 0})),
        decay_(spec.number("decay", 0.25, {.min = 1e-9, .max = 0.999})) {
    // Of the powers of decay those above the ratio.
    if (warmup_ > 0)
      stages_ = std::max(0.0, std::ceil(std::log(ratio_) / std::log(decay_) - 1e-9) - 1);
  }

  Scope scope() const override { return scope_; }
  bool fixed_size() const override { return !sampled_; }
  bool fixed_parts() const override { return false; }
  double momentum() const override { return momentum_; }

 protected:
  int64_t most_of(int64_t n, int64_t window) const override {
    const int64_t k = wanted(n, ratio_at(window));
    return sampled_ ? std::min(n, k + slack(k)) : k;
  }
  double expected_of(int64_t n) const override { return static_cast<double>(wanted(n, ratio_)); }

  Chosen choose(const ToEncode& in) const override {
    const std::span<const int64_t> ends = in.pieces.ends;
    int64_t room = 0, begin = 0;
    for (const int64_t end : ends) {
      room += most_of(end - begin, in.pieces.window);
      begin = end;
    }
    Chosen chosen(room, static_cast<int64_t>(ends.size()));
    begin = 0;
    for (const int64_t end : ends) {
      chosen.end_piece(begin, choose_of(in, begin, end - begin, chosen));
      begin = end;
    }
    return chosen;
  }

  void sent(const ToEncode& in, const Chosen& chosen) const override {
    if (in.next_velocity.empty() || !masking_) return;
    int64_t begin = 0;
    for (size_t p = 0; p < in.pieces.ends.size(); ++p) {
      const int64_t n = in.pieces.ends[p] - begin, piece = static_cast<int64_t>(p);
      begin = in.pieces.ends[p];
      if (wanted(n, ratio_at(in.pieces.window)) == n) continue;
      for (int64_t i = chosen.end(piece - 1); i < chosen.end(piece); ++i)
        in.next_velocity[static_cast<size_t>(chosen.positions()[static_cast<size_t>(i)])] = 0;
    }
  }

 private:
  // At least one: a small tensor is not to be forgotten.
  int64_t wanted(int64_t n, double ratio) const {
    if (n < dense_below_) return n;
    return std::clamp<int64_t>(std::llround(ratio * static_cast<double>(n)),
                               std::min<int64_t>(n, 1), n);
  }
  int64_t slack(int64_t k) const { return static_cast<int64_t>(error_ * static_cast<double>(k)); }
  // decay, decay², … for equally many windows each, then the ratio.
  double ratio_at(int64_t window) const {
    if (window >= warmup_) return ratio_;
    const double stage =
        std::floor(static_cast<double>(window) * stages_ / static_cast<double>(warmup_));
    return std::max(ratio_, stages_ > 0 ? std::pow(decay_, stage + 1) : ratio_);
  }

  // How many of the n elements from `begin` on.
  int64_t choose_of(const ToEncode& in, int64_t begin, int64_t n, const Chosen& chosen) const {
    const auto part = [&](auto all) {
      return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
    };
    const std::span<const float> values = part(in.values);
    const int64_t k = wanted(n, ratio_at(in.pieces.window));
    const bool bare = in.residual.empty(), at_once = !bare && momentum_ == 0 && k < n && !sampled_;
    const float factor = static_cast<float>(clipping(in, values) / (bare ? 1 : in.scale));
    if (at_once) {
      const Chosen::Room room = chosen.next(k);
      kernel::top_k_of_sum(room.positions, room.values, part(in.next), values, factor,
                           part(in.residual));
      return k;
    }
    if (bare) {
      const int64_t count = pick(values, k, chosen);
      if (factor != 1)
        for (float& v : chosen.next(count).values) v *= factor;
      return count;
    }
    if (!in.velocity.empty())
      kernel::add_feedback_with_momentum(
          part(in.next), values, factor, part(in.residual),
          {static_cast<float>(momentum_), part(in.velocity), part(in.next_velocity)});
    else
      kernel::add_feedback(part(in.next), values, factor, part(in.residual));
    return pick(part(std::span<const float>(in.next)), k, chosen);
  }

  int64_t pick(std::span<const float> x, int64_t k, const Chosen& chosen) const {
    const auto n = static_cast<int64_t>(x.size());
    if (k == n) {
      const Chosen::Room room = chosen.next(n);
      for (int64_t i = 0; i < n; ++i)
        room.positions[static_cast<size_t>(i)] = static_cast<int32_t>(i);
      std::ranges::copy(x, room.values.begin());
      return n;
    }
    if (sampled_) {
      constexpr int64_t kSamples = 65536;
      const Chosen::Room room = chosen.next(std::min(n, k + slack(k)));
      const int64_t count = kernel::select_above_of(room.positions, room.values, x,
                                                    kernel::sample_threshold_of(x, k, kSamples));
      if (std::abs(count - k) <= slack(k)) return count;
    }
    const Chosen::Room room = chosen.next(k);
    kernel::top_k_of(room.positions, room.values, x);
    return k;
  }

  // What the gradient is multiplied by so that this rank's share of the mean has no more than its
  // share of the norm.
  double clipping(const ToEncode& in, std::span<const float> values) const {
    if (clip_ == 0 || !(in.weight > 0)) return 1;
    const double norm = std::sqrt(kernel::squares_of(values)) / in.loss_scale() /
                        (in.weight * in.ranks),
                 most = clip_ / std::sqrt(static_cast<double>(in.ranks));
    return norm > most && std::isfinite(norm) ? most / norm : 1;
  }

  double ratio_;
  Scope scope_;
  bool sampled_;
  double error_;
  int64_t dense_below_;
  double momentum_;
  bool masking_;
  double clip_;
  int64_t warmup_;
  double decay_;
  double stages_ = 0;
};

const Register<Compressor, TopK> registered{
    "topk",
    "the elements of largest magnitude; with momentum, clip and warmup deep gradient compression",
    {{"ratio", "how many of a piece's elements, at least one (0.01)"},
     {"values", "fp32, fp16, bf16 or int8 (fp32)"},
     {"scope", "what is ranked by itself: tensor or bucket (tensor)"},
     {"select", "exact, or sampled: above a threshold that 65536 samples tell (exact)"},
     {"error", "sampled: how far the number may be off, relative; beyond it is exact (0.2)"},
     {"dense_below", "pieces of fewer elements travel whole (0)"},
     {"momentum", "of momentum correction: train with plain SGD; needs +ef (0: none)"},
     {"masking", "clear momentum where it has been sent (on)"},
     {"clip", "norm of a piece's mean gradient, to which each rank clips its share (0: none)"},
     {"warmup", "windows in which the ratio falls to its value (0)"},
     {"decay", "warmup: the ratio is decay, decay^2, … for equally many windows each (0.25)"}}};

}  // namespace
}  // namespace lockstep::distributed
