#include "apps/compare/claims/models.h"

namespace lockstep::apps {

RunRequest tiny_gpt(int64_t ranks, int64_t steps) {
  return RunRequest{.app = "transformer",
                    .options = {{"--text", "synthetic"},
                                {"--layers", "2"},
                                {"--width", "32"},
                                {"--heads", "2"},
                                {"--context", "16"},
                                {"--batch", "2"},
                                {"--val-tokens", "256"}}}
      .with("--ranks", ranks)
      .with("--steps", steps);
}

RunRequest small_gpt(const Setting& setting, int64_t seed) {
  return RunRequest{.app = "transformer",
                    .options = {{"--text", setting.text},
                                {"--layers", "2"},
                                {"--width", "64"},
                                {"--heads", "4"},
                                {"--context", "32"},
                                {"--val-tokens", "65536"},
                                {"--eval-every", "0"}}}
      .with("--steps", setting.steps)
      .with("--seed", seed);
}

double CountedBytes::per_step(Results& results) const {
  return (results.result(longer).figure("wire_bytes") -
          results.result(shorter).figure("wire_bytes")) /
         static_cast<double>(kLong - kShort);
}

}  // namespace lockstep::apps
