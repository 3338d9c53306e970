#pragma once
#include "data/images.h"
#include "data/synthetic_images.h"

#include <memory>
#include <optional>
#include <string>

namespace lockstep::apps {

/// Images made ready for training.
struct ImageData {
  std::shared_ptr<const data::ImageDataset> source;
  std::optional<data::BestImages> best;  ///< of generated images: what no model can do better
};

struct ImageDataOptions {
  std::string spec;           ///< "synthetic:size=32", "cifar10:DIR"; see image_data_help()
  double val_fraction = 0.1;  ///< of the images of idx:IMAGES,LABELS, kept from training
  int64_t val_samples = 0;    ///< held-out synthetic images; 0: as many as there are by default
};
/// UsageError for a spec of no known kind or setting, SystemError(file) for files.
ImageData load_image_data(const ImageDataOptions& options);

/// The kind of data that a spec names: "cifar10". UsageError when there is none of that name.
std::string image_data_kind(const std::string& spec);

/// What `--data help` prints.
std::string image_data_help();

}  // namespace lockstep::apps
