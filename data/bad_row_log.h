#pragma once
#include "data/clicks.h"

#include <array>
#include <map>
#include <mutex>
#include <unordered_map>

namespace lockstep::data {

/// What a reader does with malformed rows: each counts once, however often it is read. Any number
/// of threads may use it. Keeps a bit a line where some are malformed.
class BadRowLog {
 public:
  BadRowLog(std::string path, BadRows what) : path_(std::move(path)), what_(what) {}
  /// `line` counts from 1. SystemError(file) unless bad rows are to be skipped.
  void add(int64_t line, const std::string& reason);
  BadRowReport report() const;

 private:
  static constexpr size_t kReported = 5;
  static constexpr int64_t kBits = 4096;
  bool is_new(int64_t line);  // the lock being held

  std::string path_;
  BadRows what_;
  mutable std::mutex mutex_;
  int64_t count_ = 0;
  std::unordered_map<int64_t, std::array<uint64_t, kBits / 64>> known_;  // by line / kBits
  std::map<int64_t, std::string> first_;  // the lowest lines and their reasons
};

}  // namespace lockstep::data
