// Convolution where a rank has no images.
#include <gtest/gtest.h>

#include "distributed/comm/launch.h"
#include "layers/conv2d.h"
#include "models.h"
#include "rank.h"
#include "tests/support/tensors.h"

namespace lockstep::distributed {
namespace {

struct Images final : layers::Module {
  Images()
      : init(3),
        conv(init, 3, 4,
             {.convolution = {.stride = square(2), .padding = square(1)},
              .init = layers::normal(1)}) {
    add_child("conv", conv);
  }
  Tensor loss_sum(const Tensor& x) const {
    const Tensor pooled = ops::max_pool(conv(x), kernel::tiles(2));
    return ops::sum(ops::unary(ops::global_average_pool(pooled), kernel::Unary::square));
  }
  layers::Initialiser init;
  layers::Conv2d conv;
};

TEST(KnownFaults, O40_ARankWithoutImages) {
  const Tensor x = testing::randn({2, 3, 9, 9}, 1);
  std::vector<float> alone;
  for (int ranks : {1, 2})
    run_ranks(ranks, [&](Communicator& comm) {
      Rank<Images> rank(comm, {}, kPlainSgd);
      const int64_t images = comm.rank() == 0 ? 2 : 0;
      rank.micro(rank.model.loss_sum(x.slice(0, images)), Sync::now, static_cast<double>(images));
      const StepVerdict verdict = rank.finish();
      EXPECT_EQ(verdict.weight, 2);
      const auto gradient = values(autograd::grad(rank.model.conv.weight()));
      if (ranks == 1)
        alone = gradient;
      else
        EXPECT_EQ(gradient, alone) << "rank " << comm.rank();
    });
  EXPECT_EQ(alone.size(), 108u);
}

}  // namespace
}  // namespace lockstep::distributed
