#include "apps/compare/verdict_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <locale>

#include "apps/compare/verdict_text.h"
#include "apps/report/json_text.h"
#include "core/check.h"
#include "tests/support/error_of.h"

namespace lockstep::apps {
namespace {

using test::error_of;

VerdictFile example() {
  VerdictFile file{.version = "0.1.0",
                   .date = "2026-01-01T00:00:00Z",
                   .command = "lockstep compare --quick",
                   .isa = "avx2",
                   .extent = "quick",
                   .text = "synthetic",
                   .machine = {{"cores", 2}},
                   .versions = {{"lockstep", "0.1.0"}}};
  file.claims.push_back({"B1b",
                         {{Finding::reproduced, Provenance::modelled, "ratio 1.3"},
                          Judgement{Finding::in_part, Provenance::measured, "ratio 1.31"}},
                         {{"ratio", "", 1.3},
                          {"gap", "nats", 0.010, Interval{0.006, 0.014}, 5, 0.0031623},
                          {"time", "s", 2.0, {}, 3}},
                         {"0123abcd"}});
  file.claims.push_back(
      {"A2a", {{Finding::inconclusive, Provenance::arithmetic, "none"}, {}}, {{"x", "", NAN}}, {}});
  return file;
}
std::string text_of_file(const VerdictFile& file) { return json_text(to_json(file), Layout::line); }

TEST(VerdictFiles, ReadBackAsTheyWere) {
  const VerdictFile file = example();
  const VerdictFile again = verdicts_from(text_of_file(file), "v.json");
  EXPECT_EQ(text_of_file(again), text_of_file(file));
  EXPECT_EQ(again.claims[0].figures[1].spread, 0.0031623);
  EXPECT_TRUE(std::isnan(again.claims[1].figures[0].value));
  EXPECT_FALSE(again.claims[1].verdict.size);
}

class CommaDecimals : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(KnownFaults, O51a_VerdictsAreTheSameUnderEveryLocale) {
  VerdictFile file = example();
  file.claims[0].figures[0].value = 1234567.25;
  const std::string plain = text_of_file(file), words = apps::text_of(file.claims[0].figures[1]);
  const std::locale before = std::locale::global(std::locale(std::locale(), new CommaDecimals));
  const std::string local = text_of_file(file),
                    again = text_of_file(verdicts_from(plain, "v.json")),
                    local_words = apps::text_of(file.claims[0].figures[1]);
  std::locale::global(before);
  EXPECT_NE(plain.find("1234567.25"), std::string::npos);
  EXPECT_EQ(local, plain);
  EXPECT_EQ(again, plain);
  EXPECT_EQ(local_words, words);
}

TEST(VerdictFiles, WhatIsMissingSuperfluousOrOfAnotherKindIsNamed) {
  const auto error_after = [](auto change) {
    nlohmann::ordered_json json = to_json(example());
    change(json);
    return error_of<SystemError>([&] { verdicts_from(json.dump(), "v.json"); });
  };
  using J = nlohmann::ordered_json;
  EXPECT_EQ(error_of<SystemError>([] { verdicts_from("{", "v.json"); }).substr(0, 7), "v.json:");
  EXPECT_EQ(error_after([](J& j) { j["schema"] = 9; }), "v.json: expected schema 1, got 9");
  EXPECT_EQ(error_after([](J& j) { j.erase("isa"); }), "v.json: missing 'isa'");
  EXPECT_EQ(error_after([](J& j) { j["more"] = 1; }), "v.json: unknown 'more'");
  EXPECT_EQ(error_after([](J& j) { j["claims"][0]["direction"]["finding"] = "true"; }),
            "v.json.claims[0].direction.finding: expected a finding, got '\"true\"'");
  EXPECT_EQ(error_after([](J& j) { j["claims"][0]["figures"][1]["interval"] = {1}; }),
            "v.json.claims[0].figures[1].interval: expected two ends, got '[1]'");
  EXPECT_EQ(error_after([](J& j) { j["claims"][0]["figures"][0]["value"] = "1.3"; }),
            "v.json.claims[0].figures[0].value: expected a number or null, got '\"1.3\"'");
  EXPECT_NE(error_after([](J& j) { j["claims"][1]["id"] = "B1b"; }).find("each claim once"),
            std::string::npos);
}

TEST(Regressions, AreChangedVerdictsAndFiguresThatLeaveTheirPrediction) {
  const VerdictFile before = example();
  EXPECT_TRUE(regressions(before, before).empty());
  const auto found_after = [&](auto change) {
    VerdictFile now = example();
    change(now);
    return regressions(before, now);
  };
  EXPECT_EQ(found_after([](VerdictFile& f) {
              f.claims[0].verdict.direction = {Finding::not_reproduced, Provenance::modelled, "r"};
            }),
            std::vector<std::string>{"B1b: direction was reproduced, is not reproduced: r"});
  EXPECT_EQ(found_after([](VerdictFile& f) { f.claims[0].verdict.size.reset(); }).size(), 1);
  // Computed: six digits.
  EXPECT_EQ(found_after([](VerdictFile& f) { f.claims[0].figures[0].value = 1.30001; }).size(), 1);
  EXPECT_TRUE(
      found_after([](VerdictFile& f) { f.claims[0].figures[0].value = 1.3000001; }).empty());
  // Family of two at 1 %: level 0.0050126 each; t(4) = 5.5946, times 0.0031623·√(2/5) = 0.011189.
  EXPECT_EQ(found_after([](VerdictFile& f) { f.claims[0].figures[1].value = 0.0213; }).size(), 1);
  EXPECT_TRUE(found_after([](VerdictFile& f) { f.claims[0].figures[1].value = 0.0210; }).empty());
  EXPECT_EQ(found_after([](VerdictFile& f) { f.claims[0].figures[1].value = NAN; }).size(), 1);
  // Nothing is known of how this one spreads.
  EXPECT_TRUE(found_after([](VerdictFile& f) { f.claims[0].figures[2].value = 9; }).empty());
  EXPECT_EQ(found_after([](VerdictFile& f) { f.claims[0].figures.pop_back(); }).size(), 0);
  EXPECT_EQ(found_after([](VerdictFile& f) {
              f.claims[0].figures.erase(f.claims[0].figures.begin());
            }).size(),
            1);
  EXPECT_TRUE(found_after([](VerdictFile& f) { f.claims.pop_back(); }).empty());
}

TEST(Regressions, NeedTheSameInstructionSet) {
  VerdictFile other = example();
  other.isa = "avx512";
  EXPECT_NE(error_of([&] { regressions(other, example()); }).find("LOCKSTEP_ISA=avx512"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::apps
