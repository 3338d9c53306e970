#include "data/image_files.h"

#include "data/image_loader.h"

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "tests/data/images_in.h"
#include "tests/support/image_bytes.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

namespace lockstep::data {
namespace {

using namespace std::string_literals;
using test::cifar_record;
using test::error_of;
using test::idx_bytes;
using test::noise_bytes;

class ImageFilesTest : public ::testing::Test {
 protected:
  std::string spill(const std::string& name, const std::string& bytes) {
    test::spill(folder_ / name, bytes);
    return folder_ / name;
  }
  StoredImages idx(const std::string& images, const std::string& labels) {
    return open_idx(spill("images", images), spill("labels", labels));
  }
  std::string idx_error(const std::string& images, const std::string& labels) {
    return error_of<SystemError>([&] { idx(images, labels); });
  }
  // N images of 2 x 3 pixels and labels 0, 1, 2, 0, …
  StoredImages some_idx(int64_t n, const std::string& name = "") {
    std::string labels;
    for (int64_t i = 0; i < n; ++i) labels += static_cast<char>(i % 3);
    return open_idx(
        spill("images" + name, idx_bytes({static_cast<uint32_t>(n), 2, 3}, noise_bytes(6 * n))),
        spill("labels" + name, idx_bytes({static_cast<uint32_t>(n)}, labels)));
  }
  void spill_cifar(int64_t records) {
    for (int batch = 0; batch < 6; ++batch) {
      std::string bytes;
      for (int64_t i = 0; i < records; ++i)
        bytes += cifar_record(static_cast<uint8_t>((batch + i) % 10), 100 * batch + i);
      spill(batch < 5 ? fmt::format("data_batch_{}.bin", batch + 1) : "test_batch.bin", bytes);
    }
  }
  test::TempFolder folder_;
};

TEST_F(ImageFilesTest, ReadsIdx) {
  const std::string pixels = noise_bytes(2 * 12);
  const ImageFiles source(
      {.training = {idx(idx_bytes({2, 4, 3}, pixels), idx_bytes({2}, "\x03\x01"))}});
  EXPECT_EQ(source.samples(), 2);
  EXPECT_EQ(source.held_out(), 0);
  const ImageSchema& schema = source.schema();
  EXPECT_EQ(schema.channels, 1);
  EXPECT_EQ(schema.height, 4);
  EXPECT_EQ(schema.width, 3);
  EXPECT_EQ(schema.classes, 4) << "the largest label is 3";
  double mean = 0, squares = 0;
  for (const char c : pixels) mean += static_cast<uint8_t>(c) / 255.0 / 24;
  for (const char c : pixels) squares += std::pow(static_cast<uint8_t>(c) / 255.0 - mean, 2) / 24;
  EXPECT_NEAR(schema.mean[0], mean, 1e-6);
  EXPECT_NEAR(schema.deviation[0], std::sqrt(squares), 1e-6);
  std::set<int32_t> labels;
  for (const OneImage& image : images_of(source, {0, 1})) {
    const int64_t which = image.label == 3 ? 0 : 1;
    labels.insert(image.label);
    for (int64_t i = 0; i < 12; ++i)
      EXPECT_NEAR(
          image.pixels[i],
          (static_cast<uint8_t>(pixels[which * 12 + i]) / 255.0 - mean) / std::sqrt(squares), 1e-5);
  }
  EXPECT_EQ(labels, (std::set<int32_t>{1, 3}));
}

TEST_F(ImageFilesTest, ReadsIdxOfSeveralChannels) {
  // The second channel is constant: centred, and left at that.
  const StoredImages stored = idx(
      idx_bytes({1, 2, 1, 2}, std::string{'\0', '\xff', '\x33', '\x33'}), idx_bytes({1}, "\x00"s));
  EXPECT_EQ(stored.channels, 2);
  const ImageFiles source({.training = {stored}});
  EXPECT_EQ(images_of(source, {0})[0].pixels, (std::vector<float>{-1, 1, 0, 0}));
  EXPECT_EQ(source.schema().deviation, (std::vector<float>{0.5f, 1}));
}

TEST_F(ImageFilesTest, RefusesForeignIdxFiles) {
  const std::string pixels = idx_bytes({2, 1, 2}, "abcd"), labels = idx_bytes({2}, "\x01\x02");
  EXPECT_NO_THROW(idx(pixels, labels));
  const auto says = [&](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_NE(text.find(folder_.path()), std::string::npos) << "names the file: " << text;
  };
  says(idx_error("", labels), "begins with 00 00 08, got 0 bytes");
  says(idx_error("abc", labels), "got 3 bytes");
  says(idx_error("hello world", labels), "got 68 65 6c 6c");
  says(idx_error("\x1f\x8b\x08\x08", labels), "gunzip it first");
  says(idx_error("\x00\x00\x0d\x03"s, labels), "expected 0x08 (bytes), got 0x0d");
  says(idx_error("\x00\x00\x08\x02"s, labels), "3 or 4 (images), got 2");
  says(idx_error("\x00\x00\x08\xff"s, labels), "3 or 4 (images), got 255");
  says(idx_error("\x00\x00\x08\x03"s, labels), "expected a header of 16 bytes, got a file of 4");
  says(idx_error(pixels + "e", labels),
       "expected 20 bytes by its header of shape [2, 1, 2], got 21");
  says(idx_error(pixels.substr(0, 19), labels), "got 19");
  says(idx_error(idx_bytes({2, 0, 2}, ""), labels), "dimension 1 of 3; expected at least 1, got 0");
  says(idx_error(idx_bytes({0, 1, 2}, ""), labels), "dimension 0 of 3");
  // Products that overflow: 2^128 would be 0, (2^32-1)^2 · … negative.
  says(idx_error(idx_bytes({1u << 31, 1u << 31, 4, 1}, ""), labels), "fewer than 2^63");
  says(idx_error(idx_bytes({~0u, ~0u, ~0u, ~0u}, ""), labels), "fewer than 2^63");
  says(idx_error(idx_bytes({1, 1025, 1, 1}, std::string(1025, 'x')), labels),
       "expected at most 1024 channels");
  says(idx_error(labels, labels), "expected images of 3 or 4 dimensions, got [2]");
  says(idx_error(pixels, pixels), "expected labels, of 1 dimension, got [2, 1, 2]");
  says(idx_error(pixels, idx_bytes({3}, "abc")),
       "labels; expected 2, as many as there are images, got 3");
  EXPECT_THROW(open_idx(folder_ / "none", folder_ / "labels"), SystemError);
  EXPECT_THROW(open_idx(folder_.path(), folder_ / "labels"), SystemError);
}

TEST_F(ImageFilesTest, HostileBytesAreErrorsOrImages) {
  const Random random(3, RandomStream::tests);
  const std::string images = idx_bytes({3, 2, 2}, noise_bytes(12));
  const std::string labels = idx_bytes({3}, noise_bytes(3));
  int64_t opened = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    std::string a = images, b = labels;
    std::string& one = random.word(4 * i) % 2 == 0 ? a : b;
    one[random.word(4 * i + 1) % one.size()] = static_cast<char>(random.word(4 * i + 2));
    if (random.word(4 * i + 3) % 3 == 0) one.resize(random.word(4 * i + 3) / 7 % (one.size() + 1));
    try {
      const ImageFiles source({.training = {idx(a, b)}});
      ++opened;
      EXPECT_EQ(images_of(source, sample_numbers(0, 3)).size(), 3u);
    } catch (const SystemError& e) {
      EXPECT_EQ(e.fault(), Fault::file);
    }
  }
  EXPECT_GT(opened, 100) << "changed pixels and labels are still such";
}

TEST_F(ImageFilesTest, ReadsCifar10) {
  spill_cifar(4);
  const ImageFiles source(cifar10_in(folder_.path()));
  EXPECT_EQ(source.samples(), 20);
  EXPECT_EQ(source.held_out(), 4);
  EXPECT_EQ(source.schema().channels, 3);
  EXPECT_EQ(source.schema().classes, 10);
  const auto all = images_of(source, sample_numbers(0, 24));
  const ImageSchema& schema = source.schema();
  for (int64_t sample = 0; sample < 24; ++sample) {
    const int64_t batch = sample / 4, i = sample % 4;
    const std::string record = cifar_record(0, 100 * batch + i);
    EXPECT_EQ(all[sample].label, (batch + i) % 10);
    for (const int64_t at : {0, 1023, 1024, 2047, 2048, 3071})
      EXPECT_NEAR(all[sample].pixels[at] * schema.deviation[at / 1024] + schema.mean[at / 1024],
                  static_cast<uint8_t>(record[1 + at]) / 255.0, 1e-5);
  }
}

TEST_F(ImageFilesTest, RefusesForeignCifar10Files) {
  const auto error = [&](const std::string& bytes) {
    return error_of<SystemError>([&] { open_cifar10(spill("batch", bytes)); });
  };
  EXPECT_NE(error("").find("expected a multiple of 3073 bytes"), std::string::npos);
  EXPECT_NE(error(cifar_record(1, 1) + "x").find("got 3074"), std::string::npos);
  EXPECT_NE(error(cifar_record(1, 1) + cifar_record(10, 1))
                .find("record 1: label; expected 0..9, got 10"),
            std::string::npos);
  spill_cifar(1);
  std::filesystem::remove(folder_ / "data_batch_3.bin");
  EXPECT_NE(error_of<SystemError>([&] { cifar10_in(folder_.path()); }).find("data_batch_3.bin"),
            std::string::npos);
}

// Normalised by the training images alone, whichever way some are held out.
TEST_F(ImageFilesTest, TrainingImagesHaveMeanZeroAndVarianceOne) {
  for (const bool own_files : {false, true}) {
    ImageFiles::Options options{.training = {some_idx(90)}, .held_out_share = 0.25};
    if (own_files) options.held_out.push_back(some_idx(30, "2"));
    const ImageFiles source(std::move(options));
    EXPECT_EQ(source.samples(), own_files ? 90 : 68);
    EXPECT_EQ(source.held_out(), own_files ? 30 : 22);
    double sum = 0, squares = 0;
    const auto count = static_cast<double>(source.samples() * 6);
    for (const OneImage& image : images_of(source, sample_numbers(0, source.samples())))
      for (const float pixel : image.pixels) {
        sum += pixel;
        squares += pixel * pixel;
      }
    EXPECT_NEAR(sum / count, 0, 1e-5);
    EXPECT_NEAR(squares / count, 1, 1e-5);
  }
}

TEST_F(ImageFilesTest, HeldOutImagesAreNoneOfTheOthersAndAlwaysTheSame) {
  const auto all_of = [&](double share) {
    return images_of(ImageFiles({.training = {some_idx(60)}, .held_out_share = share}),
                     sample_numbers(0, 60));
  };
  const auto all = all_of(0.3);
  EXPECT_EQ(all, all_of(0.3));
  std::set<std::vector<float>> distinct;
  std::set<int32_t> held_out;
  for (int64_t i = 0; i < 60; ++i) {
    distinct.insert(all[i].pixels);
    if (i >= 42) held_out.insert(all[i].label);
  }
  EXPECT_EQ(distinct.size(), 60u);
  EXPECT_EQ(held_out.size(), 3u) << "of all classes";
}

TEST_F(ImageFilesTest, AnyOrderAndAnyThreadsGiveTheSameSamples) {
  const ImageFiles one({.training = {some_idx(300)}, .held_out_share = 0.1});
  const ThreadBudget two(2);
  const ImageFiles source({.training = {some_idx(300, "2")}, .held_out_share = 0.1});
  EXPECT_EQ(source.schema().mean, one.schema().mean);
  EXPECT_EQ(source.schema().deviation, one.schema().deviation);
  const auto all = images_of(source, sample_numbers(0, 300));
  std::vector<int64_t> backwards = sample_numbers(0, 300);
  std::ranges::reverse(backwards);
  const ThreadBudget single(1);
  auto other = images_of(one, backwards);
  std::ranges::reverse(other);
  EXPECT_EQ(all, other);
  EXPECT_THROW(images_of(source, {300}), UsageError);
  EXPECT_THROW(images_of(source, {-1}), UsageError);
}

TEST_F(ImageFilesTest, FilesThatDoNotFitTogetherAreRefused) {
  const StoredImages other =
      open_idx(spill("a", idx_bytes({1, 3, 2}, "abcdef")), spill("b", idx_bytes({1}, "\x01")));
  const std::string text =
      error_of<SystemError>([&] { ImageFiles({.training = {some_idx(3)}, .held_out = {other}}); });
  EXPECT_NE(text.find("expected 1 x 2 x 3"), std::string::npos) << text;
  EXPECT_NE(text.find("got 1 x 3 x 2"), std::string::npos) << text;
  EXPECT_THROW(ImageFiles({}), UsageError);
  EXPECT_THROW(ImageFiles({.training = {some_idx(3)}, .held_out_share = 1}), UsageError);
}

TEST_F(ImageFilesTest, AFileThatIsCutWhileItIsReadIsAnError) {
  const auto source =
      std::make_shared<const ImageFiles>(ImageFiles::Options{.training = {some_idx(600)}});
  std::filesystem::resize_file(folder_ / "images", 1000);
  ImageLoader loader(source, {.samples = 600, .global_batch = 600}, {.threads = 2});
  const std::string text = error_of<SystemError>([&] { loader.next(); });
  EXPECT_NE(text.find("ends early"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep::data
