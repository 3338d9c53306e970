#pragma once
#include <initializer_list>
#include <iterator>
#include <utility>

#include "core/kernels/cpu/cast_loops.h"
#include "core/kernels/cpu/host.h"

/// Note [Floating operands]
/// The vector loops know f32 only. An operand may also be f16 or bf16: it is widened into a few
/// thousand floats of room (or a row of them) at a time, and what a loop writes into such a room is
/// rounded, once and to nearest even, when it is stored. An f32 operand is used where it lies, so
/// that calls with f32 alone run as if there were no other types. The pieces of a parallel_for do
/// not depend on the types either; so a call has the bits of the f32 call on widened inputs,
/// rounded.
namespace lockstep::cpu {

void expect_floats(std::string_view kernel, std::initializer_list<const Tensor*> tensors);
/// Floating, each of its own type, and of one shape.
void expect_same_floats(std::string_view kernel, std::initializer_list<const Tensor*> tensors);
void expect_float_vector(std::string_view kernel, std::string_view what, const Tensor& x,
                         int64_t n);

/// The row that a loop is at: it moves where operands lie and stays in a room of narrow ones. For
/// loops over short rows, which the questions of read() and place() would delay.
template <class Float>
struct Row {
  Float* at;
  int64_t step;
  void next() { at += step; }
};

/// A floating tensor to read floats from; of an undefined one, null.
class FloatsIn {
 public:
  explicit FloatsIn(const float* floats) : data_(floats) {}
  explicit FloatsIn(const Tensor& x);
  bool narrow() const { return widen_ != nullptr; }
  /// Elements [at, at + n): where they lie, or widened into `room`, which the call then returns.
  const float* read(int64_t at, int64_t n, float* room) const {
    if (widen_ == nullptr) return data_ ? static_cast<const float*>(data_) + at : nullptr;
    widen_(room, static_cast<const uint16_t*>(data_) + at, n);
    return room;
  }
  /// Rows of n elements from `at` on; of a narrow one, what read() is to put into `room`.
  Row<const float> rows(int64_t at, int64_t n, const float* room) const {
    if (widen_ != nullptr) return {room, 0};
    return data_ ? Row<const float>{static_cast<const float*>(data_) + at, n} : Row<const float>{};
  }

 private:
  const void* data_ = nullptr;
  void (*widen_)(float*, const uint16_t*, int64_t) = nullptr;
};

/// A floating tensor to write floats to; of an undefined one, null. Its version is bumped.
class FloatsOut {
 public:
  explicit FloatsOut(const Tensor& out);
  bool narrow() const { return narrow_ != nullptr; }
  /// Where a loop puts elements from `at` on: their place, or `room`, to be followed by write().
  float* place(int64_t at, float* room) const {
    if (narrow_ != nullptr) return room;
    return data_ ? static_cast<float*>(data_) + at : nullptr;
  }
  Row<float> rows(int64_t at, int64_t n, float* room) const {
    float* first = place(at, room);
    return {first, narrow() || first == nullptr ? 0 : n};
  }
  /// Stores elements [at, at + n), where `from` is not their place already.
  void write(int64_t at, int64_t n, const float* from) const {
    if (narrow_ != nullptr) narrow_(static_cast<uint16_t*>(data_) + at, from, n);
  }

 private:
  void* data_ = nullptr;
  void (*narrow_)(uint16_t*, const float*, int64_t) = nullptr;
};

template <class... Operands>
bool any_narrow(const Operands&... operands) {
  return (operands.narrow() || ...);
}

/// Room on the stack for as many elements as one goes on with at a time.
inline constexpr int64_t kRoom = 1024;
struct alignas(64) Room {
  float floats[kRoom];
  operator float*() { return floats; }
};

/// f(at, n) over [begin, end): in one go, or, where an operand is narrow, in pieces of kRoom.
template <class F>
void in_rooms(bool narrow, int64_t begin, int64_t end, F f) {
  if (!narrow) return f(begin, end - begin);
  for (int64_t at = begin; at < end; at += kRoom) f(at, std::min(kRoom, end - at));
}

/// loop(out, inputs…, n) over all elements of tensors of one shape: an element-wise kernel.
template <class Loop, class... Inputs>
void map_floats(int64_t grain, const Tensor& out, Loop loop, const Inputs&... inputs) {
  const FloatsIn in[] = {FloatsIn(inputs)...};
  const FloatsOut to(out);
  const bool narrow = to.narrow() || std::any_of(std::begin(in), std::end(in),
                                                 [](const FloatsIn& x) { return x.narrow(); });
  parallel_for(out.numel(), grain, [&](int64_t begin, int64_t end) {
    Room rooms[sizeof...(inputs)], result;
    in_rooms(narrow, begin, end, [&](int64_t at, int64_t n) {
      [&]<size_t... I>(std::index_sequence<I...>) {
        loop(to.place(at, result), in[I].read(at, n, rooms[I])..., n);
      }
      (std::index_sequence_for<Inputs...>{});
      to.write(at, n, result);
    });
  });
}

/// The whole of an operand as floats, widened once a call: for what is read again and again.
class Widened {
 public:
  explicit Widened(const Tensor& x);
  const float* data() const { return floats_; }

 private:
  Scratch<float> scratch_;
  const float* floats_ = nullptr;
};

/// The whole of a result as floats, which store() rounds into the tensor.
class Rounded {
 public:
  explicit Rounded(const Tensor& out);
  float* data() const { return floats_; }
  void store() const;

 private:
  FloatsOut out_;
  int64_t numel_;
  Scratch<float> scratch_;
  float* floats_;
};

/// Room for rows of `width` floats: `count` of them for each piece of a parallel_for(n, grain).
/// Nothing where no operand is narrow.
class RowRooms {
 public:
  RowRooms(bool narrow, int count, int64_t width, int64_t n, int64_t grain)
      : count_(count),
        width_(narrow ? (width + 15) / 16 * 16 : 0),
        scratch_(checked_mul(parallel_pieces(n, grain) * count, width_)) {}
  float* row(int piece, int i) const { return scratch_.data() + (piece * count_ + i) * width_; }

 private:
  int64_t count_, width_;
  Scratch<float> scratch_;
};

}  // namespace lockstep::cpu
