#pragma once
#include <string>
#include <vector>

namespace lockstep::apps {

struct Curve {
  char mark;                   ///< drawn for its points
  std::vector<double> values;  ///< by step; those that are not finite are left out
};

/// Curves as characters, `width` x `height` without the axes; points that coincide with another
/// curve's are drawn as '*'. Each column shows the mean over its steps.
std::string draw_curves(const std::vector<Curve>& curves, int width, int height);

/// The largest |a - b| over all pairs of curves and steps both have; NaN with fewer than two
/// curves.
double largest_difference(const std::vector<Curve>& curves);

}  // namespace lockstep::apps
