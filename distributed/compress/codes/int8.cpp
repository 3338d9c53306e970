// Eight bits an element (or fewer) and a scale for every block of them (Dettmers 2016,
// arXiv:1511.04561, with the simplest of grids): absmax has the multiples of largest / 127, zero
// among them, minmax 256 values from the least to the largest. Moves 1 + 4/block bytes an element
// (minmax 1 + 8/block).
#include "distributed/compress/codes/blocks.h"

namespace lockstep::distributed {
namespace {

class Int8 final : public BlockCompressor {
 public:
  explicit Int8(const Spec& spec)
      : BlockCompressor("int8",
                        {.block = block_of(spec, 256),
                         .bits = static_cast<int>(spec.integer("bits", 8, {.min = 2, .max = 8})),
                         .grid = spec.text("mode", "absmax", {"absmax", "minmax"}) == "minmax"
                                     ? kernel::BlockCode::Grid::minmax
                                     : kernel::BlockCode::Grid::absmax},
                        spec.text("round", "nearest", {"nearest", "stochastic"}) == "nearest"
                            ? Rounding::nearest
                            : Rounding::stochastic) {}
};

const Register<Compressor, Int8> registered{
    "int8",
    "eight bits an element, a scale for each block",
    {{"block", "elements of a block, a multiple of 8 (256)"},
     {"mode",
      "absmax: multiples of a step, zero among them; minmax: from least to largest (absmax)"},
     {"round", "nearest or stochastic, which is unbiased (nearest)"},
     {"bits", "of an element, 2 to 8 (8)"}}};

}  // namespace
}  // namespace lockstep::distributed
