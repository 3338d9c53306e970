#include "core/kernels/window.h"

#include "core/check.h"

namespace lockstep::kernel {

int64_t count_windows(std::string_view name, int64_t extent, const Windows& w) {
  check(w.window >= 1 && w.stride >= 1 && w.dilation >= 1,
        "[kernel.{}] window, stride and dilation; expected 1 or more, got {}, {} and {}", name,
        w.window, w.stride, w.dilation);
  check(w.padding >= 0, "[kernel.{}] padding; expected 0 or more, got {}", name, w.padding);
  const int64_t reach = checked_add(checked_mul(w.window - 1, w.dilation), 1);
  const int64_t padded = checked_add(extent, checked_mul(2, w.padding));
  check(extent >= 1 && reach <= padded,
        "[kernel.{}] a window that reaches over {} does not fit into {} and twice {} of padding",
        name, reach, extent, w.padding);
  const int64_t room = padded - reach;
  if (w.last == LastWindow::inside) return room / w.stride + 1;
  const int64_t count = checked_add(room, w.stride - 1) / w.stride + 1;
  return (count - 1) * w.stride >= extent + w.padding ? count - 1 : count;
}

}  // namespace lockstep::kernel
