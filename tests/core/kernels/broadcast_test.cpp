#include <functional>

#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

class Broadcast : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Broadcast);

// Element of `small`, broadcast to `large`, at the flat position i of large.
double at(const std::vector<double>& v, const Shape& small, const Shape& large, int64_t i) {
  int64_t index = 0, run = 1;
  for (int d = large.rank() - 1, s = small.rank() - 1; d >= 0; --d, --s) {
    const int64_t place = i % large[d];
    i /= large[d];
    if (s < 0) continue;
    if (small[s] != 1) index += place * run;
    run *= small[s];
  }
  return v[index];
}

struct Shapes {
  Shape a, b, out;
};
const std::vector<Shapes>& shapes() {
  static const std::vector<Shapes> all = {
      {{}, {}, {}},
      {{5}, {5}, {5}},
      {{70001}, {70001}, {70001}},
      {{70001}, {1}, {70001}},
      {{}, {2}, {2}},
      {{2, 3}, {3}, {2, 3}},
      {{4, 1}, {1, 4}, {4, 4}},
      {{2, 1}, {1, 3}, {2, 3}},
      {{300, 129}, {129}, {300, 129}},
      {{300, 129}, {300, 1}, {300, 129}},
      {{2, 1, 5}, {7, 1}, {2, 7, 5}},
      {{2, 3, 1, 5}, {3, 4, 5}, {2, 3, 4, 5}},
      {{2, 3, 4, 5}, {2, 1, 4, 1}, {2, 3, 4, 5}},
      {{0, 3}, {3}, {0, 3}},
      {{1, 3}, {0, 3}, {0, 3}},
      {{1, 17, 1, 3, 1, 2}, {2, 1, 5, 1, 2, 1}, {2, 17, 5, 3, 2, 2}},
  };
  return all;
}

TEST_P(Broadcast, EveryOperationOnEveryPairOfShapes) {
  using kernel::Binary;
  const std::pair<Binary, std::function<double(double, double)>> operations[] = {
      {Binary::add, std::plus<double>()},
      {Binary::subtract, std::minus<double>()},
      {Binary::multiply, std::multiplies<double>()},
      {Binary::divide, std::divides<double>()},
  };
  for (const Shapes& s : shapes())
    for (const auto& [op, f] : operations) {
      const Tensor a = random_tensor(s.a, 1, 1, Placed::unaligned), b = random_tensor(s.b, 2),
                   out = Tensor::empty(s.out);
      kernel::binary(out, a, b, op);
      const std::vector<double> x = doubles(a), y = doubles(b);
      std::vector<double> expected(s.out.numel());
      for (int64_t i = 0; i < s.out.numel(); ++i)
        expected[i] = f(at(x, s.a, s.out, i), at(y, s.b, s.out, i));
      expect_close(out, expected, 1e-6, 1e-7, to_string(s.a) + to_string(s.b));
    }
}

TEST_P(Broadcast, SumToIsTheTransposeOfBroadcasting) {
  for (const Shapes& s : shapes())
    for (const Shape& small : {s.a, s.b}) {
      const Tensor x = random_tensor(s.out, 3), out = full(small, std::nan(""));
      kernel::sum_to(out, x);
      const std::vector<double> from = doubles(x);
      // Numbering the places of the small shape tells where each element of the large one goes.
      std::vector<double> expected(small.numel(), 0.0), places(small.numel());
      for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<double>(i);
      for (int64_t i = 0; i < s.out.numel(); ++i)
        expected[static_cast<size_t>(at(places, small, s.out, i))] += from[i];
      expect_close(out, expected, 1e-6, 1e-5, to_string(s.out) + " to " + to_string(small));
    }
}

TEST_P(Broadcast, ShapesThatDoNotFitAreRefused) {
  EXPECT_THROW(kernel::binary(zeros({2, 3}), zeros({2}), zeros({2, 3}), kernel::Binary::add),
               UsageError);
  EXPECT_THROW(kernel::binary(zeros({3}), zeros({2, 3}), zeros({3}), kernel::Binary::add),
               UsageError);
  EXPECT_THROW(kernel::sum_to(zeros({2}), zeros({2, 3})), UsageError);
}

}  // namespace
}  // namespace lockstep::test
