// `lockstep train … --compress`: gradients as codes, and what the program tells about them.
#include "tests/apps/program.h"
#include "tests/apps/run_output.h"

#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

std::vector<std::string> tiny(const std::string& more) {
  return words_of(
      "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 1 --heads 2 "
      "--width 16 --context 16 --batch 4 --steps 12 --seed 3 --quiet " +
      more);
}

TEST(CompressedTraining, IsToldAtTheEndAndInTheSummary) {
  TempFolder folder;
  const Outcome outcome = lockstep(tiny("--ranks 4 --compress int8+ef --out " + (folder / "r")));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("compression int8+ef: "), std::string::npos) << outcome.out;
  const auto told = summary_of(folder / "r")["compression"];
  EXPECT_EQ(told["spec"], "int8+ef");
  EXPECT_EQ(told["nominal_ratio"], 4);
  EXPECT_GT(told["effective_ratio"], 3.5);
  EXPECT_LT(told["effective_ratio"], 4);
  EXPECT_GT(told["encode_s"], 0);
  EXPECT_FALSE(told["buckets"].empty());
  EXPECT_GT(told["residual_norm"], 0);
  EXPECT_EQ(nlohmann::json::parse(slurp(folder / "r/run.json"))["config"]["compress"], "int8+ef");
}

TEST(CompressedTraining, SaysWhereEncodingCostsMoreThanItSaves) {
  TempFolder folder;
  const auto on = [&](const std::string& bandwidth) {
    return lockstep(tiny("--overwrite --ranks 2 --backend virtual --compress int8 --cluster "
                         "compute=1ms,bandwidth=" +
                         bandwidth + " --out " + (folder / "r")))
        .out;
  };
  const std::string line = "encoding costs more than it saves";
  EXPECT_NE(on("1000000Gbit").find(line), std::string::npos);
  EXPECT_EQ(on("1Mbit").find(line), std::string::npos);
}

TEST(CompressedTraining, GoesWithLowPrecisionAccumulationAndServices) {
  TempFolder folder;
  for (const char* more : {"--ranks 2 --precision amp-bf16 --accumulate 3",
                           "--ranks 2 --precision half-fp16 --accumulate 2",
                           "--ranks 3 --sync delayed:1", "--ranks 2 --sync async"}) {
    const Outcome outcome =
        lockstep(tiny(std::string("--overwrite --compress int8+ef:rescale --schedule cosine ") +
                      more + " --out " + (folder / "r")));
    EXPECT_EQ(outcome.code, 0) << more << outcome.err;
  }
}

TEST(CompressedTraining, WhatDoesNotFitIsRefused) {
  const auto error = [](const std::string& more) {
    const Outcome outcome = lockstep(tiny(more));
    EXPECT_EQ(outcome.code, 2) << more;
    return outcome.err;
  };
  EXPECT_NE(error("--compress int9").find("did you mean int8?"), std::string::npos);
  EXPECT_NE(error("--compress int8 --wire fp16").find("leave out --wire"), std::string::npos);
  EXPECT_NE(error("--compress int8+eff").find("+ef:rescale"), std::string::npos);
  EXPECT_NE(error("--compress int8 --ranks 2 --sync gossip").find("else than gradients"),
            std::string::npos);
  EXPECT_NE(error("--compress int8 --teach reduce-running").find("--teach"), std::string::npos);
  EXPECT_NE(lockstep(words_of("train transformer --compress help")).out.find("+ef:rescale"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::test
