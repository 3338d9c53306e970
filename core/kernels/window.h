#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep {

/// Rows and columns: of an image, of a window that goes over it, of its steps.
struct Plane {
  int64_t rows = 1, columns = 1;
  int64_t size() const { return rows * columns; }
  friend bool operator==(const Plane&, const Plane&) = default;
};
constexpr Plane square(int64_t side) { return {side, side}; }

namespace kernel {

/// What happens at the far edge where the last step does not fit: the rest is left out, or it gets
/// a window of its own, which hangs over.
enum class LastWindow { inside, overhanging };

/// How windows go over one dimension.
struct Windows {
  int64_t window = 1, stride = 1, padding = 0, dilation = 1;  ///< padding: at either end
  LastWindow last = LastWindow::inside;
};
/// How many windows there are; one that would begin in the padding at the far end is dropped.
/// UsageError `[kernel.name] …` where there is none, or for a window, stride or dilation below 1 or
/// a negative padding.
int64_t count_windows(std::string_view name, int64_t extent, const Windows& windows);

}  // namespace kernel
}  // namespace lockstep
