#include "core/kernels/topk.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/allocator.h"
#include "core/kernels/elementwise.h"
#include "tests/support/kernel_test.h"

namespace lockstep::test {
namespace {

class TopK : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(TopK);

double magnitude(float v) {
  return std::isnan(v) ? HUGE_VAL : std::min(std::abs(double{v}), 1e300);
}

// All indices, the largest magnitude first, among equal ones the lowest index: the plain twin.
std::vector<int32_t> ranked(const Tensor& x) {
  const std::vector<float> v = values(x);
  std::vector<int32_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return magnitude(v[a]) > magnitude(v[b]); });
  return order;
}

// Room for results with guards on both sides, which must stay as they are.
struct Chosen {
  static constexpr int64_t kGuard = 32;

  explicit Chosen(int64_t room)
      : all_indices(full({room + 2 * kGuard}, -7, DType::i32)),
        all_values(full({room + 2 * kGuard}, -7)),
        indices(all_indices.slice_as_root(kGuard, {room})),
        values(all_values.slice_as_root(kGuard, {room})) {}

  // Exactly `expected`, with the bits of x.
  testing::AssertionResult are(const std::vector<int32_t>& expected, const Tensor& x) const {
    const float* from = x.data<float>();
    const int32_t* got = all_indices.data<int32_t>();
    const float* numbers = all_values.data<float>();
    const auto count = static_cast<int64_t>(expected.size());
    for (int64_t i = -kGuard; i < indices.numel() + kGuard; ++i) {
      const bool inside = 0 <= i && i < count;
      const int32_t index = inside ? expected[static_cast<size_t>(i)] : -7;
      const float number = inside ? from[index] : -7.0f;
      if (got[i + kGuard] != index ||
          std::bit_cast<uint32_t>(numbers[i + kGuard]) != std::bit_cast<uint32_t>(number))
        return testing::AssertionFailure()
               << "result " << i << " of " << count << ": expected " << number << " at " << index
               << ", got " << numbers[i + kGuard] << " at " << got[i + kGuard];
    }
    return testing::AssertionSuccess();
  }

  Tensor all_indices, all_values, indices, values;
};

testing::AssertionResult top_k_is_right(const Tensor& x, const std::vector<int32_t>& order,
                                        int64_t k) {
  const Chosen chosen(k);
  kernel::top_k(chosen.indices, chosen.values, x);
  std::vector<int32_t> expected(order.begin(), order.begin() + k);
  std::sort(expected.begin(), expected.end());
  return chosen.are(expected, x);
}

struct Distribution {
  const char* name;
  float (*at)(const Random& random, int64_t i, int64_t n);
};
float any_bits(const Random& random, int64_t i) {
  return std::bit_cast<float>(random.word(static_cast<uint64_t>(i)));
}
float uniform(const Random& random, int64_t i) { return random.uniform(static_cast<uint64_t>(i)); }
float normal(const Random& random, int64_t i) {
  return static_cast<float>(random.normal(static_cast<uint64_t>(i)));
}
constexpr Distribution kDistributions[] = {
    {"normal", [](const Random& r, int64_t i, int64_t) { return normal(r, i); }},
    {"of one exponent", [](const Random& r, int64_t i, int64_t) { return 1 + uniform(r, i) / 64; }},
    {"any bits", [](const Random& r, int64_t i, int64_t) { return any_bits(r, i); }},
    {"subnormal", [](const Random& r, int64_t i, int64_t) { return normal(r, i) * 1e-41f; }},
    {"all zero", [](const Random&, int64_t i, int64_t) { return i % 3 ? 0.0f : -0.0f; }},
    {"all equal", [](const Random&, int64_t i, int64_t) { return i % 3 ? 0.25f : -0.25f; }},
    {"all NaN",
     [](const Random& r, int64_t i, int64_t) {
       return std::bit_cast<float>(r.word(static_cast<uint64_t>(i)) | 0x7f800001u);
     }},
    {"half a percent not zero", [](const Random& r, int64_t i,
                                   int64_t) { return any_bits(r, i) * (uniform(r, ~i) < 0.005f); }},
    {"few values", [](const Random& r, int64_t i, int64_t) { return std::round(normal(r, i)); }},
    {"two in a hundred infinite or NaN",
     [](const Random& r, int64_t i, int64_t) {
       const float u = uniform(r, ~i);
       return u < 0.01f ? -INFINITY : u < 0.02f ? NAN : normal(r, i);
     }},
    {"ascending", [](const Random&, int64_t i, int64_t) { return static_cast<float>(i); }},
    {"descending", [](const Random&, int64_t i, int64_t n) { return static_cast<float>(i - n); }},
    {"large in one place",
     [](const Random& r, int64_t i, int64_t n) {
       return i > n - n / 50 ? 100 * normal(r, i) : 1e-3f * normal(r, i);
     }},
    {"with a period",
     [](const Random& r, int64_t i, int64_t) {
       return i % 64 == 5 ? 10 * normal(r, i) : 1e-3f * normal(r, i);
     }},
};

Tensor drawn(const Distribution& from, int64_t n) {
  const Tensor x = Tensor::empty({n + 1}).slice_as_root(1, {n});  // not aligned
  const Random random(5, RandomStream::tests);
  float* p = x.mutable_data<float>();
  for (int64_t i = 0; i < n; ++i) p[i] = from.at(random, i, n);
  return x;
}

TEST_P(TopK, IsThatOfSortingForEveryDistribution) {
  std::vector<int64_t> sizes = odd_sizes();
  sizes.insert(sizes.end(), {16383, 16384, 140001});
  for (const Distribution& distribution : kDistributions)
    for (int64_t n : sizes) {
      const Tensor x = drawn(distribution, n);
      const std::vector<int32_t> order = ranked(x);
      for (int64_t k : {int64_t{0}, int64_t{1}, n / 1000, n / 100, n / 37, n / 2, n - 1, n})
        if (0 <= k && k <= n) {
          ASSERT_TRUE(top_k_is_right(x, order, k)) << distribution.name << ", " << k << " of " << n;
        }
    }
}

TEST_P(TopK, OfASumWritesTheSumAndChoosesFromIt) {
  for (const Distribution& distribution : kDistributions)
    for (int64_t n : {0, 1, 33, 1023, 40001})
      for (float factor : {1.0f, 0x1p-10f}) {
        const Tensor x = drawn(distribution, n), residual = random_tensor({n}, 7);
        std::vector<float> sums = values(residual);
        for (int64_t i = 0; i < n; ++i) sums[static_cast<size_t>(i)] += factor * x.data<float>()[i];
        const Tensor expected = from_values(sums);
        const std::vector<int32_t> order = ranked(expected);
        for (int64_t k : {int64_t{0}, n / 100, n / 2, n}) {
          const Chosen chosen(k);
          const auto count = static_cast<size_t>(k), all = static_cast<size_t>(n);
          const Tensor sum = Tensor::empty({n + 1}).slice_as_root(1, {n});
          kernel::copy(sum, residual);
          const std::span<float> in_place{sum.mutable_data<float>(), all};
          kernel::top_k_of_sum({chosen.indices.mutable_data<int32_t>(), count},
                               {chosen.values.mutable_data<float>(), count}, in_place,
                               {x.data<float>(), all}, factor, in_place);
          std::vector<int32_t> largest(order.begin(), order.begin() + k);
          std::sort(largest.begin(), largest.end());
          ASSERT_TRUE(chosen.are(largest, expected))
              << distribution.name << ", " << k << " of " << n;
          for (size_t i = 0; i < all; ++i)
            ASSERT_TRUE(in_place[i] == sums[i] || (std::isnan(in_place[i]) && std::isnan(sums[i])))
                << distribution.name << " at " << i << " of " << n;
        }
      }
}

TEST_P(TopK, OfManyOddSizesAndKs) {
  const Random random(8, RandomStream::tests);
  for (uint64_t trial = 0; trial < 400; ++trial) {
    const int64_t n = 1 + random.word(4 * trial) % (trial % 20 == 0 ? 40000 : 300);
    const int64_t k = random.word(4 * trial + 1) % (n + 1);
    const Distribution& distribution = kDistributions[trial % std::size(kDistributions)];
    const Tensor x = drawn(distribution, n);
    ASSERT_TRUE(top_k_is_right(x, ranked(x), k)) << distribution.name << ", " << k << " of " << n;
  }
}

// The places that a sample of 1 in 32 looks at: of numbers that tell their own place, each rank.
std::vector<int64_t> sampled_places(int64_t n) {
  const Tensor x = Tensor::empty({n});
  for (int64_t i = 0; i < n; ++i) x.mutable_data<float>()[i] = static_cast<float>(i + 1);
  std::vector<int64_t> places;
  for (int64_t k = 32; k <= n; k += 32)
    places.push_back(static_cast<int64_t>(kernel::sample_threshold(x, k, n / 32)) - 1);
  return places;
}

TEST_P(TopK, IsExactWhereTheSampleMisleads) {
  const int64_t n = 32 * 5120;
  const std::vector<int64_t> places = sampled_places(n);
  ASSERT_EQ(std::adjacent_find(places.begin(), places.end()), places.end());
  for (float value : {2.0f, 0.001f}) {  // a bound too high, one too low
    const Tensor x = random_tensor({n}, 3);
    for (int64_t i = 0; i < n; ++i)
      x.mutable_data<float>()[i] =
          std::copysign(1 + static_cast<float>(i % 997) / 1000, x.data<float>()[i]);
    for (int64_t place : places) x.mutable_data<float>()[place] = value;
    const std::vector<int32_t> order = ranked(x);
    for (int64_t k : {n / 100, n / 10, n / 2}) EXPECT_TRUE(top_k_is_right(x, order, k)) << value;
  }
}

TEST_P(TopK, AboveAThresholdIsWhatAComparisonSays) {
  for (const Distribution& distribution : kDistributions)
    for (int64_t n : {0, 1, 15, 33, 1023, 140001}) {
      const Tensor x = drawn(distribution, n);
      const std::vector<float> v = values(x);
      for (float threshold : {-0.0f, 1e-42f, 0.25f, 1.0f, 2.5f, 1e30f, INFINITY}) {
        std::vector<int32_t> expected;
        for (int32_t i = 0; i < n; ++i)
          if (std::abs(v[i]) >= threshold || std::isnan(v[i])) expected.push_back(i);
        const auto count = static_cast<int64_t>(expected.size());
        for (int64_t room : {count + 7, count, count / 2, int64_t{0}}) {
          const Chosen chosen(room);
          EXPECT_EQ(kernel::select_above(chosen.indices, chosen.values, x, threshold), count);
          expected.resize(std::min(expected.size(), static_cast<size_t>(room)));
          ASSERT_TRUE(chosen.are(expected, x)) << distribution.name << ", at least " << threshold;
        }
      }
    }
}

TEST_P(TopK, ASampledThresholdKeepsToItsError) {
  const int64_t n = 400000, samples = 10000;
  for (const char* name : {"normal", "large in one place", "with a period", "ascending"}) {
    const auto* distribution =
        std::find_if(std::begin(kDistributions), std::end(kDistributions),
                     [&](const Distribution& d) { return std::string(d.name) == name; });
    const Tensor x = drawn(*distribution, n);
    const Chosen none(0);
    for (int64_t k : {n / 100, n / 10, n / 2}) {
      const float threshold = kernel::sample_threshold(x, k, samples);
      const int64_t count = kernel::select_above(none.indices, none.values, x, threshold);
      const double sd = std::sqrt(static_cast<double>(k) * n / samples);
      EXPECT_NEAR(static_cast<double>(count), static_cast<double>(k), 5 * sd) << name;
    }
  }
}

TEST_P(TopK, ASampleOfEverythingIsExact) {
  const Tensor x = random_tensor({1001}, 4);
  const std::vector<int32_t> order = ranked(x);
  for (int64_t k : {1, 10, 500, 1001})
    EXPECT_EQ(kernel::sample_threshold(x, k, 5000), std::abs(values(x)[order[k - 1]]));
  EXPECT_EQ(kernel::sample_threshold(full({9}, NAN), 1, 9), INFINITY);
}

TEST_P(TopK, AWarmCallAsksTheSystemForNothing) {
  const Tensor x = random_tensor({200000}, 6);
  const Chosen chosen(2000);
  kernel::top_k(chosen.indices, chosen.values, x);
  const int64_t before = host_allocator().stats().system_calls;
  kernel::top_k(chosen.indices, chosen.values, x);
  EXPECT_EQ(host_allocator().stats().system_calls, before);
}

TEST(TopKThreads, DoNotChangeTheResult) {
  for (const Distribution& distribution : kDistributions) {
    const Tensor x = drawn(distribution, 400003);
    const std::vector<int32_t> order = ranked(x);
    for (int threads : {1, 3, 6}) {
      const ThreadBudget budget(threads);
      EXPECT_TRUE(top_k_is_right(x, order, 4000)) << distribution.name << ", " << threads;
    }
  }
}

TEST(TopKShapes, AreChecked) {
  const Tensor x = random_tensor({2, 3}, 1), i2 = zeros({2}, DType::i32), v2 = zeros({2});
  kernel::top_k(i2, v2, x);
  EXPECT_EQ(error_of([&] { kernel::top_k(zeros({7}, DType::i32), zeros({7}), x); }),
            "[kernel.top_k] k; expected at most the 6 elements of x, got 7");
  EXPECT_THROW(kernel::top_k(i2, zeros({3}), x), UsageError);
  EXPECT_THROW(kernel::top_k(zeros({2}, DType::i64), v2, x), UsageError);
  EXPECT_THROW(kernel::top_k(i2, zeros({2}, DType::f16), x), UsageError);
  EXPECT_THROW(kernel::top_k(i2, v2, zeros({9}, DType::bf16)), UsageError);
  for (float threshold : {-1.0f, float{NAN}})
    EXPECT_THROW(kernel::select_above(i2, v2, x, threshold), UsageError);
  EXPECT_THROW(kernel::sample_threshold(x, 0, 4), UsageError);
  EXPECT_THROW(kernel::sample_threshold(x, 7, 4), UsageError);
  EXPECT_THROW(kernel::sample_threshold(x, 1, 0), UsageError);
}

class TopKKnownFaults : public KernelTest {};
LOCKSTEP_KERNEL_TESTS(TopKKnownFaults);

// The recurrence of error feedback: what was not sent is added to the next gradient.
TEST_P(TopKKnownFaults, O17_TopKByMagnitude) {
  const Tensor g = from_values<float>({-5, 1, 2, -3}), residual = zeros({4});
  const Chosen sent(1);
  const std::pair<int32_t, float> expected[] = {{0, -5.0f}, {3, -6.0f}, {0, -10.0f}};
  std::vector<float> sums(4, 0.0f);
  for (const auto& [index, value] : expected) {
    kernel::add_scaled(residual, g, 1);
    kernel::top_k(sent.indices, sent.values, residual);
    EXPECT_EQ(values<int32_t>(sent.indices), std::vector{index});
    EXPECT_EQ(values(sent.values), std::vector{value});
    residual.mutable_data<float>()[index] -= value;
    sums[static_cast<size_t>(index)] += value;
  }
  EXPECT_EQ(values(residual), (std::vector<float>{0, 3, 6, -3}));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(sums[i] + values(residual)[i], 3 * values(g)[i]) << i;
}

}  // namespace
}  // namespace lockstep::test
