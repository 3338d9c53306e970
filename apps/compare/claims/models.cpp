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

void PerStep::ask(Needs& needs) const {
  needs.runs.push_back(shorter);
  needs.runs.push_back(longer);
}

double PerStep::of(Results& results, const std::string& path) const {
  return (results.result(longer).figure(path) - results.result(shorter).figure(path)) /
         static_cast<double>(kLong - kShort);
}

}  // namespace lockstep::apps
