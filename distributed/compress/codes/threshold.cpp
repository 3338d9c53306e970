// All elements of at least a magnitude, with their positions (Strom 2015): as many as there are.
#include <cmath>
#include <limits>

#include "core/kernels/feedback.h"
#include "core/kernels/topk.h"
#include "core/spec.h"
#include "distributed/compress/sparse_code.h"

namespace lockstep::distributed {
namespace {

class Threshold final : public SparseCode {
 public:
  explicit Threshold(const Spec& spec)
      : SparseCode(SparseBlock(spec)), value_(spec.number("value", 1e-3, {.min = 0})) {}

  bool fixed_size() const override { return false; }

 protected:
  int64_t most_of(int64_t n, int64_t) const override { return n; }
  // Nobody knows beforehand.
  double expected_of(int64_t n) const override { return 0.01 * static_cast<double>(n); }

  Chosen choose(const ToEncode& in) const override {
    std::span<const float> x = in.values;
    double threshold = value_ * in.weight;
    if (!in.residual.empty()) {
      kernel::add_feedback(in.next, in.values, 1 / in.scale, in.residual);
      threshold *= double{in.kept_times};
      x = in.next;
    } else {
      threshold *= in.scale;
    }
    // A rank without samples keeps what it has.
    const float least = in.weight > 0 && threshold < std::numeric_limits<float>::max()
                            ? static_cast<float>(threshold)
                            : INFINITY;
    const int64_t count = kernel::select_above_of({}, {}, x, least);
    Chosen chosen(count, static_cast<int64_t>(in.pieces.ends.size()));
    each_piece(in.pieces, [&](size_t, int64_t begin, int64_t end) {
      const Chosen::Room room = chosen.next(count - chosen.count());
      const std::span<const float> piece =
          x.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      chosen.end_piece(begin, kernel::select_above_of(room.positions, room.values, piece, least));
    });
    return chosen;
  }

 private:
  double value_;
};

const Register<Compressor, Threshold> registered{
    "threshold",
    "all elements of at least a magnitude",
    {{"value", "of this rank's mean gradient and what waits to be sent of it (0.001)"},
     {"values", "fp32, fp16, bf16 or int8 (fp32)"}}};

}  // namespace
}  // namespace lockstep::distributed
