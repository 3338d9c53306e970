#include "data/loader.h"

#include "data/prefetcher.h"

namespace lockstep::data {
namespace {

// A batch of full size, and of it what the micro-batch has.
struct Slot {
  TokenBatch whole, served;
};

std::vector<Slot> make_slots(int count, int64_t rows, int64_t context) {
  std::vector<Slot> slots;
  for (int i = 0; i < count; ++i) {
    const Shape shape{rows, context};
    slots.push_back(
        {.whole = {Tensor::empty(shape, DType::i32), Tensor::empty(shape, DType::i32)}});
    slots.back().served = slots.back().whole;
  }
  return slots;
}

}  // namespace

struct Loader::State {
  State(std::shared_ptr<const TokenWindows> given, const SamplerOptions& options,
        int64_t first_step, int ahead)
      : windows(std::move(given)),
        cursor(options, first_step),
        prefetcher(
            make_slots(ahead + 2, cursor.sampler().largest_micro_batch(), windows->context()),
            [this](Slot& slot) { fill(slot); }) {}

  // On the prefetching thread.
  void fill(Slot& slot) {
    const auto [samples, step, first_sample] = cursor.next();
    slot.served.step = step;
    slot.served.first_sample = first_sample;
    const auto rows = static_cast<int64_t>(samples.size());
    if (rows != slot.served.rows()) {
      slot.served.inputs = slot.whole.inputs.slice(0, rows);
      slot.served.targets = slot.whole.targets.slice(0, rows);
    }
    for (int64_t row = 0; row < rows; ++row) windows->copy_to(samples[row], slot.served, row);
  }

  std::shared_ptr<const TokenWindows> windows;
  SampleCursor cursor;
  Prefetcher<Slot> prefetcher;  // last: its thread uses the others
};

Loader::Loader(std::shared_ptr<const TokenWindows> windows, const SamplerOptions& sampler,
               Options options) {
  check(windows != nullptr, "[data.loader] expected token windows, got none");
  check(sampler.samples >= 1 && sampler.samples <= windows->count(),
        "[data.loader] samples; expected 1..{} (the windows there are), got {}", windows->count(),
        sampler.samples);
  check(options.ahead >= 1, "[data.loader] micro-batches ahead; expected at least 1, got {}",
        options.ahead);
  state_ = std::make_unique<State>(std::move(windows), sampler, options.first_step, options.ahead);
}

Loader::~Loader() = default;

const TokenBatch& Loader::next() { return state_->prefetcher.next().served; }

}  // namespace lockstep::data
