#pragma once
#include "core/kernels/cpu/loops.h"

namespace lockstep::cpu {

/// 3 x 3 convolutions, step 1, one place of zeros around, of images that lie plane by plane. See
/// Note [Planes with zeros around them] in the .cpp.
struct PlaneShape {
  int64_t in, out;  ///< planes
  int64_t rows, columns;
};
struct PlaneConvolutionLoops {
  /// Whether planes of this size are for these loops.
  bool (*fits)(int64_t rows, int64_t columns);
  /// Floats of a padded plane, which are 0 before the first pad().
  int64_t (*padded)(int64_t rows, int64_t columns);
  /// Fills what is not zero around `planes` planes, which are to lie `step` floats apart.
  void (*pad)(float* to, int64_t step, const float* x, int64_t planes, int64_t rows,
              int64_t columns);
  /// Floats of packed weights.
  int64_t (*packed)(int64_t in, int64_t out);
  /// Packs weight(k, c, tap) = w[k * out_step + c * in_step + tap * tap_step + first] of 9 taps.
  void (*pack)(float* to, const float* w, int64_t in, int64_t out, int64_t out_step,
               int64_t in_step, int64_t first, int64_t tap_step);
  /// y [out, rows, columns] of one image from its padded planes; bias may be null.
  void (*convolve)(float* y, const float* padded, const float* packed, const float* bias,
                   const PlaneShape& shape);
  /// Images to give weight_sums at a time, and the floats of room that it wants for so many.
  int64_t (*images_together)(int64_t rows, int64_t columns);
  int64_t (*weight_room)(int64_t images, int64_t rows, int64_t columns);
  /// Floats of the sums for a gradient of weights.
  int64_t (*sums_of)(int64_t in, int64_t out);
  /// Adds to sums what `images` images give, from dy [images, out, ...] and padded planes
  /// [in, images].
  void (*weight_sums)(float* sums, const float* dy, const float* padded, int64_t images,
                      const PlaneShape& shape, float* room);
  /// Adds sums to dweight [out, in, 9].
  void (*take_sums)(float* dweight, const float* sums, int64_t in, int64_t out);
};
LOCKSTEP_DECLARE_LOOPS(PlaneConvolution);

}  // namespace lockstep::cpu
