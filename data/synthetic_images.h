#pragma once
#include "data/images.h"

#include <string>
#include <unordered_map>

namespace lockstep::data {

/// What no model beats, in expectation over images and labels.
struct BestImages {
  double accuracy = 0, log_loss = 0;
};

/// Images of a known rule, so that the best possible accuracy is known.
///
/// An image shows one of five shapes (disc, square, triangle, ring, cross) before one of two
/// textures (stripes, checks): class k is shape k mod 5 before texture k / 5. What must be seen
/// through: the shape's place (whole pixels), radius (16 steps) and rotation (64 steps); the
/// texture's width (4), angle (32) and phase (8); three colours, contrast and brightness; and noise
/// of every pixel, uniform in ± `noise`. Then the label is, with the probability `label_noise`,
/// replaced by any class, each as likely, the right one among them.
///
/// Note [Why the best accuracy is exact]
///
/// Let c be the class, x the image, y the label, e the label noise and K the classes. The label
/// depends on x through c only: P(y=k|x) = (1-e) P(c=k|x) + e/K, which is at most 1-e+e/K. So no
/// classifier's expected accuracy is above 1 - e (K-1)/K, and that is reached exactly if c is a
/// function of x. It is, and rule() is that function:
/// * In one of the channels any two of the three colours differ by 0.2 at least, while two pixels
///   of the same colour differ by twice the noise, 0.09, at most: a threshold of 0.1 tells
///   "the same colour" from "another" for any two pixels, without an error. (Of another colour
///   they differ by 0.2 - 0.09 at least.)
/// * The shape keeps two pixels off the border. So the border, two pixels wide, shows the texture
///   alone, and every other pixel of neither of its two colours belongs to the shape.
/// * Places are whole pixels and all else comes in steps, so that the shapes' masks and the
///   textures' borders are finitely many. The constructor makes them all and throws if two shapes
///   should have a mask, or two textures a border (but for an exchange of the colours), in common.
/// Then the smallest expected log-loss is the entropy of y given c (Gibbs' inequality).
///
/// Samples are pure functions of seed and number.
class SyntheticImages final : public ImageDataset {
 public:
  struct Options {
    int64_t size = 32;     ///< height and width, 24 … 64
    int64_t channels = 3;  ///< 3 or 1
    int64_t classes = 10;  ///< 2 … 10
    double label_noise = 0.05;
    double noise = 0.04;  ///< of pixels, whose colours are in 0 … 1; at most 0.045
    uint64_t seed = 0;
    int64_t samples = int64_t{1} << 40;  ///< of an epoch: nothing repeats before
    int64_t held_out = 10'000;
  };
  /// UsageError for options out of range; samples + held_out <= 2^41.
  explicit SyntheticImages(const Options& options);

  const ImageSchema& schema() const override { return schema_; }
  int64_t samples() const override { return options_.samples; }
  int64_t held_out() const override { return options_.held_out; }
  /// One after the other: the samples are independent.
  SamplerOptions::Order order() const override { return SamplerOptions::Order::sequential; }
  void fill(std::span<const int64_t> samples, ImageBuffer& to) const override;

  BestImages best() const;
  /// The class that an image shows, from its pixels [C, S, S] alone: the best classifier.
  /// UsageError for an image that is none of these.
  int64_t rule(const float* pixels) const;
  /// The class of a sample before its label was made noisy.
  int64_t true_class(int64_t sample) const;

 private:
  using Rows = std::vector<uint64_t>;  // a bit a pixel
  struct Sample;
  void make_shapes();
  void make_textures();
  std::string border_of(const Rows& rows) const;
  Sample draw(int64_t sample) const;
  void paint(const Sample& sample, float* pixels) const;

  Options options_;
  ImageSchema schema_;
  std::vector<Rows> shapes_, textures_;  // by kind, then variant; a shape's rows are its box's only
  std::vector<int64_t> shape_width_;
  std::unordered_map<std::string, int64_t> shape_of_, texture_of_;  // by mask, by border
};

}  // namespace lockstep::data
