#include "apps/vision/image_data.h"

#include "apps/training/data_kinds.h"
#include "core/check.h"
#include "core/spec.h"
#include "data/image_files.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

// What follows the kind's name and a colon.
std::string after_name(const std::string& spec) {
  const size_t colon = spec.find(':');
  return colon == std::string::npos ? "" : spec.substr(colon + 1);
}

ImageData synthetic(const ImageDataOptions& o) {
  Spec spec(o.spec);
  spec.name_number("label_noise");
  spec.expect_keys({"label_noise", "size", "channels", "classes", "noise", "samples", "seed"});
  const data::SyntheticImages::Options by_default;
  data::SyntheticImages::Options s{
      .size = spec.integer("size", by_default.size, {.min = 24, .max = 64}),
      .channels = spec.integer("channels", by_default.channels, {.min = 1, .max = 3}),
      .classes = spec.integer("classes", by_default.classes, {.min = 2, .max = 10}),
      .label_noise = spec.number("label_noise", by_default.label_noise, {.min = 0, .max = 1}),
      .noise = spec.number("noise", by_default.noise, {.min = 0, .max = 0.045}),
      .seed = static_cast<uint64_t>(spec.integer("seed", 0, {.min = 0})),
      .samples = spec.integer("samples", by_default.samples, {.min = 1})};
  if (o.val_samples > 0) s.held_out = o.val_samples;
  const auto images = std::make_shared<const data::SyntheticImages>(s);
  return {.source = images, .best = images->best()};
}

ImageData idx(const ImageDataOptions& o) {
  const std::vector<std::string> files = split(after_name(o.spec), ',');
  const bool named = std::ranges::none_of(files, &std::string::empty);
  check(named && (files.size() == 2 || files.size() == 4),
        "--data: expected idx:IMAGES,LABELS or idx:IMAGES,LABELS,IMAGES,LABELS, the second two "
        "held out, got '{}'",
        o.spec);
  data::ImageFiles::Options images{.training = {data::open_idx(files[0], files[1])},
                                   .held_out_share = o.val_fraction};
  if (files.size() == 4) images.held_out.push_back(data::open_idx(files[2], files[3]));
  return {.source = std::make_shared<const data::ImageFiles>(std::move(images)), .best = {}};
}

ImageData cifar10(const ImageDataOptions& o) {
  const std::string folder = after_name(o.spec);
  check(!folder.empty(), "--data: expected cifar10:DIR, got '{}'", o.spec);
  return {.source = std::make_shared<const data::ImageFiles>(data::cifar10_in(folder)), .best = {}};
}

using Kind = DataKind<ImageData, ImageDataOptions>;
constexpr Kind kKinds[] = {
    {"synthetic",
     "synthetic          shapes before textures; what they show is known, so that the best "
     "possible\n"
     "                   accuracy is\n"
     "  label_noise      share of labels that are replaced by any (0.05)\n"
     "  size             height and width in pixels, 24 to 64 (32)\n"
     "  channels         3 or 1 (3)\n"
     "  classes          2 to 10 (10)\n"
     "  noise            of pixels whose colours are in 0 to 1, up to 0.045 (0.04)\n"
     "  samples          of an epoch (2^40: nothing comes twice)\n"
     "  seed             of the images (0)\n",
     synthetic},
    {"idx",
     "idx:IMAGES,LABELS  two files of the MNIST family, not compressed: bytes [N, H, W] or\n"
     "                   [N, C, H, W], and [N]; two more files are held out, or else a part of\n"
     "                   these\n",
     idx},
    {"cifar10",
     "cifar10:DIR        the binary version: data_batch_1.bin to data_batch_5.bin, and\n"
     "                   test_batch.bin, which is held out\n",
     cifar10},
};

const Kind& kind_of(const std::string& spec) {
  return data_kind<Kind>(kKinds, spec, "synthetic, idx:IMAGES,LABELS or cifar10:DIR");
}

}  // namespace

std::string image_data_kind(const std::string& spec) { return kind_of(spec).name; }

ImageData load_image_data(const ImageDataOptions& options) {
  return kind_of(options.spec).load(options);
}

std::string image_data_help() { return data_kinds_help<Kind>(kKinds); }

}  // namespace lockstep::apps
