#include "core/shape.h"

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
