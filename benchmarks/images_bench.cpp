// How fast images are made and read, by one thread. bench_images --benchmark_filter=synthetic
#include "core/parallel.h"
#include "data/image_files.h"
#include "data/synthetic_images.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

namespace lockstep::data {
namespace {

constexpr int64_t kBatch = 64;

// Batches of samples far from each other, as shuffling makes them.
void fill_batches(benchmark::State& state, const ImageDataset& source) {
  ImageBuffer buffer(source.schema(), kBatch);
  std::vector<int64_t> samples(kBatch);
  int64_t at = 0;
  for ([[maybe_unused]] auto _ : state) {
    for (int64_t& sample : samples) sample = (at += 7919) % source.samples();
    source.fill(samples, buffer);
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}

void synthetic(benchmark::State& state) {
  const ThreadBudget budget(1);
  fill_batches(state, SyntheticImages({.size = state.range(0), .channels = state.range(1)}));
}
BENCHMARK(synthetic)
    ->ArgNames({"size", "channels"})
    ->Args({28, 1})
    ->Args({32, 3})
    ->Args({64, 3})
    ->Unit(benchmark::kMicrosecond);

void open_synthetic(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) SyntheticImages({.size = state.range(0)});
}
BENCHMARK(open_synthetic)->Arg(32)->Arg(64)->Unit(benchmark::kMillisecond);

// A file like one of CIFAR-10's. Goes away with the process.
class CifarLike {
 public:
  CifarLike() : path_(fmt::format("/tmp/lockstep-bench-{}.bin", ::getpid())) {
    File file(path_, File::Mode::create_new);
    std::string bytes(10'000 * kCifarRecord, '\0');
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>(i % kCifarRecord == 0 ? i / kCifarRecord % 10 : i * i % 251);
    file.write(bytes);
  }
  ~CifarLike() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
const CifarLike& cifar_like() {
  static const CifarLike file;
  return file;
}

void read_cifar10(benchmark::State& state) {
  const ThreadBudget budget(1);
  fill_batches(
      state, ImageFiles({.training = {open_cifar10(cifar_like().path())}, .held_out_share = 0.1}));
}
BENCHMARK(read_cifar10)->Unit(benchmark::kMicrosecond);

// Checks labels and finds mean and deviation of 10,000 images.
void open_cifar10_file(benchmark::State& state) {
  const ThreadBudget budget(1);
  for ([[maybe_unused]] auto _ : state)
    ImageFiles({.training = {open_cifar10(cifar_like().path())}});
}
BENCHMARK(open_cifar10_file)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep::data
