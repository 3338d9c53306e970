#include "core/shape.h"

#include <fmt/format.h>

namespace lockstep {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int64_t d : shape.dims()) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(d);
  }
  return text + "]";
}

}  // namespace lockstep

fmt::format_context::iterator fmt::formatter<lockstep::Shape>::format(
    const lockstep::Shape& shape, fmt::format_context& context) const {
  const std::string text = lockstep::to_string(shape);
  return std::copy(text.begin(), text.end(), context.out());
}
