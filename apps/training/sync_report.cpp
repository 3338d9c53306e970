#include "apps/training/sync_report.h"

#include <cmath>

namespace lockstep::apps {

nlohmann::ordered_json sync_json(const distributed::StrategyReport& report) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& number : report.numbers) {
    const bool whole = number.value == std::floor(number.value) && std::abs(number.value) < 0x1p53;
    if (whole)
      json[number.name] = static_cast<int64_t>(number.value);
    else
      json[number.name] = number.value;
  }
  for (const auto& histogram : report.histograms)
    json["histograms"][histogram.name] = histogram.counts;
  return json;
}

}  // namespace lockstep::apps
