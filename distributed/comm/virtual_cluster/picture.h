#pragma once
#include <cstdint>
#include <string>

#include "distributed/comm/virtual_cluster/timeline.h"

namespace lockstep::distributed::virtual_cluster {

struct PictureOptions {
  int width = 64;      ///< columns for the time
  int64_t steps = 2;   ///< from the first step on
  int max_ranks = 16;  ///< of more, those that compute most and least
  enum class Glyphs { unicode, ascii } glyphs = Glyphs::unicode;
};

/// Draws the first steps for a terminal: a line for each rank, in which a column shows what the
/// rank did for the largest part of it, and the share of the whole run in which it computed; below
/// them a scale and a legend.
std::string picture(const Timeline& timeline, const PictureOptions& options = {});

}  // namespace lockstep::distributed::virtual_cluster
