#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/compare/chart.h"
#include "apps/compare/report_model.h"
#include "apps/compare/run_store.h"
#include "apps/compare/verdict.h"

/// A claim reads like a protocol: what is said, what is done to find out, the rule, and the
/// judgement that follows it. One file in claims/ each:
///
///     const RegisterClaim straggler{{
///         .id = "B1b", .source = "B 4.1",
///         .statement = "One of 8 ranks 30 % slower lengthens every synchronous step by 30 %.",
///         .done = "…", .rule = "…",
///         .needed = {.steps = 50}, .quick = {.steps = 50},
///         .ask = [](const Setting& setting) { return Needs{…}; },
///         .judge = [](const Setting& setting, Results& results) { return Outcome{…}; }}};
///
/// No file lists them.
namespace lockstep::apps {

enum class Extent { quick, standard, full };
/// "quick", "default", "full".
std::string name_of(Extent extent);

/// How much runs: optimiser steps of the longest run and paired seeds.
struct Size {
  int64_t steps = 0;  ///< 0: the claim has none
  int64_t seeds = 1;
};

/// What a claim is to make of itself in this call.
struct Setting {
  Extent extent = Extent::standard;
  int64_t steps = 0;
  std::vector<int64_t> seeds;  ///< to report; kFirstSeed onwards
  std::string text;            ///< for --text
  /// Learning rates are picked on these, which are not among `seeds`.
  std::vector<int64_t> tuning_seeds;

  static constexpr int64_t kFirstSeed = 1, kFirstTuningSeed = 1001;
};

struct Needs {
  std::vector<RunRequest> runs;
  std::vector<Experiment> experiments;
};

/// The results of what the claim asked for. Whatever it did not ask for is a UsageError.
using Results = RunStore;

struct Outcome {
  Verdict verdict;
  std::vector<Figure> figures;
  std::vector<Chart> charts;
  std::string takeaway;  ///< what a practitioner does with it; may depend on what was found
};

struct Claim {
  std::string id;         ///< "A2d"
  std::string source;     ///< "B 4.1"
  std::string statement;  ///< a sentence
  std::string done;       ///< what is done to find out
  std::string rule;       ///< of the verdict; stands before the run
  /// With less the rule decides nothing: whatever it finds is shown as inconclusive.
  Size needed;
  Size quick;  ///< what --quick makes of it
  /// What is run without --quick, and with --full; at least what is needed.
  Size standard, full;
  ClaimSection::Kind kind = ClaimSection::Kind::claim;
  std::function<Needs(const Setting&)> ask;
  /// What follows from the results of the first round, such as runs at the learning rate that was
  /// found there; may be missing.
  std::function<Needs(const Setting&, Results&)> ask_again;
  std::function<Outcome(const Setting&, Results&)> judge;

  /// `seeds` > 0 instead of those of the extent.
  Setting setting(Extent extent, int64_t seeds, const std::string& text) const;
  bool decides(const Setting& setting) const;
  /// judge(), and a preview of it where the setting does not decide.
  Outcome outcome(const Setting& setting, Results& results) const;
};

/// All claims, sorted by id.
const std::vector<Claim>& claims();

/// While the program is loaded.
struct RegisterClaim {
  explicit RegisterClaim(Claim claim);
};

}  // namespace lockstep::apps
