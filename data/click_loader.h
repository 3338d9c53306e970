#pragma once
#include "data/clicks.h"
#include "data/source_loader.h"

namespace lockstep::data {

/// Micro-batches of clicks.
using ClickLoader = SourceLoader<ClickSource>;

}  // namespace lockstep::data
