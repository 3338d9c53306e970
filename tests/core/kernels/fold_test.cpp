// The fold that collectives make: successive operations in rank order, for every dtype.
#include "core/kernels/fold.h"

#include <cstring>

#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {


class Fold : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(Fold);
class FoldKnownFaults : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(FoldKnownFaults);

// One element at a time, as the header says.
template <class T, class Wide>
T naive(const std::vector<T>& x, const FoldOptions& options) {
  const auto step = [&](Wide v) -> Wide {
    if constexpr (sizeof(T) == 2) {
      if (options.in == FoldIn::wire) return float(T(v));
    }
    return v;
  };
  const auto scaled = [&](Wide v, float factor) -> Wide {
    if constexpr (std::is_same_v<Wide, float>) return v * factor;
    return v;
  };
  Wide sum = step(scaled(Wide(x[0]), options.pre));
  for (size_t k = 1; k < x.size(); ++k) {
    const Wide v = step(scaled(Wide(x[k]), options.pre));
    const bool nan = v != v;
    switch (options.op) {
      case FoldOp::sum:
      case FoldOp::mean:
        sum = step(sum + v);
        break;
      case FoldOp::max:
        sum = nan || v > sum ? v : sum;
        break;
      case FoldOp::min:
        sum = nan || v < sum ? v : sum;
        break;
    }
  }
  if (options.op == FoldOp::mean) sum = step(sum / static_cast<Wide>(x.size()));
  return static_cast<T>(scaled(sum, options.post));
}

// Values over many magnitudes; of integers some whose sums wrap.
template <class T>
std::vector<std::vector<T>> inputs_of(int count, int64_t n) {
  std::vector<std::vector<T>> inputs;
  for (int k = 0; k < count; ++k) {
    const Random random(3, RandomStream::tests, static_cast<uint32_t>(k));
    std::vector<T> x;
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_integral_v<T>)
        x.push_back(static_cast<T>(random.uniform53(static_cast<uint64_t>(i)) * 1.8e19));
      else
        x.push_back(T(static_cast<float>(
            std::ldexp(random.normal(static_cast<uint64_t>(i)), static_cast<int>(i % 23) - 8))));
    }
    inputs.push_back(x);
  }
  return inputs;
}

// `ins` and as many `outs` as wanted, at odd addresses; equals the twin bit for bit.
template <class T, class Wide>
void equals_the_twin(int count, int64_t n, int64_t offset, const FoldOptions& options) {
  const auto inputs = inputs_of<T>(count, n);
  std::vector<T> expected;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<T> column;
    for (const auto& x : inputs) column.push_back(x[static_cast<size_t>(i)]);
    expected.push_back(naive<T, Wide>(column, options));
  }
  std::vector<std::vector<T>> buffers;
  std::vector<const void*> ins;
  std::vector<void*> places;
  for (const auto& x : inputs) {
    buffers.emplace_back(static_cast<size_t>(offset), T(5));
    buffers.back().insert(buffers.back().end(), x.begin(), x.end());
    buffers.back().push_back(T(5));
  }
  for (auto& buffer : buffers) ins.push_back(buffer.data() + offset);
  std::vector<T> first(static_cast<size_t>(n)), second(static_cast<size_t>(n));
  const std::vector<void*> outs = {first.data(), second.data()};
  kernel::fold(outs, ins, dtype_of<T>, n, options);
  const auto bytes = static_cast<size_t>(n) * sizeof(T);
  if (n == 0) return;
  EXPECT_EQ(std::memcmp(first.data(), expected.data(), bytes), 0) << count << " inputs of " << n;
  EXPECT_EQ(std::memcmp(second.data(), expected.data(), bytes), 0) << count << " inputs of " << n;
  // Onto the inputs themselves; what lies before and behind them stays.
  for (auto& buffer : buffers) places.push_back(buffer.data() + offset);
  kernel::fold(places, ins, dtype_of<T>, n, options);
  for (const auto& buffer : buffers) {
    EXPECT_EQ(std::memcmp(buffer.data() + offset, expected.data(), bytes), 0)
        << count << " of " << n;
    const T five(5);
    EXPECT_EQ(std::memcmp(&buffer.back(), &five, sizeof five), 0) << "written behind the end";
  }
}

constexpr FoldOp kOps[] = {FoldOp::sum, FoldOp::mean, FoldOp::max, FoldOp::min};

template <class T, class Wide>
void equals_the_twin_everywhere() {
  for (int64_t n : {0, 1, 3, 4, 15, 16, 17, 63, 64, 65, 1000})
    for (int count : {1, 2, 3, 7})
      for (FoldOp op : kOps)
        for (FoldIn in : {FoldIn::f32, FoldIn::wire})
          for (const auto& [pre, post] : {std::pair{1.0f, 1.0f}, std::pair{0.25f, 0.5f}})
            equals_the_twin<T, Wide>(count, n, count % 2, {op, in, pre, post});
}
TEST_P(Fold, OfFloats) { equals_the_twin_everywhere<float, float>(); }
TEST_P(Fold, OfHalves) { equals_the_twin_everywhere<half, float>(); }
TEST_P(Fold, OfBfloat16s) { equals_the_twin_everywhere<bfloat16, float>(); }

template <class T, class Wide>
void of_integers() {
  for (int64_t n : {0, 1, 17, 1000})
    for (int count : {1, 2, 3, 7})
      for (FoldOp op : kOps) equals_the_twin<T, Wide>(count, n, 1, {op});
}
TEST_P(Fold, OfIntegersWrapsSumsAndDividesExactOnes) {
  of_integers<uint8_t, int64_t>();
  of_integers<int32_t, int64_t>();
  of_integers<int64_t, __int128>();
}

TEST_P(Fold, MaxAndMinGiveNanWhereAnInputHoldsOne) {
  const std::vector<float> a = {NAN, 1, 2, NAN, INFINITY}, b = {1, NAN, 3, NAN, -INFINITY};
  const std::vector<const void*> ins = {a.data(), b.data()};
  std::vector<float> high(5), low(5);
  void* outs[] = {high.data()};
  kernel::fold(outs, ins, DType::f32, 5, {.op = FoldOp::max});
  outs[0] = low.data();
  kernel::fold(outs, ins, DType::f32, 5, {.op = FoldOp::min});
  for (int i : {0, 1, 3}) EXPECT_TRUE(std::isnan(high[i]) && std::isnan(low[i])) << i;
  EXPECT_EQ(high[2], 3);
  EXPECT_EQ(low[2], 2);
  EXPECT_EQ(high[4], INFINITY);
  EXPECT_EQ(low[4], -INFINITY);
}

template <class T>
T fold_of(const std::vector<T>& x, const FoldOptions& options = {}) {
  std::vector<const void*> ins;
  for (const T& v : x) ins.push_back(&v);
  T out;
  void* outs[] = {&out};
  kernel::fold(outs, ins, dtype_of<T>, 1, options);
  return out;
}

// Four ranks that hold the same.
float average_of_four(float x, const FoldOptions& options) {
  return fold_of(std::vector<half>(4, half(x)), options);
}

TEST_P(FoldKnownFaults, O11_AveragesOfHalvesNeitherOverflowNorVanish) {
  for (float x : {30000.0f, 0x1p-24f}) {
    EXPECT_EQ(average_of_four(x, {.post = 0.25f}), x) << "added in f32, divided afterwards";
    EXPECT_EQ(average_of_four(x, {.op = FoldOp::mean}), x);
  }
  // What goes wrong in the wire's own type: without factors the sum overflows, and dividing first
  // makes the small vanish.
  EXPECT_EQ(average_of_four(30000, {.in = FoldIn::wire}), INFINITY);
  EXPECT_EQ(average_of_four(30000, {.op = FoldOp::mean, .in = FoldIn::wire}), INFINITY);
  EXPECT_EQ(average_of_four(30000, {.in = FoldIn::wire, .pre = 0.25f}), 30000);
  EXPECT_EQ(average_of_four(0x1p-24f, {.in = FoldIn::wire, .pre = 0.25f}), 0);
  EXPECT_EQ(average_of_four(0x1p-24f, {.in = FoldIn::wire, .post = 0.25f}), 0x1p-24f);
}

TEST_P(FoldKnownFaults, O32_IntegersAreFoldedAsIntegers) {
  EXPECT_EQ(fold_of<int32_t>({7, 8, 9}), 24);
  EXPECT_EQ(fold_of<int32_t>({7, 8, 9}, {.op = FoldOp::mean}), 8) << "not 0";
  EXPECT_EQ(fold_of<int32_t>({1, 1, 2}), 4);
  EXPECT_EQ(fold_of<int32_t>({1, 1, 2}, {.op = FoldOp::mean}), 1);
  // Beyond what a float could hold exactly.
  EXPECT_EQ(fold_of<int64_t>({(int64_t{1} << 53) + 1, 1}), (int64_t{1} << 53) + 2);
  EXPECT_EQ(fold_of<int64_t>({INT64_MAX, INT64_MAX}, {.op = FoldOp::mean}), INT64_MAX);
}

TEST_P(Fold, LongSumsStallInTheWiresTypeOnly) {
  const half one(1);
  const std::vector<const void*> ins(4096, &one);
  half out;
  void* outs[] = {&out};
  kernel::fold(outs, ins, DType::f16, 1, {.in = FoldIn::wire});
  EXPECT_EQ(float(out), 2048);
  kernel::fold(outs, ins, DType::f16, 1, {});
  EXPECT_EQ(float(out), 4096);
}

}  // namespace
}  // namespace lockstep::test
