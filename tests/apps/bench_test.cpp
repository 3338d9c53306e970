#include "tests/apps/program.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <set>

namespace lockstep::test {
namespace {

using nlohmann::json;

std::vector<json> bench(std::vector<std::string> words) {
  words.insert(words.begin(), "bench");
  words.insert(words.end(), {"--json", "--threads", "1"});
  const Outcome outcome = lockstep(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::vector<json> lines;
  for (size_t begin = 0, end; (end = outcome.out.find('\n', begin)) != std::string::npos;
       begin = end + 1)
    lines.push_back(json::parse(outcome.out.substr(begin, end - begin)));
  return lines;
}

TEST(Bench, MeasuresEveryKind) {
  std::set<std::string> kinds;
  for (const json& line : bench({"--repeats", "1"})) {
    const auto name = line["name"].get<std::string>();
    kinds.insert(name.substr(0, name.find(' ')));
    const bool difference = name == "probe of a step";
    EXPECT_TRUE(difference || line["median_ms"].get<double>() > 0) << name;
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"matmul", "attention", "optimizer", "allreduce", "step",
                                          "parallel", "probe", "peaks", "virtual", "embedding",
                                          "recommender", "vision"}));
}

TEST(Bench, TablesThatDoNotFitAreRefusedWithTheSum) {
  const Outcome outcome = lockstep({"bench", "recommender", "--rows", "2000000000"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_NE(outcome.err.find("26 tables with 52000000000 rows x 16 x 4 B = 3.33e+03 GB"),
            std::string::npos)
      << outcome.err;
}

TEST(Bench, AStepAsksTheSystemForNoMemoryAfterTheThird) {
  const auto lines = bench({"step", "--repeats", "5"});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["system_allocations_per_step"], 0);
  EXPECT_GT(lines[0]["tokens_per_s"].get<double>(), 0);
}

}  // namespace
}  // namespace lockstep::test
