#pragma once
#include "data/images.h"
#include "data/source_loader.h"

namespace lockstep::data {

/// Micro-batches of images.
using ImageLoader = SourceLoader<ImageDataset>;

}  // namespace lockstep::data
