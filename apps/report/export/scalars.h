#pragma once
#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::apps {

/// The numbers of a step under the names of their fields, those of objects inside joined by
/// `separator`: "probe.overall.wire.zeros". Numbers are as they are in the file, true and false are
/// 1 and 0, what was not finite is null. Lists, texts and what a probe found for single parameters
/// are left out.
using Scalars = std::vector<std::pair<std::string, nlohmann::json>>;
Scalars scalars_of(const nlohmann::json& step, char separator);

}  // namespace lockstep::apps
