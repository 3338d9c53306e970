#pragma once
#include "data/prefetcher.h"
#include "data/sampler.h"

#include "core/check.h"
#include "core/parallel.h"

#include <memory>

namespace lockstep::data {

/// Serves a rank's micro-batches of a source (ClickSource, ImageDataset) in order, step after step
/// and epoch after epoch, prepared ahead by one thread of its own. Starting at any step gives what
/// an uninterrupted loader would give from there on. Batches are reused: one is valid until the
/// call after next.
template <class Source>
class SourceLoader {
 public:
  using Buffer = typename Source::Buffer;
  struct Options {
    int64_t first_step = 0;
    int ahead = 4;  ///< micro-batches
    /// That prepare a batch. More than one compete with the kernels of the training thread.
    int threads = 1;
  };
  /// 1 <= sampler.samples <= source->samples().
  SourceLoader(std::shared_ptr<const Source> source, const SamplerOptions& sampler, Options options)
      : source_(checked(std::move(source), sampler, options)),
        cursor_(sampler, options.first_step),
        threads_(options.threads),
        prefetcher_(slots(options.ahead + 2), [this](Buffer& slot) { fill(slot); }) {}

  /// The next micro-batch; samples() may be 0 in the short last step of an epoch, and smaller than
  /// asked for where a source left malformed ones out. An error in the thread is thrown here.
  const auto& next() { return prefetcher_.next().batch(); }

 private:
  static std::shared_ptr<const Source> checked(std::shared_ptr<const Source> source,
                                               const SamplerOptions& sampler,
                                               const Options& options) {
    check(source != nullptr, "[data.loader] expected a source, got none");
    check(sampler.samples >= 1 && sampler.samples <= source->samples(),
          "[data.loader] samples; expected 1..{} (the source's), got {}", source->samples(),
          sampler.samples);
    check(options.ahead >= 1, "[data.loader] micro-batches ahead; expected at least 1, got {}",
          options.ahead);
    check(options.threads >= 1, "[data.loader] threads; expected at least 1, got {}",
          options.threads);
    return source;
  }

  std::vector<Buffer> slots(int count) const {
    std::vector<Buffer> made;
    for (int i = 0; i < count; ++i)
      made.emplace_back(source_->schema(), cursor_.sampler().largest_micro_batch());
    return made;
  }

  // On the prefetching thread.
  void fill(Buffer& slot) {
    const ThreadBudget budget(threads_);
    const auto [samples, step, first_sample] = cursor_.next();
    slot.batch().step = step;
    slot.batch().first_sample = first_sample;
    source_->fill(samples, slot);
  }

  std::shared_ptr<const Source> source_;
  SampleCursor cursor_;
  int threads_;
  Prefetcher<Buffer> prefetcher_;  // last: its thread uses the others
};

}  // namespace lockstep::data
