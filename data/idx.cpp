#include "data/image_files.h"

#include "core/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::data {
namespace {

constexpr uint8_t kBytes = 8;  // the type that pixels and labels have
constexpr int64_t kMostPixels = int64_t{1} << 26, kMostChannels = 1024;

template <class... Args>
[[noreturn]] void fail(const File& file, fmt::format_string<Args...> text, Args&&... args) {
  throw SystemError(Fault::file, fmt::format("[data.idx] {}: {}", printable(file.path()),
                                             fmt::format(text, std::forward<Args>(args)...)));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

bool looks_like_idx(const File& file) {
  uint8_t magic[4] = {};
  if (file.size() < 8) return false;
  file.read_at(0, magic, 4);
  return magic[0] == 0 && magic[1] == 0 && magic[2] == kBytes && magic[3] >= 1 && magic[3] <= 4;
}

IdxHeader read_idx_header(const File& file) {
  const int64_t size = file.size();
  uint8_t bytes[4 + 4 * 4] = {};
  file.read_at(0, bytes, std::min<int64_t>(size, std::ssize(bytes)));
  if (size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
    fail(file, "expected an IDX file, got one that is compressed; gunzip it first");
  const int64_t rank = bytes[3];
  if (size < 4 || bytes[0] != 0 || bytes[1] != 0)
    fail(file, "expected an IDX file, which begins with 00 00 08, got {}",
         size < 4
             ? fmt::format("{} bytes", size)
             : fmt::format("{:02x} {:02x} {:02x} {:02x}", bytes[0], bytes[1], bytes[2], bytes[3]));
  if (bytes[2] != kBytes)
    fail(file, "type of the elements; expected 0x08 (bytes), got 0x{:02x}", bytes[2]);
  if (rank != 1 && rank != 3 && rank != 4)
    fail(file, "dimensions; expected 1 (labels), 3 or 4 (images), got {}", rank);
  IdxHeader header{.shape = {}, .first_byte = 4 + 4 * rank};
  if (size < header.first_byte)
    fail(file, "expected a header of {} bytes, got a file of {}", header.first_byte, size);
  int64_t expected = 1;
  for (int64_t d = 0; d < rank; ++d) {
    const uint8_t* at = bytes + 4 + 4 * d;
    const int64_t extent = int64_t{at[0]} << 24 | at[1] << 16 | at[2] << 8 | at[3];
    if (extent == 0) fail(file, "dimension {} of {}; expected at least 1, got 0", d, rank);
    header.shape.push_back(extent);
    // The first byte's place fits beside them.
    if (__builtin_mul_overflow(expected, extent, &expected) || expected > INT64_MAX - 64)
      fail(file, "dimensions; expected fewer than 2^63 elements in all, got {}",
           shape_text(header.shape));
  }
  if (expected + header.first_byte != size)
    fail(file, "size; expected {} bytes by its header of shape {}, got {}",
         expected + header.first_byte, shape_text(header.shape), size);
  return header;
}

StoredImages open_idx_images(const std::string& path) {
  StoredImages stored{.file = std::make_shared<const File>(path, File::Mode::read)};
  const IdxHeader header = read_idx_header(*stored.file);
  const auto rank = std::ssize(header.shape);
  if (rank < 3)
    fail(*stored.file, "expected images of 3 or 4 dimensions, got {}", shape_text(header.shape));
  stored.count = header.shape[0];
  stored.channels = rank == 4 ? header.shape[1] : 1;
  stored.height = header.shape[rank - 2];
  stored.width = header.shape[rank - 1];
  stored.first_byte = header.first_byte;
  stored.stride = (stored.file->size() - header.first_byte) / stored.count;
  if (stored.stride > kMostPixels || stored.channels > kMostChannels)
    fail(*stored.file, "size of an image; expected at most {} channels and {} bytes, got {} and {}",
         kMostChannels, kMostPixels, stored.channels, stored.stride);
  return stored;
}

StoredImages open_idx(const std::string& images, const std::string& labels) {
  StoredImages stored = open_idx_images(images);
  const File file(labels, File::Mode::read);
  const IdxHeader of_labels = read_idx_header(file);
  if (of_labels.shape.size() != 1)
    fail(file, "expected labels, of 1 dimension, got {}", shape_text(of_labels.shape));
  if (of_labels.shape[0] != stored.count)
    fail(file, "labels; expected {}, as many as there are images, got {}", stored.count,
         of_labels.shape[0]);
  stored.labels.resize(static_cast<size_t>(of_labels.shape[0]));
  file.read_at(of_labels.first_byte, stored.labels.data(), of_labels.shape[0]);
  return stored;
}

}  // namespace lockstep::data
