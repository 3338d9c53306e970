#include "apps/report/export/event_file.h"

#include "apps/report/export/crc32c.h"

#include <bit>

namespace lockstep::apps {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

// Protocol buffers' wire format: fields as (number << 3 | type), integers in groups of seven bits.
enum class Wire : uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

template <class Bits>
void append_little_endian(std::string& to, Bits bits) {
  for (size_t i = 0; i < sizeof bits; ++i) to += static_cast<char>(bits >> (8 * i));
}

void append_key(std::string& to, uint64_t field, Wire wire) {
  append_varint(to, field << 3 | static_cast<uint64_t>(wire));
}

void append_bytes(std::string& to, uint64_t field, std::string_view bytes) {
  append_key(to, field, Wire::bytes);
  append_varint(to, bytes.size());
  to += bytes;
}

void append_integer(std::string& to, uint64_t field, int64_t value) {
  append_key(to, field, Wire::varint);
  append_varint(to, static_cast<uint64_t>(value));
}

// Fields of Event, Summary, Summary.Value and SessionLog.
constexpr uint64_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr uint64_t kValue = 1, kTag = 1, kSimpleValue = 2, kStatus = 1;
constexpr int64_t kStart = 1;  // SessionLog.SessionStatus

std::string event_at(double wall_time) {
  std::string event;
  append_key(event, kWallTime, Wire::fixed64);
  append_little_endian(event, std::bit_cast<uint64_t>(wall_time));
  return event;
}

}  // namespace

std::string tf_record(std::string_view bytes) {
  std::string record;
  append_little_endian(record, uint64_t{bytes.size()});
  append_little_endian(record, masked_crc32c(record));
  record += bytes;
  append_little_endian(record, masked_crc32c(bytes));
  return record;
}

EventFile::EventFile(const std::string& path, double wall_time) : file_(path) {
  std::string event = event_at(wall_time);
  append_bytes(event, kFileVersion, "brain.Event:2");
  write(event);
}

void EventFile::restart(int64_t step, double wall_time) {
  std::string event = event_at(wall_time), log;
  append_integer(event, kStep, step);
  append_integer(log, kStatus, kStart);
  append_bytes(event, kSessionLog, log);
  write(event);
}

void EventFile::scalars(int64_t step, double wall_time,
                        const std::vector<std::pair<std::string, float>>& values) {
  std::string event = event_at(wall_time), summary;
  append_integer(event, kStep, step);
  for (const auto& [tag, number] : values) {
    std::string value;
    append_bytes(value, kTag, tag);
    append_key(value, kSimpleValue, Wire::fixed32);
    append_little_endian(value, std::bit_cast<uint32_t>(number));
    append_bytes(summary, kValue, value);
  }
  append_bytes(event, kSummary, summary);
  write(event);
}

void EventFile::commit() {
  file_.write(pending_);
  pending_.clear();
  file_.commit();
}

void EventFile::write(std::string_view event) {
  pending_ += tf_record(event);
  if (pending_.size() < kChunk) return;
  file_.write(pending_);
  pending_.clear();
}

}  // namespace lockstep::apps
