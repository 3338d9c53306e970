#include "apps/report/machine.h"
#include "tests/apps/program.h"
#include "tests/apps/run_output.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace lockstep::test {
namespace {

using nlohmann::json;

// Clicks whose label is that of their first category: those of 0 … 9 below five are clicked.
std::string click_log(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    const int category = i * 7 % 10;
    text += category < 5 ? "1" : "0";
    for (int dense = 0; dense < 13; ++dense) text += "\t" + std::to_string(i * dense % 11);
    text += "\t" + std::to_string(category);
    for (int other = 1; other < 26; ++other) text += "\t" + std::to_string(i * other % 97);
    text += "\n";
  }
  return text;
}

class RecommenderData : public testing::Test {
 protected:
  Outcome train(const std::string& more) {
    std::vector<std::string> words = words_of(
        "train recommender --dim 4 --bottom 8 --top 16 --batch 32 --threads 1 --quiet --overwrite "
        "--out " +
        (folder_ / "r"));
    for (const std::string& word : words_of(more)) {
      const auto same = std::find(words.begin(), words.end(), word);
      if (word.rfind("--", 0) == 0 && same != words.end())
        words.erase(same, same + 2);  // `more` wins
      words.push_back(word);
    }
    return lockstep(words);
  }
  void expect(const std::string& options, int code, const std::string& text) {
    const Outcome outcome = train(options);
    EXPECT_EQ(outcome.code, code) << options << "\n" << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "r"));
  }
  TempFolder folder_;
};

TEST_F(RecommenderData, ClickLogsAreLearnt) {
  spill(folder_ / "log", click_log(1000));
  const Outcome outcome =
      train("--data criteo:" + (folder_ / "log") + " --hash-rows 100 --steps 200 --ranks 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json summary = summary_of(folder_ / "r");
  EXPECT_GT(summary["auc"].get<double>(), 0.99);
  EXPECT_FALSE(summary.contains("best_auc"));
  EXPECT_FALSE(summary.contains("bad_rows"));
}

TEST_F(RecommenderData, MalformedRowsStopOrAreCountedAndNamed) {
  std::string log = click_log(400);
  log.insert(log.find('\n', log.size() / 4) + 1, "1\tonly three\tcolumns\n2\n");
  spill(folder_ / "log", log);
  const std::string data = "--data criteo:" + (folder_ / "log") + " --hash-rows 100 --steps 20 ";
  const Outcome stopped = train(data);
  EXPECT_EQ(stopped.code, 3);
  EXPECT_NE(stopped.err.find("log, line 102: expected 40 columns, got 3"), std::string::npos)
      << stopped.err;
  EXPECT_NE(stopped.err.find("--bad-rows skip leaves"), std::string::npos) << stopped.err;
  EXPECT_EQ(stopped.error_lines(), 1);
  const Outcome outcome = train(data + "--bad-rows skip --ranks 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json bad = summary_of(folder_ / "r")["bad_rows"];
  EXPECT_EQ(bad["count"], 2);  // in every epoch
  EXPECT_EQ(bad["first"].size(), 2u);
  EXPECT_NE(outcome.out.find("malformed rows left out: "), std::string::npos);
  EXPECT_NE(outcome.out.find(bad["first"][0].get<std::string>()), std::string::npos);
}

// Steps without a single sample change nothing and end nothing.
TEST_F(RecommenderData, StepsOfMalformedRowsOnlyAreLeftOut) {
  std::string log = click_log(200);
  const size_t at = log.find('\n', log.size() / 2) + 1;
  for (int i = 0; i < 40; ++i) log.insert(at, "malformed\n");
  spill(folder_ / "log", log);
  for (const char* sync : {"allreduce --ranks 2", "async --ranks 2", "hybrid"}) {
    const Outcome outcome =
        train("--data criteo:" + (folder_ / "log") +
              " --hash-rows 100 --batch 4 --steps 60 --bad-rows skip --sync " + std::string(sync));
    ASSERT_EQ(outcome.code, 0) << sync << outcome.err;
    const auto steps = lines_of(folder_ / "r/metrics.jsonl");
    ASSERT_EQ(steps.size(), 60u) << sync;
    int empty = 0;
    for (const json& step : steps) {
      empty += step["samples"] == 0 ? 1 : 0;
      EXPECT_EQ(step["skipped"], step["samples"] == 0) << sync << step;
      EXPECT_TRUE(step["loss"].is_number());
    }
    EXPECT_GE(empty, 4) << sync;
  }
}

// Every user takes items of one half only.
TEST_F(RecommenderData, InteractionsAreLearnt) {
  std::string pairs;
  for (int user = 0; user < 40; ++user)
    for (int item = 0; item < 20; ++item)
      pairs += "u" + std::to_string(user) + "\ti" + std::to_string(2 * item + user % 2) + "\n";
  spill(folder_ / "pairs", pairs);
  const Outcome outcome = train("--data interactions:" + (folder_ / "pairs") +
                                " --negatives 2 --steps 400 --table-lr 0.1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(summary_of(folder_ / "r")["auc"].get<double>(), 0.9);
}

TEST_F(RecommenderData, WithoutHeldOutSamplesNothingIsEvaluated) {
  spill(folder_ / "log", click_log(100));
  const Outcome outcome =
      train("--data criteo:" + (folder_ / "log") + " --val-fraction 0 --steps 9");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("held out: nothing was evaluated"), std::string::npos);
  EXPECT_TRUE(summary_of(folder_ / "r")["val_loss"].is_null());
  EXPECT_FALSE(summary_of(folder_ / "r").contains("auc"));
}

TEST_F(RecommenderData, MistakesAreOneLineAndNothingIsWritten) {
  spill(folder_ / "log", click_log(100));
  spill(folder_ / "empty", "");
  spill(folder_ / "text", "call me Ishmael\n");
  const std::string log = "--data criteo:" + (folder_ / "log");
  expect("--data crteo:x", 2, "did you mean criteo?");
  expect("--data criteo", 2, "--data: expected criteo:FILE, got 'criteo'");
  expect("--data criteo:" + (folder_ / "none"), 3, "No such file");
  expect("--data criteo:" + (folder_ / "empty"), 3, "empty");
  expect("--data criteo:" + (folder_ / "text"), 3, "text");
  expect("--data interactions:" + (folder_ / "none"), 3, "No such file");
  expect("--data synthetic:zip=1", 2, "expected zipf");
  expect("--data synthetic:dense=many", 2, "dense");
  expect("--data synthetic:zipf=5", 2, "zipf; expected");
  expect("--data synthetic:row_spread=-1", 2, "row_spread; expected");
  expect("--data synthetic:largest_bag=257", 2, "largest_bag; expected");
  // Options that the data leaves unheeded.
  expect(log + " --rows 5", 2, "--rows: expected --data synthetic beside it, got criteo:");
  expect(log + " --tables 5", 2, "--tables: expected --data synthetic beside it");
  expect(log + " --negatives 5", 2, "--negatives: expected --data interactions beside it");
  for (const char* option : {"--hash-rows 9", "--bad-rows skip", "--val-fraction 0.2"})
    expect(option, 2, "expected --data criteo or interactions beside it, got synthetic");
  expect(log + " --batch 60 --ranks 2", 2, "= 120 samples a step; expected at most the 90");
  expect("--bag weighted", 2, "--bag weighted: expected data with weights");
  expect(log + " --uneven stop --bad-rows skip", 2, "--uneven stop: under --bad-rows skip");
  expect("--bottom 8,0", 2, "--bottom: expected integers");
  expect("--sync gossip", 2,
         "--sync gossip: this strategy has no rule for embedding tables; expected allreduce, ");
  expect("--sync async:bound=0 --clip 1", 2, "--clip: under --sync async:bound=0 ");
  expect("--sync alreduce", 2, "did you mean allreduce?");
  expect("--table-optimizer adagrd", 2, "--table-optimizer: expected adagrad, lazy_adam");
  expect("--table-optimizer adagrad:eps=x", 2, "eps");
  expect("--teach reduce-running", 2, "--teach reduce-running");
  expect("--tables 26 --rows 2000000000", 4,
         "26 tables with 52000000000 rows x 4 x 4 B = 832 GB, state of rowwise_adagrad 208 GB");
  expect("--tables 26 --rows 2000000000 --ranks 2", 4, "adagrad 208 GB, on each of 2 ranks; ");
  expect("--tables 26 --rows 2000000000 --ranks 2 --sync hybrid", 4,
         "state of rowwise_adagrad 208 GB, counts of updates 208 GB; ");
  expect("--tables 3 --rows 1000000000 --dim 1 --table-optimizer sgd",
         apps::memory_bytes() < 12e9 ? 4 : 2, "3 tables with 3000000000 rows ");
  expect("--bottom 1000000,1000000", 4, "out of memory: MLPs with 1e+12 parameters");
  expect("--tables 4096 --rows 1 --ranks 100", 4, "out of memory: MLPs");
}

TEST_F(RecommenderData, TheCriteoSampleTrains) {
  std::filesystem::path sample;
  for (std::filesystem::path at = LOCKSTEP_SOURCE_DIR; at != at.root_path(); at = at.parent_path())
    if (std::filesystem::exists(at / "shared/data/criteo_sample.csv"))
      sample = at / "shared/data/criteo_sample.csv";
  if (sample.empty()) GTEST_SKIP() << "no shared/data/criteo_sample.csv beside the repository";
  const Outcome outcome =
      train("--data criteo:" + sample.string() + " --hash-rows 1000 --steps 100 --ranks 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json summary = summary_of(folder_ / "r");
  EXPECT_LT(summary["final_loss"].get<double>(), 0.3);  // 180 samples are soon known by heart
  EXPECT_TRUE(summary["auc"].is_number());
}

}  // namespace
}  // namespace lockstep::test
