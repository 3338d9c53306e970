#pragma once
#include <string>
#include <vector>

/// A chart as a claim describes it: what to draw, not how. The report draws it, and its data as a
/// table.
namespace lockstep::apps {

enum class ChartKind {
  line,      ///< points joined in the order given
  scatter,   ///< points alone
  bar,       ///< y[i] of each series stands at categories[i]
  histogram  ///< as bar; categories are the bins in order, drawn without gaps
};

enum class Scale { linear, log };

struct Axis {
  std::string title;
  std::string unit;  ///< "nats", "MB"; "": a plain number
  Scale scale = Scale::linear;
};

/// One named set of points. Values that are not finite are gaps. One without points keeps its place
/// among the colours but is not named.
struct Series {
  std::string name;
  std::vector<double> x;  ///< as long as y; empty for bar and histogram
  std::vector<double> y;
  std::vector<double> low, high;    ///< an interval for each y; both empty: none
  std::vector<std::string> labels;  ///< what a point is called; empty: no names
};

/// Whether the points that no other beats are marked, and in which direction better lies.
enum class Front { none, low_x_low_y, high_x_low_y };

struct Chart {
  std::string title;
  ChartKind kind = ChartKind::line;
  Axis x, y;
  std::vector<std::string> categories;  ///< of bar and histogram
  std::vector<Series> series;
  Front front = Front::none;  ///< over the points of all series; scatter only
  std::string note;           ///< a sentence below it; may be empty
};

}  // namespace lockstep::apps
