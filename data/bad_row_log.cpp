#include "data/bad_row_log.h"

#include "core/check.h"
#include "core/file.h"

#include <iterator>

namespace lockstep::data {

void BadRowLog::add(int64_t line, const std::string& reason) {
  if (what_ == BadRows::stop)
    throw SystemError(Fault::file,
                      fmt::format("[data.clicks] {}, line {}: {}; --bad-rows skip leaves malformed "
                                  "lines out",
                                  printable(path_), line, reason));
  const std::lock_guard lock(mutex_);
  if (!is_new(line)) return;
  ++count_;
  first_.emplace(line, reason);
  if (first_.size() > kReported) first_.erase(std::prev(first_.end()));
}

bool BadRowLog::is_new(int64_t line) {
  uint64_t& word = known_[line / kBits][static_cast<size_t>(line % kBits / 64)];
  const uint64_t bit = uint64_t{1} << (line % 64);
  const bool fresh = (word & bit) == 0;
  word |= bit;
  return fresh;
}

BadRowReport BadRowLog::report() const {
  const std::lock_guard lock(mutex_);
  BadRowReport report{.count = count_};
  for (const auto& [line, reason] : first_)
    report.first.push_back(fmt::format("line {}: {}", line, reason));
  return report;
}

}  // namespace lockstep::data
