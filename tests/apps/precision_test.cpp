#include "core/safetensors.h"
#include "tests/apps/program.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>

namespace lockstep::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

class Precision : public testing::Test {
 protected:
  // A run of a model small enough to train in a moment; `name` is its folder.
  Outcome run(const std::string& name, const std::string& more = "") {
    Words words = words_of(
        "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 2 --heads 2 "
        "--width 16 --context 16 --batch 8 --steps 40 --eval-every 0 --threads 1 --seed 3 --lr "
        "3e-3 "
        "--quiet --json --out " +
        path(name));
    for (const std::string& word : words_of(more)) {
      const auto same = std::find(words.begin(), words.end(), word);
      if (word.rfind("--", 0) == 0 && same != words.end()) words.erase(same, same + 2);
      words.push_back(word);
    }
    return lockstep(words);
  }
  json summary(const std::string& name, const std::string& more = "") {
    const Outcome outcome = run(name, more);
    EXPECT_EQ(outcome.code, 0) << more << "\n" << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json();
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  std::vector<json> metrics(const std::string& name) const {
    std::vector<json> lines;
    const std::string text = slurp(path(name) + "/metrics.jsonl");
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1)
      lines.push_back(json::parse(text.substr(begin, end - begin)));
    return lines;
  }
  json config(const std::string& name) const {
    return json::parse(slurp(path(name) + "/run.json"))["config"];
  }
  std::string model(const std::string& name) const {
    return slurp(path(name) + "/model.safetensors");
  }

  TempFolder folder_;
};

TEST_F(Precision, EveryPresetLearnsWhatFp32Learns) {
  const double fp32 = summary("fp32")["val_loss"];
  for (const std::string preset : {"amp-fp16", "amp-bf16", "half-fp16", "half-bf16"}) {
    // From where no step is skipped: one of forty would show.
    const std::string scale = preset.ends_with("fp16") ? " --scale dynamic:start=1024" : "";
    const json s = summary(preset, "--ranks 2 --batch 4 --precision " + preset + scale);
    ASSERT_FALSE(s.is_null());
    EXPECT_NEAR(s["val_loss"].get<double>(), fp32, 0.02) << preset;
  }
}

TEST_F(Precision, WithoutAMasterSmallUpdatesAreLost) {
  const std::string slow = "--lr 1e-5 --steps 400 --weight-decay 0 ";
  const double fp32 = summary("fp32", slow)["val_loss"],
               right = summary("right", slow + "--precision half-bf16")["val_loss"],
               wrong = summary("wrong", slow + "--precision half-bf16 --master off")["val_loss"];
  EXPECT_NEAR(right, fp32, 0.02);
  EXPECT_GT(wrong, fp32 + 0.1);  // of about 0.25 that fp32 learns
}

TEST_F(Precision, KnobsFollowThePresetUnlessGiven) {
  summary("a", "--precision half-fp16 --steps 1");
  json c = config("a");
  EXPECT_EQ(c["compute"], "fp16");
  EXPECT_EQ(c["params"], "fp16");
  EXPECT_EQ(c["grads"], "fp16");
  EXPECT_EQ(c["wire"], "fp16");
  EXPECT_EQ(c["scale"], "dynamic");
  EXPECT_EQ(c["accumulate_in"], "grads");
  summary("b",
          "--precision half-bf16 --compute fp32 --grads fp32 --accumulate 2 --batch 4 --steps 1");
  c = config("b");
  EXPECT_EQ(c["compute"], "fp32");
  EXPECT_EQ(c["params"], "bf16");
  EXPECT_EQ(c["wire"], "fp32");
  EXPECT_EQ(c["scale"], "none");
  EXPECT_EQ(c["accumulate_in"], "fp32");
}

TEST_F(Precision, EveryKnobAloneTrains) {
  const double fp32 = summary("fp32", "--ranks 2 --batch 4")["val_loss"];
  int number = 0;
  for (const std::string knob :
       {"--compute fp16", "--compute bf16", "--params fp16", "--params bf16", "--grads fp16",
        "--grads bf16", "--wire fp16", "--wire bf16", "--wire bf16 --reduce-in wire",
        "--wire fp16 --divide split", "--grads bf16 --accumulate 2 --accumulate-in grads"}) {
    const std::string batch =
        knob.find("accumulate") == std::string::npos ? " --batch 4" : " --batch 2";
    const std::string scale =
        knob.find("fp16") == std::string::npos ? "" : " --scale dynamic:start=1024";
    const json s = summary(std::to_string(number++), knob + scale + " --ranks 2" + batch);
    ASSERT_FALSE(s.is_null()) << knob;
    EXPECT_NEAR(s["val_loss"].get<double>(), fp32, 0.02) << knob;
  }
}

TEST_F(Precision, AScaleChangesNoBitOfFp32Training) {
  summary("plain");
  summary("scaled", "--scale 1024");
  EXPECT_TRUE(model("plain") == model("scaled"));
  EXPECT_EQ(metrics("scaled").front()["scale"], 1024);
}

// The scale is of a rank's mean loss: of a window twice as large it is one of twice the size.
TEST_F(Precision, RanksAreMicroBatchesBitForBitWhereTheirSumsAreF32) {
  for (const std::string knobs :
       {"--precision amp-fp16", "--precision half-fp16", "--precision half-bf16"}) {
    const std::string more = " --batch 4 --wire fp32 --accumulate-in fp32 --overwrite " + knobs;
    summary("ranks", more + " --ranks 2 --scale 1024");
    summary("micros", more + " --accumulate 2 --scale 2048");
    EXPECT_TRUE(model("ranks") == model("micros")) << knobs;
  }
}

TEST_F(Precision, ANarrowWireMovesHalfTheGradientBytes) {
  const json wide = summary("wide", "--ranks 2 --batch 4"),
             narrow = summary("narrow", "--ranks 2 --batch 4 --wire bf16");
  const double ratio = narrow["wire_bytes"].get<double>() / wide["wire_bytes"].get<double>();
  EXPECT_NEAR(ratio, 0.5, 0.02);  // the verdict's and the report's exchanges stay as they are
}

TEST_F(Precision, ADynamicScaleSkipsUntilGradientsFit) {
  const json s =
      summary("high", "--precision half-fp16 --scale dynamic:start=16777216,interval=10");
  EXPECT_GT(s["skipped_steps"].get<int64_t>(), 0);
  const auto steps = metrics("high");
  EXPECT_EQ(steps[0]["scale"], 16777216);
  for (size_t i = 1; i < steps.size(); ++i) {
    const double before = steps[i - 1]["scale"], now = steps[i]["scale"];
    if (steps[i - 1]["skipped"].get<bool>())
      EXPECT_EQ(now, before / 2);
    else
      EXPECT_TRUE(now == before || now == 2 * before) << before << " " << now;
  }
  EXPECT_FALSE(steps.back()["loss"].is_null());
}

TEST_F(Precision, WithoutScalingTheFirstBadStepEndsTheRun) {
  const Outcome outcome = run("none", "--precision half-fp16 --scale none --lr 1e4 --steps 400");
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_NE(outcome.err.find("first non-finite value in "), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1);
}

TEST_F(Precision, FiftySkippedStepsInARowEndTheRun) {
  const Outcome outcome =
      run("high", "--precision half-fp16 --scale 16777216 --steps 400 --ranks 2");
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_NE(outcome.err.find("a gradient is not finite at step 50 after 50 skipped steps in a row"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("lower --scale"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1);
}

TEST_F(Precision, NoScaleIsTriedOnParametersThatAreNotFinite) {
  for (const std::string knobs :
       {"--precision half-fp16", "--precision amp-fp16 --ranks 2", "--scale 1024",
        "--precision half-fp16 --master off", "--precision half-bf16 --scale dynamic"}) {
    const Outcome outcome = run("dead", "--overwrite --lr 1e38 " + knobs);
    EXPECT_EQ(outcome.code, 5) << knobs << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find("first non-finite value in wte.weight (value); lower --lr"),
              std::string::npos)
        << knobs << "\n"
        << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1);
    EXPECT_LE(metrics("dead").size(), 3u) << knobs;
  }
}

TEST_F(Precision, ARunThatEndsUnusableHasFailed) {
  const struct {
    std::string knobs, text;
  } ends[] = {
      // The last update is what destroys the model.
      {"--lr 1e38 --steps 1", "a parameter is not finite at step 1: first non-finite value in "},
      {"--lr 1e38 --steps 1 --val-fraction 0", "a parameter is not finite at step 1"},
      {"--lr 1e38 --steps 1 --precision half-bf16 --ranks 2",
       "a parameter is not finite at step 1"},
      // Every parameter is finite, but not what they compute.
      {"--lr 1e30 --steps 1 --ranks 2 --batch 4",
       "validation loss is not finite at step 1: first non-finite value in no parameter and no "
       "gradient, the largest values in "},
      // No step was applied.
      {"--precision half-fp16 --scale 16777216 --steps 7",
       "a gradient is not finite at step 7 after 7 skipped steps in a row: first non-finite value "
       "in wte.weight (gradient); lower --scale"},
  };
  for (const auto& [knobs, text] : ends) {
    const Outcome outcome = run("end", "--overwrite " + knobs);
    EXPECT_EQ(outcome.code, 5) << knobs;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << knobs << "\n" << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1);
    EXPECT_EQ(json::parse(slurp(path("end") + "/summary.json"))["status"], "diverged") << knobs;
    EXPECT_FALSE(std::filesystem::exists(path("end") + "/model.safetensors")) << knobs;
  }
}

TEST_F(Precision, TheMasterIsSavedWithTheModel) {
  summary("master", "--precision half-bf16");
  summary("none", "--precision half-bf16 --master off");
  const SafetensorsReader with(path("master") + "/model.safetensors"),
      without(path("none") + "/model.safetensors");
  EXPECT_EQ(with.entries().front().dtype, DType::f32);
  EXPECT_EQ(without.entries().front().dtype, DType::bf16);
  for (const std::string name : {"master", "none"})
    EXPECT_EQ(lockstep(words_of("sample " + path(name) + " --tokens 5")).code, 0) << name;
}

TEST_F(Precision, ProbesShowFourStagesPerParameterAndOverall) {
  const Outcome outcome = run("p",
                              "--precision half-fp16 --scale none --ranks 2 --batch 4 --steps 12 "
                              "--probe gradients --probe-every 10");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto steps = metrics("p");
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].contains("probe"), i % 10 == 0);
  const json probe = steps[10]["probe"];
  const auto parameters = json::parse(slurp(path("p") + "/run.json"))["parameters"].get<int64_t>();
  EXPECT_TRUE(probe["parameters"].contains("blocks.1.mlp.fc.weight"));
  for (const char* stage : {"raw", "scaled", "wire", "reduced"}) {
    const json seen = probe["overall"][stage];
    EXPECT_EQ(seen["dtype"], "fp16");
    int64_t counted = 0;
    for (const json& count : seen["log2"]["counts"]) counted += count.get<int64_t>();
    const auto total = seen["elements"].get<int64_t>();
    EXPECT_EQ(total, parameters);
    EXPECT_NEAR(static_cast<double>(counted) / static_cast<double>(total),
                1 - seen["zeros"].get<double>() - seen["infinities"].get<double>() -
                    seen["nans"].get<double>(),
                1e-9);
  }
  // Without a scale every hundredth and more gradient is below what fp16 holds exactly.
  EXPECT_GT(probe["overall"]["raw"]["subnormals"].get<double>(), 0.01);
}

TEST_F(Precision, ProbesSayWhatOverflowsAndTheEndHowManyStepsWereSkipped) {
  const Outcome outcome = lockstep(words_of(
      "train transformer --text synthetic:order=1,letters=4,length=20000 --layers 1 --heads 2 "
      "--width 16 --context 16 --batch 8 --steps 12 --threads 1 --precision half-fp16 --scale "
      "dynamic:start=16777216 --probe gradients --out " +
      path("p")));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("step 1: zero gradients: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("; not finite: scaled "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find(" steps skipped"), std::string::npos) << outcome.out;
}

TEST_F(Precision, ProbesChangeNothing) {
  const std::string knobs = "--precision half-fp16 --ranks 2 --batch 4 --wire bf16";
  summary("without", knobs);
  summary("with", knobs + " --probe gradients --probe-every 1");
  EXPECT_TRUE(model("without") == model("with"));
}

TEST_F(Precision, BadKnobsAreOneLine) {
  const struct {
    std::string options, text;
  } bad[] = {
      {"--precision fp8", "--precision: expected fp32, amp-fp16"},
      {"--precision amp-fp61", "did you mean amp-fp16?"},
      {"--precision bf16", "did you mean amp-bf16?"},
      {"--compute fp64", "--compute: expected fp32, fp16, bf16"},
      {"--reduce-in wire", "--reduce-in wire: expected a --wire of fp16 or bf16"},
      {"--divide split", "--divide split: expected a --wire"},
      {"--scale 1000", "--scale 1000: expected a power of two (exact to undo), got 1000; try 1024"},
      {"--scale 0.3", "got 0.3; try 0.25"},
      {"--scale fast", "--scale: expected auto, none, dynamic or a power of two"},
      {"--scale dynamic:start=3", "got 3; try 4"},
      {"--scale dynamic:groth=2", "--scale: "},
      {"--scale 1e30", "--scale"},
      {"--scale 0", "--scale"},
      {"--probe-every 5", "--probe-every 5: expected --probe gradients"},
      {"--master maybe", "--master: expected on or off"},
      {"--wire fp16 --teach reduce-running --ranks 2 --accumulate 2 --batch 2", "reduce"},
  };
  for (const auto& [options, text] : bad) {
    const Outcome outcome = run("bad", options);
    EXPECT_EQ(outcome.code, 2) << options << "\n" << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << options << "\n" << outcome.err;
  }
}

TEST_F(Precision, HelpListsPresetsAndScales) {
  for (const std::string option : {"--precision", "--scale"}) {
    const Outcome outcome = lockstep({"train", "transformer", option, "help"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find(option == "--precision" ? "half-bf16" : "interval"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::test
