#include "data/click_loader.h"

#include "data/prefetcher.h"

#include "core/parallel.h"

namespace lockstep::data {
namespace {

std::vector<ClickBuffer> make_slots(int count, const ClickSchema& schema, int64_t samples) {
  std::vector<ClickBuffer> slots;
  for (int i = 0; i < count; ++i) slots.emplace_back(schema, samples);
  return slots;
}

}  // namespace

struct ClickLoader::State {
  State(std::shared_ptr<const ClickSource> given, const SamplerOptions& options,
        const Options& loading)
      : source(std::move(given)),
        cursor(options, loading.first_step),
        threads(loading.threads),
        prefetcher(
            make_slots(loading.ahead + 2, source->schema(), cursor.sampler().largest_micro_batch()),
            [this](ClickBuffer& slot) { fill(slot); }) {}

  // On the prefetching thread.
  void fill(ClickBuffer& slot) {
    const ThreadBudget budget(threads);
    const auto [samples, step, first_sample] = cursor.next();
    slot.batch().step = step;
    slot.batch().first_sample = first_sample;
    source->fill(samples, slot);
  }

  std::shared_ptr<const ClickSource> source;
  SampleCursor cursor;
  int threads;
  Prefetcher<ClickBuffer> prefetcher;  // last: its thread uses the others
};

ClickLoader::ClickLoader(std::shared_ptr<const ClickSource> source, const SamplerOptions& sampler,
                         Options options) {
  check(source != nullptr, "[data.click_loader] expected a source of clicks, got none");
  check(sampler.samples >= 1 && sampler.samples <= source->samples(),
        "[data.click_loader] samples; expected 1..{} (the source's), got {}", source->samples(),
        sampler.samples);
  check(options.ahead >= 1, "[data.click_loader] micro-batches ahead; expected at least 1, got {}",
        options.ahead);
  check(options.threads >= 1, "[data.click_loader] threads; expected at least 1, got {}",
        options.threads);
  state_ = std::make_unique<State>(std::move(source), sampler, options);
}

ClickLoader::~ClickLoader() = default;

const ClickBatch& ClickLoader::next() { return state_->prefetcher.next().batch(); }

}  // namespace lockstep::data
