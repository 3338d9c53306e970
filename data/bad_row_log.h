#pragma once
#include "data/clicks.h"

#include <map>
#include <mutex>

namespace lockstep::data {

/// What a reader does with malformed rows. Any number of threads may use it.
class BadRowLog {
 public:
  BadRowLog(std::string path, BadRows what) : path_(std::move(path)), what_(what) {}
  /// `line` counts from 1. SystemError(file) unless bad rows are to be skipped.
  void add(int64_t line, const std::string& reason);
  BadRowReport report() const;

 private:
  static constexpr size_t kReported = 5;
  std::string path_;
  BadRows what_;
  mutable std::mutex mutex_;
  int64_t count_ = 0;
  std::map<int64_t, std::string> first_;  // the lowest lines and their reasons
};

}  // namespace lockstep::data
