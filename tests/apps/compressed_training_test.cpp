// What compression costs in loss and saves in bytes, on a text that needs no package; on the demo
// text see compressing_strategies_test.cpp.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/apps/program.h"

namespace lockstep::test {
namespace {

using nlohmann::json;

// A text of known entropy, whose loss is long on a plateau before it falls.
json trained(const std::string& folder, const std::string& more) {
  const Outcome outcome = lockstep(words_of(
      "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 2 --heads 2 "
      "--width 16 --context 16 --batch 8 --ranks 2 --steps 4000 --optimizer sgd --lr 0.2 --seed 1 "
      "--threads 1 --quiet --json --out " +
      folder + " " + more));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

TEST(SlowCompression, OnePercentWithFeedbackAndFp8ReachTheUncompressedLoss) {
  TempFolder folder;
  const json plain = trained(folder / "plain", "");
  const double reached = plain["val_loss"];
  ASSERT_LT(reached, plain["best_possible_loss"].get<double>() + 0.03)
      << "there is no plateau left";
  const std::map<std::string, double> shares = {{"topk:ratio=0.01,scope=tensor+ef", 0.025},
                                                {"fp8:e4m3", 0.26}};
  for (const auto& [spec, share] : shares) {
    const json run = trained(folder / spec.substr(0, 4), "--compress " + spec);
    EXPECT_NEAR(run["val_loss"].get<double>(), reached, 0.03) << spec;
    EXPECT_LT(run["wire_bytes"].get<double>(), share * plain["wire_bytes"].get<double>()) << spec;
  }
}

}  // namespace
}  // namespace lockstep::test
