#pragma once
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "apps/compare/verdict.h"

/// verdicts.json: what was found out, where and how, for people, scripts and `--check`.
namespace lockstep::apps {

struct ClaimRecord {
  std::string id;
  Verdict verdict;
  std::vector<Figure> figures;
  std::vector<std::string> runs;  ///< keys of what it rests on, folders under OUT/runs
};

struct VerdictFile {
  static constexpr int kSchema = 1;
  std::string version;  ///< of Lockstep
  std::string date;     ///< 2026-11-30T16:00:00Z
  std::string command;  ///< that repeats it
  std::string isa;      ///< instruction set of the kernels
  std::string extent;   ///< quick, default, full
  std::string text;     ///< what was learnt, by name or by hash
  nlohmann::ordered_json machine, versions;
  std::vector<ClaimRecord> claims;
};

nlohmann::ordered_json to_json(const VerdictFile& file);
/// SystemError(file) naming `name` and the place for whatever is missing, superfluous or of another
/// kind, and for another schema.
VerdictFile verdicts_from(const std::string& text, const std::string& name);

/// What `--check` found: `now` repeated what `before` tells of. One sentence each, e.g. "B1b:
/// direction was reproduced, is not reproduced". Claims that only one of them has are left out.
///
/// A figure is compared where a repetition can be predicted: from its spread, at a level at which
/// all figures together cry wolf in 1 % of the cases, or, computed from no samples at all, to six
/// digits. UsageError where the two were made with different instruction sets.
std::vector<std::string> regressions(const VerdictFile& before, const VerdictFile& now);

}  // namespace lockstep::apps
