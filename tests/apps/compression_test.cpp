// `lockstep train … --compress`: gradients as codes, and what the program tells about them.
#include "tests/apps/program.h"
#include "tests/apps/run_output.h"

#include <fmt/format.h>
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

TEST(CompressedTraining, WhatIsSavedDoesNotDependOnWhenSumsArrive) {
  TempFolder folder;
  const auto ratio = [&](const std::string& sync) {
    EXPECT_EQ(lockstep(tiny("--overwrite --ranks 3 --compress int8 --sync " + sync + " --out " +
                            (folder / "r")))
                  .code,
              0);
    return summary_of(folder / "r")["compression"]["effective_ratio"].get<double>();
  };
  EXPECT_DOUBLE_EQ(ratio("delayed:3"), ratio("allreduce"));
}

TEST(CompressedTraining, ReportTellsCodesAndWhatTheySave) {
  TempFolder folder;
  const char* names[] = {"plain", "topk", "powersgd", "adam"};
  const char* options[] = {"", "--compress topk:ratio=0.01,values=fp16+ef", "--sync powersgd",
                           "--sync onebit_adam:warmup=3,floor=0.1,code=sign"};
  std::vector<std::string> line{"report"};
  for (size_t i = 0; i < 4; ++i) {
    line.push_back(folder / names[i]);
    const Outcome run =
        lockstep(tiny(fmt::format("--ranks 2 {} --out {}", options[i], line.back())));
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.out.find(" 0 % "), std::string::npos) << run.out;
  }
  const Outcome report = lockstep(line);
  ASSERT_EQ(report.code, 0) << report.err;
  const auto row = [&](const std::string& label) {
    const size_t begin = report.out.find("\n" + label) + 1;
    return words_of(report.out.substr(begin, report.out.find('\n', begin) - begin));
  };
  EXPECT_EQ(row("sync"), words_of("sync allreduce allreduce powersgd "
                                  "onebit_adam:warmup=3,floor=0.1,code=sign"));
  EXPECT_EQ(row("compression"), words_of("compression - topk:ratio=0.01,values=fp1.. - -"));
  const auto saved = row("bytes of gradients, less");
  ASSERT_EQ(saved.size(), 4 + 1 + 3 * 2u) << report.out;  // the label, "-", and "9.8 x" of three
  EXPECT_EQ(saved[4], "-");
  const double adam = summary_of(folder / "adam")["sync"]["compression"];
  EXPECT_EQ(saved[9], fmt::format("{:.1f}", adam));
  EXPECT_GT(adam, 8);
  EXPECT_LT(adam, 32);
}

TEST(CompressedTraining, AWarmUpThatDoesNotEndIsTold) {
  TempFolder folder;
  const Outcome run = lockstep(tiny("--ranks 2 --sync onebit_adam --out " + (folder / "r")));
  EXPECT_NE(run.out.find("warmup_left 88"), std::string::npos) << run.out;
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
  EXPECT_NE(error("--compress powersgd").find("--sync powersgd"), std::string::npos);
  EXPECT_NE(error("--sync topk").find("--compress topk"), std::string::npos);
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
