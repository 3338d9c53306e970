#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"

namespace lockstep::apps {

/// A record of a TFRecord file: length, its masked CRC, the bytes, theirs; little-endian
/// (tensorflow/core/lib/io/record_writer.h).
std::string tf_record(std::string_view bytes);

/// One file of events as TensorBoard reads them (tensorflow/core/util/event.proto), complete or
/// absent. Times are in seconds since 1970.
class EventFile {
 public:
  EventFile(const std::string& path, double wall_time);

  /// What follows begins anew at `step`: a viewer drops this and later steps of earlier files.
  void restart(int64_t step, double wall_time);
  /// Values of one step, each under its tag; not finite ones, too.
  void scalars(int64_t step, double wall_time,
               const std::vector<std::pair<std::string, float>>& values);
  void commit();

 private:
  void write(std::string_view event);
  AtomicFile file_;
  std::string pending_;
};

}  // namespace lockstep::apps
