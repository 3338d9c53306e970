#include "data/image_files.h"

#include "core/check.h"

#include <algorithm>

namespace lockstep::data {
namespace {

constexpr int64_t kAtOnce = 256;  // records

}  // namespace

StoredImages open_cifar10(const std::string& path) {
  StoredImages stored{.file = std::make_shared<const File>(path, File::Mode::read),
                      .channels = 3,
                      .height = 32,
                      .width = 32,
                      .first_byte = 1,
                      .stride = kCifarRecord};
  const int64_t size = stored.file->size();
  if (size == 0 || size % kCifarRecord != 0)
    throw SystemError(
        Fault::file,
        fmt::format("[data.cifar10] {}: size; expected a multiple of {} bytes (a label and 32 x 32 "
                    "x 3 pixels), got {}",
                    printable(path), kCifarRecord, size));
  const int64_t count = stored.count = size / kCifarRecord;
  stored.labels.reserve(static_cast<size_t>(count));
  std::vector<uint8_t> records(std::min(count, kAtOnce) * kCifarRecord);
  for (int64_t first = 0; first < count; first += kAtOnce) {
    const int64_t some = std::min(kAtOnce, count - first);
    stored.file->read_at(first * kCifarRecord, records.data(), some * kCifarRecord);
    for (int64_t i = 0; i < some; ++i) {
      const uint8_t label = records[i * kCifarRecord];
      if (label >= kCifarClasses)
        throw SystemError(Fault::file,
                          fmt::format("[data.cifar10] {}, record {}: label; expected 0..{}, got {}",
                                      printable(path), first + i, kCifarClasses - 1, label));
      stored.labels.push_back(label);
    }
  }
  return stored;
}

ImageFiles::Options cifar10_in(const std::string& folder) {
  ImageFiles::Options files{.least_classes = kCifarClasses};
  for (int batch = 1; batch <= 5; ++batch)
    files.training.push_back(open_cifar10(fmt::format("{}/data_batch_{}.bin", folder, batch)));
  files.held_out.push_back(open_cifar10(folder + "/test_batch.bin"));
  return files;
}

}  // namespace lockstep::data
