#pragma once
#include <string>
#include <vector>

#include "apps/compare/claim.h"
#include "apps/compare/verdict_file.h"

namespace lockstep::apps {

struct CompareOptions {
  std::vector<const Claim*> claims;
  Extent extent = Extent::standard;
  int64_t seeds = 0;  ///< 0: as the claim has it
  std::string text;
  int64_t jobs = 0;
  std::string out = "runs/compare";
  std::string command;  ///< that repeats it
  bool quiet = false;
};

struct Comparison {
  VerdictFile verdicts;
  CompareReport report;
  std::string table;  ///< for the terminal
  /// Runs that have no result, and claims that rest on them and so have none.
  std::vector<std::string> failures;
  bool interrupted = false;  ///< nothing else is filled in
};

/// Runs what the claims ask for, judges, and writes verdicts.json and report.html into `out`.
Comparison compare(const CompareOptions& options);

}  // namespace lockstep::apps
