#include "data/synthetic_images.h"

#include "data/image_loader.h"

#include "core/allocator.h"
#include "core/check.h"
#include "core/parallel.h"
#include "tests/data/images_in.h"
#include "tests/support/error_of.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

namespace lockstep::data {
namespace {

using Options = SyntheticImages::Options;

TEST(SyntheticImages, ASampleIsAFunctionOfSeedAndNumber) {
  const Options options{.size = 28, .channels = 1, .seed = 3};
  const SyntheticImages a(options), b(options);
  const std::vector<OneImage> all = images_of(a, sample_numbers(0, 100));
  const std::vector<int64_t> some{7, 99, 7, 0, 50};
  const std::vector<OneImage> picked = images_of(b, some);
  for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(picked[i], all[some[i]]);
  {
    const ThreadBudget two(2);
    EXPECT_EQ(images_of(a, sample_numbers(0, 100)), all);
  }
  Options other = options;
  other.seed = 4;
  EXPECT_NE(images_of(SyntheticImages(other), sample_numbers(0, 100)), all);
}

TEST(SyntheticImages, AnyNumberCanBeAskedForAndNoOther) {
  const SyntheticImages source({.samples = int64_t{1} << 40, .held_out = 10});
  const int64_t last = (int64_t{1} << 40) + 9;
  EXPECT_EQ(images_of(source, {last}), images_of(source, {last}));
  EXPECT_NE(images_of(source, {last})[0].pixels, images_of(source, {last - 1})[0].pixels);
  EXPECT_THROW(images_of(source, {last + 1}), UsageError);
  EXPECT_THROW(images_of(source, {-1}), UsageError);
}

struct Look {
  int64_t size, channels;
  double noise;
};
class SyntheticImagesOf : public testing::TestWithParam<Look> {};

// The proof of the best accuracy needs a rule that reads the class off the pixels without an error.
TEST_P(SyntheticImagesOf, TheRuleReadsTheClassOffThePixels) {
  const auto [size, channels, noise] = GetParam();
  const SyntheticImages source({.size = size, .channels = channels, .noise = noise, .seed = 1});
  constexpr int64_t kBatch = 500, kBatches = 6;
  ImageBuffer buffer(source.schema(), kBatch);
  for (int64_t batch = 0; batch < kBatches; ++batch) {
    const auto numbers = sample_numbers(batch * kBatch, kBatch);
    source.fill(numbers, buffer);
    const float* pixels = buffer.batch().images.data<float>();
    for (int64_t i = 0; i < kBatch; ++i)
      ASSERT_EQ(source.rule(pixels + i * source.schema().pixels()), source.true_class(numbers[i]))
          << numbers[i];
  }
}
INSTANTIATE_TEST_SUITE_P(Looks, SyntheticImagesOf,
                         testing::Values(Look{32, 3, 0.04}, Look{32, 3, 0.045}, Look{32, 1, 0.045},
                                         Look{24, 1, 0.045}, Look{27, 3, 0.045}, Look{64, 3, 0}));

// Against the noisy labels the rule is right as often as the best possible accuracy says, and its
// probabilities reach the best possible log-loss.
TEST(SyntheticImages, TheBestPossibleIsWhatTheRuleReaches) {
  for (const double label_noise : {0.0, 0.05, 0.4, 1.0}) {
    constexpr int64_t kSamples = 20'000, kBatch = 1000;
    const SyntheticImages source(
        {.size = 24, .channels = 1, .label_noise = label_noise, .seed = 2});
    const auto [accuracy, log_loss] = source.best();
    const double other = (1 - accuracy) / 9;
    ImageBuffer buffer(source.schema(), kBatch);
    double right = 0, loss = 0, squares = 0;
    for (int64_t first = 0; first < kSamples; first += kBatch) {
      source.fill(sample_numbers(first, kBatch), buffer);
      const auto labels = values<int32_t>(buffer.batch().labels);
      const float* pixels = buffer.batch().images.data<float>();
      for (int64_t i = 0; i < kBatch; ++i) {
        const bool hit = source.rule(pixels + i * source.schema().pixels()) == labels[i];
        const double one = -std::log(hit ? accuracy : other);
        right += hit ? 1 : 0;
        loss += one / kSamples;
        squares += one * one / kSamples;
      }
    }
    const double error = std::sqrt(accuracy * (1 - accuracy) / kSamples);
    EXPECT_NEAR(right / kSamples, accuracy, 4 * error) << label_noise;
    EXPECT_NEAR(loss, log_loss,
                4 * std::sqrt(std::max(squares - loss * loss, 0.0) / kSamples) + 1e-9);
  }
  EXPECT_NEAR(SyntheticImages({.label_noise = 0.05}).best().accuracy, 0.955, 1e-12);
  EXPECT_NEAR(SyntheticImages({.classes = 2, .label_noise = 1}).best().accuracy, 0.5, 1e-12);
  EXPECT_NEAR(SyntheticImages({.classes = 2, .label_noise = 1}).best().log_loss, std::log(2),
              1e-12);
}

TEST(SyntheticImages, ClassesAreEquallyOften) {
  for (const int64_t classes : {2, 7, 10}) {
    const SyntheticImages source({.size = 24, .channels = 1, .classes = classes});
    std::map<int32_t, int> counts;
    constexpr int64_t kSamples = 5000;
    for (const OneImage& image : images_of(source, sample_numbers(0, kSamples)))
      ++counts[image.label];
    ASSERT_EQ(std::ssize(counts), classes);
    const double expected = static_cast<double>(kSamples) / static_cast<double>(classes);
    for (const auto& [label, count] : counts) {
      EXPECT_TRUE(label >= 0 && label < classes);
      EXPECT_NEAR(count, expected, 5 * std::sqrt(expected)) << label;
    }
  }
}

// Neither a pixel nor the mean of all gives the class away: what a class looks like on average is
// what all look like.
TEST(SyntheticImages, MeansOfClassesAreAlike) {
  const SyntheticImages source({.size = 24, .channels = 1, .classes = 10, .label_noise = 0});
  std::vector<double> sums(10), squares(10), counts(10);
  for (const OneImage& image : images_of(source, sample_numbers(0, 20'000))) {
    double mean = 0;
    for (const float pixel : image.pixels) mean += pixel / static_cast<double>(24 * 24);
    sums[image.label] += mean;
    squares[image.label] += mean * mean;
    counts[image.label] += 1;
  }
  for (int k = 0; k < 10; ++k) {
    const double mean = sums[k] / counts[k];
    const double error = std::sqrt((squares[k] / counts[k] - mean * mean) / counts[k]);
    EXPECT_NEAR(mean, 0, 5 * error) << k;
  }
}

TEST(SyntheticImages, ARuleRefusesForeignImages) {
  const SyntheticImages source({.size = 24, .channels = 1});
  std::vector<float> pixels(24 * 24);
  EXPECT_THROW(source.rule(pixels.data()), UsageError);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i % 7);
  EXPECT_THROW(source.rule(pixels.data()), UsageError);
}

TEST(SyntheticImages, RefusesOptionsOutOfRange) {
  for (const Options& options :
       {Options{.size = 23}, Options{.size = 65}, Options{.channels = 2}, Options{.classes = 1},
        Options{.classes = 11}, Options{.label_noise = -0.1}, Options{.label_noise = std::nan("")},
        Options{.noise = 0.046}, Options{.samples = 0}, Options{.samples = int64_t{1} << 41}})
    EXPECT_THROW(SyntheticImages{options}, UsageError);
}

std::vector<OneImage> next_images(ImageLoader& loader, int64_t batches) {
  std::vector<OneImage> all;
  for (int64_t i = 0; i < batches; ++i)
    for (OneImage& image : images_in(loader.next())) all.push_back(std::move(image));
  return all;
}

std::shared_ptr<const SyntheticImages> small_source() {
  return std::make_shared<const SyntheticImages>(
      Options{.size = 24, .channels = 1, .samples = 50, .held_out = 0});
}

TEST(ImageLoader, MicroBatchesOfRanksAreThoseOfOneRank) {
  const auto source = small_source();
  for (const auto order : {SamplerOptions::Order::sequential, SamplerOptions::Order::shuffled}) {
    const SamplerOptions one{.samples = 50, .global_batch = 12, .seed = 9, .order = order};
    ImageLoader whole(source, one, {});
    const auto expected = next_images(whole, 12);  // over two epochs and their short last steps
    SamplerOptions half = one;
    half.ranks = 2;
    half.micro_batches = 3;
    ImageLoader first(source, half, {.ahead = 1});
    half.rank = 1;
    ImageLoader second(source, half, {.threads = 2});
    std::vector<OneImage> got;
    for (int64_t step = 0; step < 12; ++step)
      for (ImageLoader* rank : {&first, &second})
        for (OneImage& image : next_images(*rank, 3)) got.push_back(std::move(image));
    EXPECT_EQ(got, expected);
  }
}

TEST(ImageLoader, ContinuesFromAnyStep) {
  const auto source = small_source();
  const SamplerOptions options{.samples = 50, .global_batch = 16, .micro_batches = 2};
  for (int64_t first = 0; first < 6; ++first) {
    ImageLoader whole(source, options, {}), part(source, options, {.first_step = first});
    next_images(whole, 2 * first);
    for (int64_t i = 0; i < 6; ++i) {
      const ImageBatch &a = whole.next(), &b = part.next();
      EXPECT_EQ(images_in(a), images_in(b));
      EXPECT_EQ(a.step, b.step);
      EXPECT_EQ(a.first_sample, b.first_sample);
    }
  }
}

TEST(ImageLoader, KnownFaults_O20_ShufflePerEpoch) {
  const auto source = small_source();
  const auto epochs = [&](int rank) {
    ImageLoader loader(
        source, {.samples = 50, .global_batch = 10, .ranks = 2, .rank = rank, .seed = 4}, {});
    std::vector<std::vector<OneImage>> all;
    for (int epoch = 0; epoch < 3; ++epoch) all.push_back(next_images(loader, 5));
    return all;
  };
  const auto zero = epochs(0), one = epochs(1);
  EXPECT_EQ(zero, epochs(0)) << "the same seed";
  EXPECT_NE(zero[0], zero[1]);
  EXPECT_NE(zero[1], zero[2]);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::set<std::vector<float>> seen;
    for (const auto* rank : {&zero, &one})
      for (const OneImage& image : (*rank)[epoch]) EXPECT_TRUE(seen.insert(image.pixels).second);
    EXPECT_EQ(seen.size(), 50u) << "disjoint, and all of them";
  }
}

TEST(ImageLoader, ReusesItsBatches) {
  ImageLoader loader(small_source(), {.samples = 50, .global_batch = 10, .micro_batches = 2}, {});
  std::set<const ImageBatch*> batches;
  for (int i = 0; i < 50; ++i) batches.insert(&loader.next());
  EXPECT_EQ(batches.size(), 6u);
  const int64_t before = host_allocator().stats().requests;
  for (int i = 0; i < 50; ++i) loader.next();
  EXPECT_EQ(host_allocator().stats().requests, before);
}

TEST(ImageLoader, RefusesSamplesThatAreNotThere) {
  EXPECT_THROW(ImageLoader(small_source(), {.samples = 51}, {}), UsageError);
  EXPECT_THROW(ImageLoader(small_source(), {.samples = 0}, {}), UsageError);
  EXPECT_THROW(ImageLoader(nullptr, {.samples = 1}, {}), UsageError);
}

TEST(ImageBuffer, RefusesWhatNoImageCanHave) {
  const ImageSchema good{
      .channels = 1, .height = 2, .width = 2, .classes = 2, .mean = {0}, .deviation = {1}};
  EXPECT_NO_THROW(ImageBuffer(good, 1));
  EXPECT_THROW(ImageBuffer(good, 0), UsageError);
  const auto refused = [&](auto change) {
    ImageSchema schema = good;
    change(schema);
    EXPECT_THROW(ImageBuffer(schema, 1), UsageError);
  };
  refused([](ImageSchema& s) { s.height = 0; });
  refused([](ImageSchema& s) { s.width = int64_t{1} << 27; });
  refused([](ImageSchema& s) { s.width = s.height = int64_t{1} << 14; });
  refused([](ImageSchema& s) { s.classes = 0; });
  refused([](ImageSchema& s) { s.deviation = {0}; });
  refused([](ImageSchema& s) { s.mean = {0, 0}; });
}

}  // namespace
}  // namespace lockstep::data
