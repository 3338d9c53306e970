#pragma once
#include <nlohmann/json.hpp>

#include <optional>
#include <string>

#include "distributed/compress/traffic.h"

namespace lockstep::apps {

/// What summary.json holds under `compression`, of rank 0: `spec`, `elements`, `nominal_ratio`,
/// `effective_ratio`, bytes per step (`raw`, `wire`, and of this rank's codes `payload`, `indices`,
/// `scales`, `padding`, `framing`), `encode_s` and `decode_s` per step, elements `saturated` and
/// `underflowed` in all steps, `residual_norm`, `break_even_bytes_per_s`, and the same for each of
/// `buckets`.
nlohmann::ordered_json compression_json(const distributed::CompressionReport& report,
                                        int64_t steps);
/// In lines; `bandwidth`: bytes per second of the network, where that is modelled.
std::string compression_text(const distributed::CompressionReport& report, int64_t steps,
                             std::optional<double> bandwidth);

}  // namespace lockstep::apps
