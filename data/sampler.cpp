#include "data/sampler.h"

#include "core/check.h"

#include <algorithm>

namespace lockstep::data {
namespace {

void check_rank(int ranks, int rank) {
  check(ranks >= 1, "[data.sampler] ranks; expected at least 1, got {}", ranks);
  check(rank >= 0 && rank < ranks, "[data.sampler] rank; expected 0..{}, got {}", ranks - 1, rank);
}

// Where piece `piece` of `pieces` of n begins. Rounded up, so that it nests: the beginning of piece
// r·M of R·M is that of piece r of R.
int64_t piece_begin(int64_t n, int64_t piece, int64_t pieces) {
  return (n * piece + pieces - 1) / pieces;
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check_rank(options.ranks, options.rank);
  check(options.samples >= 0, "[data.sampler] samples; expected at least 0, got {}",
        options.samples);
  check(options.global_batch >= 1, "[data.sampler] global batch; expected at least 1, got {}",
        options.global_batch);
  check(options.micro_batches >= 1, "[data.sampler] micro-batches; expected at least 1, got {}",
        options.micro_batches);
  const int64_t pieces = checked_mul(options.ranks, options.micro_batches);
  checked_add(checked_mul(options.global_batch, pieces), pieces);
  checked_add(options.samples, options.global_batch);
}

int64_t Sampler::steps_per_epoch() const {
  return (options_.samples + options_.global_batch - 1) / options_.global_batch;
}

int64_t Sampler::step_samples(int64_t step) const {
  check(step >= 0, "[data.sampler] step; expected at least 0, got {}", step);
  if (options_.samples == 0) return 0;
  const int64_t begin = step % steps_per_epoch() * options_.global_batch;
  return std::min(options_.global_batch, options_.samples - begin);
}

int64_t Sampler::largest_micro_batch() const {
  return piece_begin(std::min(options_.global_batch, options_.samples), 1,
                     int64_t{options_.ranks} * options_.micro_batches);
}

void Sampler::micro_batch(int64_t step, int micro, std::vector<int64_t>& samples,
                          int64_t& first) const {
  check(micro >= 0 && micro < options_.micro_batches,
        "[data.sampler] micro-batch; expected 0..{}, got {}", options_.micro_batches - 1, micro);
  const int64_t n = step_samples(step);
  const int64_t pieces = int64_t{options_.ranks} * options_.micro_batches;
  const int64_t piece = int64_t{options_.rank} * options_.micro_batches + micro;
  first = piece_begin(n, piece, pieces);
  const int64_t last = piece_begin(n, piece + 1, pieces);
  samples.clear();
  if (first == last) return;
  const int64_t epoch = step / steps_per_epoch();
  const int64_t before = step % steps_per_epoch() * options_.global_batch;
  const Permutation permutation(options_.samples, Random(options_.seed, RandomStream::data_order,
                                                         static_cast<uint32_t>(epoch)));
  for (int64_t i = before + first; i < before + last; ++i)
    samples.push_back(options_.order == SamplerOptions::Order::shuffled
                          ? static_cast<int64_t>(permutation(static_cast<uint64_t>(i)))
                          : i);
}

SampleCursor::SampleCursor(const SamplerOptions& options, int64_t first_step)
    : sampler_(options), micro_batches_(options.micro_batches), step_(first_step) {
  check(first_step >= 0, "[data.sampler] first step; expected at least 0, got {}", first_step);
}

SampleCursor::MicroBatch SampleCursor::next() {
  MicroBatch one{.samples = {}, .step = step_, .first_sample = 0};
  sampler_.micro_batch(step_, micro_, samples_, one.first_sample);
  one.samples = samples_;
  if (++micro_ == micro_batches_) {
    micro_ = 0;
    ++step_;
  }
  return one;
}

Shard shard(int64_t samples, int ranks, int rank, Sharding sharding) {
  check_rank(ranks, rank);
  check(samples >= 0, "[data.shard] samples; expected at least 0, got {}", samples);
  if (sharding == Sharding::padded) {
    const int64_t each = samples / ranks + (samples % ranks != 0);
    return {each * rank, each * (rank + 1), samples};
  }
  checked_add(checked_mul(samples, ranks), ranks);
  return {piece_begin(samples, rank, ranks), piece_begin(samples, int64_t{rank} + 1, ranks),
          samples};
}

}  // namespace lockstep::data
