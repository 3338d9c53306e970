// QSGD (Alistarh et al. 2017, arXiv:1610.02132): levels between 0 and a norm of each block, with a
// sign, chosen at random between the two neighbours so that the mean is the value itself; packed.
// With b bits there are 2^(b-1) - 1 levels, with one bit ± the norm. The norm is the largest
// magnitude, which the paper measures with (section 5), or the Euclidean, which its bounds are for.
// It needs no error feedback, which is refused where residuals would grow from step to step: with
// one bit, and with too few levels of a Euclidean norm.
// Moves b/8 + 4/block bytes an element.
#include "distributed/compress/codes/blocks.h"

namespace lockstep::distributed {
namespace {

class Qsgd final : public BlockCompressor {
 public:
  explicit Qsgd(const Spec& spec)
      : BlockCompressor("qsgd",
                        {.block = block_of(spec, 512),
                         .bits = static_cast<int>(spec.integer("bits", 4, {.min = 1, .max = 8})),
                         .grid = spec.text("norm", "max", {"max", "l2"}) == "l2"
                                     ? kernel::BlockCode::Grid::l2
                                     : kernel::BlockCode::Grid::absmax},
                        Rounding::stochastic) {}

  // One bit loses up to twice the largest magnitude. Of a block of n elements in s levels of the
  // Euclidean norm n / (4 s²) of the squares may be lost (lemma 3.1 has √n / s for large n, which
  // is more than was given from the same size on).
  bool bounds_residuals() const override {
    const int64_t levels = (int64_t{1} << (code().bits - 1)) - 1;
    return code().grid == kernel::BlockCode::Grid::l2 ? code().block < 4 * levels * levels
                                                      : levels > 0;
  }
};

const Register<Compressor, Qsgd> registered{
    "qsgd",
    "levels of a norm of each block, rounded at random, unbiased",
    {{"bits", "of an element, sign included, 1 to 8; 1 not with +ef (4)"},
     {"block", "elements of a block, a multiple of 8 (512)"},
     {"norm",
      "max: the largest magnitude, or l2, which has more variance: +ef from bits=5 on (max)"}}};

}  // namespace
}  // namespace lockstep::distributed
