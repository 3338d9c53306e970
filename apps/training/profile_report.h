#pragma once
#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <vector>

#include "core/profile.h"

namespace lockstep::apps {

/// One a rank.
using Profiles = std::vector<std::unique_ptr<Profile>>;

/// Where rank 0's steps went: its phases, its operations by self time, its collectives where there
/// are several ranks, and how much was in no operation.
std::string profile_text(const Profiles& ranks);

/// The same for summary.json: `warm_up` and `steps`, `step_ms`, the share `outside_operations`, and
/// `phases`, `operations`, `transfers`: lists of rows over all steps that count.
nlohmann::ordered_json profile_json(const Profile& profile);

/// The spans of the traced steps in the Chrome trace format: a process a rank, what is on its way
/// on lanes beside the rank's thread.
void write_profile_trace(const std::string& path, const Profiles& ranks);

}  // namespace lockstep::apps
