#include "apps/bench/measure.h"
#include "apps/bench/row_limits.h"
#include "core/kernels/interaction.h"
#include "core/kernels/table_step.h"
#include "core/parallel.h"
#include "core/random.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>

// The embedding part of a recommender's step, beside loops that only go to the same rows.
namespace lockstep::apps {
namespace {

constexpr int64_t kTables = 26, kRows = 100'000, kBatch = 2048;
constexpr int64_t kBatches = 16;  // different ones in turn: no call finds its rows in a cache
constexpr int64_t kLookups = kTables * kBatch;

enum class Ids { uniform, zipf };

struct Batch {
  kernel::Bags bags;
  std::vector<int64_t> flat;  // the same rows, of the flat tensor
};

// Uniform rows, or such that their logarithm is: a few of them in most samples.
Batch batch(Ids ids, uint32_t key) {
  const Random random(1, RandomStream::tests, key);
  std::vector<int32_t> rows(kLookups);
  std::vector<int64_t> flat(kLookups);
  for (int64_t i = 0; i < kLookups; ++i) {
    const double u = random.uniform53(static_cast<uint64_t>(i));
    const double row = ids == Ids::uniform ? u * kRows : std::pow(kRows, u) - 1;
    rows[i] = static_cast<int32_t>(row);
    flat[i] = i / kBatch * kRows + rows[i];
  }
  return {{from_values(rows)}, std::move(flat)};
}

struct Contest {
  std::string name;
  double rows;  // moved for a lookup: read or written, of tables, results and their gradients
  std::function<void(const Batch&)> run;
  std::vector<double> times = {};
};

// All of them in turns, so that what disturbs one disturbs the others.
void measure(std::vector<Contest>& contests, const std::vector<Batch>& batches, int64_t repeats) {
  size_t next = 0;
  for (int64_t r = -kWarmUp; r < repeats; ++r)
    for (Contest& contest : contests) {
      const Batch& b = batches[next++ % batches.size()];
      const auto begin = std::chrono::steady_clock::now();
      contest.run(b);
      const auto end = std::chrono::steady_clock::now();
      if (r >= 0)
        contest.times.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
    }
}

class Tables {
 public:
  Tables() : weight_(full({kTables * kRows, kRowFloats}, 0.01)), first_row_(kTables + 1) {
    for (int64_t t = 0; t <= kTables; ++t) first_row_[t] = t * kRows;
  }

  void forward(const Batch& b) { kernel::embedding_bag(out_, weight_, b.bags, layout()); }
  void backward(const Batch& b) {
    const std::vector<kernel::BagGradient> gradient{{out_, b.bags}};
    kernel::coalesce_bags(rows_, values_, gradient, layout());
  }
  void backward_and_step(const Batch& b) {
    const std::vector<kernel::BagGradient> gradient{{out_, b.bags}};
    kernel::table_sgd(weight_, {.bags = gradient, .layout = layout()}, {.lr = 1e-6, .factor = 1});
  }
  void backward_then_step(const Batch& b) {
    const std::vector<kernel::BagGradient> gradient{{out_, b.bags}};
    const int64_t n = kernel::coalesce_bags(rows_, values_, gradient, layout());
    kernel::table_sgd(weight_, {.rows = rows_.slice(0, n), .values = values_.slice(0, n)},
                      {.lr = 1e-6, .factor = 1});
  }
  void read(const Batch& b, int64_t ahead) {
    const RowLoops loops = row_loops();
    const float* table = weight_.data<float>();
    parallel_for(kLookups, 1024, [&](int64_t begin, int64_t end, int piece) {
      sums_[piece] = loops.read(table, b.flat.data() + begin, end - begin, ahead);
    });
  }
  void update(const Batch& b, int64_t ahead) {
    const RowLoops loops = row_loops();
    float* table = weight_.mutable_data<float>();
    parallel_for(kLookups, 1024, [&](int64_t begin, int64_t end) {
      loops.update(table, b.flat.data() + begin, end - begin, ahead);
    });
  }

 private:
  kernel::TableLayout layout() const { return {.first_row = first_row_}; }
  Tensor weight_, out_ = zeros({kBatch, 1 + kTables, kRowFloats}),
                  rows_ = Tensor::empty({kLookups}, DType::i64),
                  values_ = Tensor::empty({kLookups, kRowFloats});
  std::vector<int64_t> first_row_;
  std::vector<float> sums_ = std::vector<float>(static_cast<size_t>(thread_budget()));
};

void add_lookups(Measurements& out, Tables& tables, Ids ids, int64_t repeats) {
  std::vector<Batch> batches;
  for (uint32_t i = 0; i < kBatches; ++i) batches.push_back(batch(ids, i));
  std::vector<Contest> contests;
  for (int64_t ahead : {8, 16, 32})
    contests.push_back({fmt::format("loop, reading, {} ahead", ahead), 1,
                        [&tables, ahead](const Batch& b) { tables.read(b, ahead); }});
  const size_t reading = contests.size();
  for (int64_t ahead : {8, 16, 32})
    contests.push_back({fmt::format("loop, updating, {} ahead", ahead), 2,
                        [&tables, ahead](const Batch& b) { tables.update(b, ahead); }});
  contests.push_back({"forward", 2, [&](const Batch& b) { tables.forward(b); }});
  contests.push_back({"backward", 2, [&](const Batch& b) { tables.backward(b); }});
  contests.push_back({"backward + sgd", 3, [&](const Batch& b) { tables.backward_and_step(b); }});
  contests.push_back(
      {"backward, then sgd", 5, [&](const Batch& b) { tables.backward_then_step(b); }});
  measure(contests, batches, repeats);
  const auto gb_per_s = [](const Contest& contest) {
    return contest.rows * 4 * kLookups * kRowFloats / median(contest.times) * 1e-6;
  };
  double best = 0;
  for (size_t i = 0; i < reading; ++i) best = std::max(best, gb_per_s(contests[i]));
  for (const Contest& contest : contests)
    out.push_back(
        {fmt::format("embedding {} {}", ids == Ids::uniform ? "uniform" : "zipf", contest.name),
         median(contest.times),
         {{"gb_per_s", gb_per_s(contest)},
          {"percent_of_reading", 100 * gb_per_s(contest) / best}}});
}

void add_interaction(Measurements& out, int64_t repeats) {
  const Tensor x = full({kBatch, 1 + kTables, kRowFloats}, 0.01);
  const Tensor y = full({kBatch, kernel::interaction_width(1 + kTables, kRowFloats)}, 0.01),
               dx = empty_like(x);
  const double pairs = 0.5 * kBatch * (1 + kTables) * kTables;
  const double forward = median_ms(repeats, [&] { kernel::dot_interaction(y, x); });
  const double backward = median_ms(repeats, [&] { kernel::dot_interaction_backward(dx, y, x); });
  const auto gflops = [&](double flops, double ms) { return flops / ms * 1e-6; };
  out.push_back({"embedding interaction forward",
                 forward,
                 {{"gflops", gflops(2 * pairs * kRowFloats, forward)}}});
  out.push_back({"embedding interaction backward",
                 backward,
                 {{"gflops", gflops(4 * pairs * kRowFloats, backward)}}});
}

}  // namespace

// 26 tables of 100,000 rows of 16, batches of 2048 samples with a row of each. GB/s are those of
// the rows of the tables alone: read once forward, read and written by the step.
Measurements bench_embedding(const BenchOptions& options) {
  Measurements out;
  Tables tables;
  for (const Ids ids : {Ids::uniform, Ids::zipf}) add_lookups(out, tables, ids, options.repeats);
  add_interaction(out, options.repeats);
  return out;
}

}  // namespace lockstep::apps
