#include "core/profile.h"

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"

#include <gtest/gtest.h>

namespace lockstep::autograd {
namespace {

using Kind = Profile::Kind;

TEST(Profile, BackwardIsCountedByOperationAndItsKernelsInside) {
  const Tensor x = full({4, 3}, 1), w1 = full({5, 3}, 1), w2 = full({2, 5}, 1);
  require_grad(w1);
  require_grad(w2);
  Profile profile({.warm_up = 0});
  const Profile::Attach attached(&profile);
  {
    const ProfileSpan step(Kind::step, "step");
    ProfilePhases phase;
    phase.enter("forward");
    const Tensor loss = ops::sum(ops::linear(ops::gelu(ops::linear(x, w1)), w2));
    phase.enter("backward");
    backward(loss);
  }
  const auto row = [&](Kind kind, std::string_view name, std::string_view phase) {
    for (const Profile::Row& r : profile.rows())
      if (r.kind == kind && r.name == name && r.phase == phase) return r;
    return Profile::Row{};
  };
  EXPECT_EQ(row(Kind::kernel, "matmul", "forward").calls, 2);
  EXPECT_EQ(row(Kind::kernel, "matmul", "forward").cost.flops, 2 * 4 * (3 * 5 + 5 * 2));
  EXPECT_EQ(row(Kind::kernel, "gelu", "forward").calls, 1);
  // Weights want a gradient, x does not.
  EXPECT_EQ(row(Kind::kernel, "matmul", "backward").calls, 3);
  EXPECT_EQ(row(Kind::kernel, "matmul", "backward").cost.flops, 2 * 4 * (3 * 5 + 2 * 5 * 2));
  EXPECT_EQ(row(Kind::backward, "linear", "backward").calls, 2);
  EXPECT_EQ(row(Kind::backward, "gelu", "backward").calls, 1);
  EXPECT_EQ(row(Kind::backward, "linear", "forward").calls, 0);
  const Profile::Row linear = row(Kind::backward, "linear", "backward");
  EXPECT_EQ(linear.total_ns - linear.self_ns, row(Kind::kernel, "matmul", "backward").total_ns);
}

}  // namespace
}  // namespace lockstep::autograd
