#pragma once
#include <nlohmann/json.hpp>

#include <string>

#include "distributed/gradient_probe.h"

namespace lockstep::apps {

/// What a probe saw, for a line of metrics.jsonl: under "overall" and under every parameter's name
/// the stages `raw scaled wire reduced`, each with its dtype, the number of elements, the shares
/// `zeros subnormals infinities nans`, and `log2`: counts of magnitudes [2^k, 2^(k+1)) for k from
/// `from` on. Under "sent" how this rank's gradients compare with what receivers decode of them.
nlohmann::ordered_json probe_json(const distributed::GradientProbe& probe,
                                  const optim::FlatParams& params);

/// The stages as a table with a small histogram of log2 magnitudes each, and the parameters that
/// lost most gradients on the way.
std::string probe_text(const distributed::GradientProbe& probe, const optim::FlatParams& params);

/// In one line: how many gradients became zero, and where most.
std::string probe_line(const distributed::GradientProbe& probe, const optim::FlatParams& params);

}  // namespace lockstep::apps
