#pragma once
#include "data/images.h"

#include "core/file.h"

#include <memory>
#include <string>

namespace lockstep::data {

/// Images of one byte a pixel and channel that stand in a file one after the other, and their
/// labels. Files are read when samples are, not kept in memory: one that changes is an error.
struct StoredImages {
  std::shared_ptr<const File> file;
  int64_t channels = 1, height = 0, width = 0;
  int64_t first_byte = 0;  ///< of the first image
  int64_t stride = 0;      ///< bytes from one image to the next
  int64_t count = 0;
  std::vector<uint8_t> labels;  ///< one an image; none where pixels alone were read
  int64_t pixels() const { return channels * height * width; }
  /// Puts the bytes of an image, [C, H, W], to `to`.
  void read(int64_t image, uint8_t* to) const {
    file->read_at(first_byte + image * stride, to, pixels());
  }
};

/// Two IDX files (MNIST and its kin): images u8 [N, H, W] or u8 [N, C, H, W], and labels u8 [N].
/// The format: two zero bytes, a type (8: u8), the number of dimensions, each of them in four
/// bytes, the most significant first, then the elements (http://yann.lecun.com/exdb/mnist).
/// SystemError(file) unless type and number of dimensions are these, the file is exactly as long as
/// its header says, and there are as many images as labels, at least one. An image has at most 2^26
/// bytes and 1,024 channels.
StoredImages open_idx(const std::string& images, const std::string& labels);
/// The first of them alone.
StoredImages open_idx_images(const std::string& path);

/// What the header of an IDX file says, checked as above: 1, 3 or 4 dimensions of bytes.
struct IdxHeader {
  std::vector<int64_t> shape;
  int64_t first_byte = 0;
};
IdxHeader read_idx_header(const File& file);
/// Whether a file begins as an IDX file does.
bool looks_like_idx(const File& file);

/// A binary file of CIFAR-10: records of a label, 0 … 9, and the red, green and blue planes of 32 x
/// 32 pixels (https://www.cs.toronto.edu/~kriz/cifar.html). SystemError(file) unless it is a whole
/// number of records, at least one, with labels 0 … 9.
StoredImages open_cifar10(const std::string& path);
constexpr int64_t kCifarRecord = 1 + 3 * 32 * 32;
constexpr int64_t kCifarClasses = 10;

/// Counts of each byte in each channel: what normalising goes by.
class PixelCounts {
 public:
  explicit PixelCounts(int64_t channels) : counts_(channels * 256) {}
  /// An image's bytes [C, …].
  void add(const uint8_t* pixels, int64_t a_channel);
  void add(const PixelCounts& other);
  struct Moments {
    double mean = 0, deviation = 0;  ///< of pixels in 0 … 1
  };
  Moments moments(int64_t channel) const;

 private:
  std::vector<int64_t> counts_;
};

/// A data set of stored images. Each channel is normalised by mean and deviation of all training
/// images (a channel that is constant: by its mean alone).
///
/// Held out are the images of `held_out`; without any, the last ones of an order that is shuffled,
/// always in the same way, since files are often sorted by class.
class ImageFiles final : public ImageDataset {
 public:
  struct Options {
    std::vector<StoredImages> training, held_out;
    double held_out_share = 0;  ///< of the training images, where `held_out` is empty; below 1
    int64_t least_classes = 1;  ///< there may be more than labels show
  };
  /// Reads all training images once. SystemError(file) when images differ in size.
  explicit ImageFiles(Options options);

  const ImageSchema& schema() const override { return schema_; }
  int64_t samples() const override { return samples_; }
  int64_t held_out() const override { return held_out_; }
  SamplerOptions::Order order() const override { return SamplerOptions::Order::shuffled; }
  void fill(std::span<const int64_t> samples, ImageBuffer& to) const override;

 private:
  int64_t place_of(int64_t sample) const;
  void normalise();

  std::vector<StoredImages> parts_;
  bool shuffled_;  // what is held out is chosen from all
  int64_t count_ = 0, samples_ = 0, held_out_ = 0;
  ImageSchema schema_;
  std::vector<float> values_;  // [C, 256]: bytes normalised
};

/// The six files of CIFAR-10 in a folder: data_batch_1.bin … data_batch_5.bin for training,
/// test_batch.bin held out.
ImageFiles::Options cifar10_in(const std::string& folder);

}  // namespace lockstep::data
