// How fast clicks are made and read. bench_clicks --benchmark_filter=read
#include "core/parallel.h"
#include "core/random.h"
#include "data/auc.h"
#include "data/click_file.h"
#include "data/inspect.h"
#include "data/synthetic_clicks.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

namespace lockstep::data {
namespace {

std::vector<int64_t> numbers(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// A file like Criteo's: integers of all sizes and some missing, categories of eight digits, a few
// missing. Goes away with the process.
class CriteoLike {
 public:
  CriteoLike() : path_(fmt::format("/tmp/lockstep-bench-{}.tsv", ::getpid())) {
    File file(path_, File::Mode::create_new);
    const Random random(1, RandomStream::tests);
    std::string text;
    uint64_t at = 0;
    for (int line = 0; line < 400'000; ++line) {
      text += random.word(at++) % 4 == 0 ? '1' : '0';
      for (int i = 0; i < 13; ++i) {
        const uint32_t word = random.word(at++);
        text += '\t';
        if (word % 5 != 0) text += fmt::format("{}", (word >> 12) >> (word % 19));
      }
      for (int i = 0; i < 26; ++i) {
        const uint32_t word = random.word(at++);
        text += word % 16 == 0 ? "\t" : fmt::format("\t{:08x}", word);
      }
      text += '\n';
    }
    file.write(text);
  }
  ~CriteoLike() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
const CriteoLike& criteo_like() {
  static const CriteoLike file;
  return file;
}

void read_criteo(benchmark::State& state) {
  const ThreadBudget budget(static_cast<int>(state.range(0)));
  const ClickFile file({.path = criteo_like().path(), .held_out = 0});
  constexpr int64_t kBatch = 2048;
  ClickBuffer buffer(file.schema(), kBatch);
  int64_t at = 0;
  for ([[maybe_unused]] auto _ : state) {
    file.fill(numbers(at, kBatch), buffer);
    at = (at + kBatch) % (file.samples() - kBatch);
  }
  const auto bytes = static_cast<double>(std::filesystem::file_size(criteo_like().path()));
  state.SetItemsProcessed(state.iterations() * kBatch);
  state.SetBytesProcessed(static_cast<int64_t>(static_cast<double>(state.iterations() * kBatch) *
                                               bytes / static_cast<double>(file.samples())));
}
BENCHMARK(read_criteo)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void open_criteo(benchmark::State& state) {
  const ThreadBudget budget(1);
  for ([[maybe_unused]] auto _ : state) ClickFile({.path = criteo_like().path()});
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(std::filesystem::file_size(criteo_like().path())));
}
BENCHMARK(open_criteo)->Unit(benchmark::kMillisecond);

void inspect_criteo(benchmark::State& state) {
  const ThreadBudget budget(static_cast<int>(state.range(0)));
  for ([[maybe_unused]] auto _ : state) inspect_file(criteo_like().path(), {});
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(std::filesystem::file_size(criteo_like().path())));
}
BENCHMARK(inspect_criteo)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void synthetic(benchmark::State& state) {
  const ThreadBudget budget(1);
  const SyntheticClicks source({.tables = 26, .rows = state.range(0)});
  constexpr int64_t kBatch = 2048;
  ClickBuffer buffer(source.schema(), kBatch);
  int64_t at = 0;
  for ([[maybe_unused]] auto _ : state) {
    source.fill(numbers(at, kBatch), buffer);
    at += kBatch;
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(synthetic)->ArgName("rows")->Arg(2000)->Arg(100'000)->Arg(10'000'000);

void best_possible_of_a_teacher(benchmark::State& state) {
  const ThreadBudget budget(1);
  const SyntheticClicks source({.tables = 26, .rows = 100'000});
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(source.best());
}
BENCHMARK(best_possible_of_a_teacher)->Unit(benchmark::kMillisecond);

void auc_of_a_million(benchmark::State& state) {
  const Random random(2, RandomStream::tests);
  std::vector<float> scores, labels;
  for (uint64_t i = 0; i < 1'000'000; ++i) {
    scores.push_back(random.uniform(2 * i));
    labels.push_back(random.word(2 * i + 1) % 4 == 0 ? 1.0f : 0.0f);
  }
  for ([[maybe_unused]] auto _ : state) {
    Auc auc;
    auc.add(scores, labels);
    benchmark::DoNotOptimize(auc.value());
  }
}
BENCHMARK(auc_of_a_million)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep::data
