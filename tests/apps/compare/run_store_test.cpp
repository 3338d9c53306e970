#include "apps/compare/run_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "tests/apps/program.h"
#include "tests/support/error_of.h"

namespace lockstep::apps {
namespace {

using test::error_of, test::slurp, test::spill, test::TempFolder;

RunRequest tiny() {
  return {.app = "transformer",
          .options = {{"--text", "synthetic"},
                      {"--layers", "1"},
                      {"--width", "8"},
                      {"--heads", "1"},
                      {"--context", "8"},
                      {"--batch", "2"},
                      {"--steps", "5"},
                      {"--val-tokens", "128"}}};
}
RunStore::Options options() {
  return {.jobs = 2, .talk = RunStore::Options::Talk::quiet, .program = LOCKSTEP_PROGRAM};
}

TEST(RunKeys, AreThoseOfTheConfigurationNotOfItsSpelling) {
  EXPECT_EQ(canonical(tiny().with("--lr", "0.001")), canonical(tiny()));
  EXPECT_EQ(canonical(tiny().with("--lr", "1e-2")), canonical(tiny().with("--lr", "0.01")));
  EXPECT_NE(canonical(tiny().with("--seed", 2)), canonical(tiny()));
  RunRequest alone = tiny();
  alone.company = Company::alone;
  EXPECT_NE(canonical(alone), canonical(tiny()));
  EXPECT_NE(error_of([] { canonical(tiny().with("--lr", "fast")); }).find("--lr"),
            std::string::npos);
  EXPECT_THROW(canonical(tiny().with("--out", "x")), UsageError);
  EXPECT_THROW(canonical({.app = "nothing"}), UsageError);
  for (const char* app : {"recommender", "vision"})
    EXPECT_EQ(canonical({.app = app, .options = {{"--steps", "7"}}}),
              canonical({.app = app, .options = {{"--steps", "07"}}}));
}

TEST(RunKeys, GoByTheContentOfFilesNotByTheirNames) {
  const TempFolder folder;
  spill(folder / "a", "to be or not to be");
  spill(folder / "b", "to be or not to be");
  spill(folder / "c", "that is the question");
  const auto of = [&](const char* name) { return canonical(tiny().with("--text", folder / name)); };
  EXPECT_EQ(of("a"), of("b"));
  EXPECT_NE(of("a"), of("c"));
}

TEST(RunRequests, AreCommandsToCopy) {
  const RunRequest request{.app = "transformer",
                           .options = {{"--text", "it's a file"}, {"--lr", "1e-3"}}};
  EXPECT_EQ(request.command(), "lockstep train transformer --lr 1e-3 --text 'it'\\''s a file'");
}

TEST(RunStores, MakeEqualRunsOnceAndKeepThem) {
  const TempFolder folder;
  double loss = 0;
  {
    RunStore store(folder / "out");
    EXPECT_EQ(store.ask(tiny()), store.ask(tiny().with("--lr", "0.001")));
    store.ask(tiny().with("--seed", 2));
    const RunStore::Done done = store.work(options());
    EXPECT_EQ(done.made, 2);
    EXPECT_EQ(done.kept, 0);
    EXPECT_TRUE(done.failed.empty());
    const RunResult& run = store.result(tiny());
    loss = run.figure("val_loss");
    EXPECT_TRUE(std::isfinite(loss));
    EXPECT_EQ(run.series("loss").step, (std::vector<double>{1, 2, 3, 4, 5}));
    EXPECT_EQ(run.series("val_loss").value, std::vector{loss});
    EXPECT_NE(store.result(tiny().with("--seed", 2)).figure("val_loss"), loss);
  }
  RunStore again(folder / "out");
  EXPECT_THROW(again.result(tiny()), UsageError);  // not asked for
  again.ask(tiny());
  EXPECT_EQ(again.work(options()).kept, 1);
  EXPECT_EQ(again.result(tiny()).figure("val_loss"), loss);
}

TEST(RunStores, MakeAgainWhatIsNotComplete) {
  const TempFolder folder;
  RunStore store(folder / "out");
  const std::string key = store.ask(tiny());
  const std::string result = store.folder(key) + "/" + kResultFile;
  EXPECT_EQ(store.work(options()).made, 1);
  const std::string bytes = slurp(result);

  std::filesystem::remove(result);  // its summary and its metrics are there
  EXPECT_EQ(store.work(options()).made, 1);
  spill(result, bytes.substr(0, bytes.size() / 2));
  EXPECT_EQ(store.work(options()).made, 1);
  const size_t steps = bytes.find("\\\"steps\\\":5");
  ASSERT_NE(steps, std::string::npos);
  std::string other = bytes;  // that of another configuration
  other[steps + 10] = '6';
  spill(result, other);
  EXPECT_EQ(store.work(options()).made, 1);
  EXPECT_EQ(store.work(options()).made, 0);
}

TEST(RunStores, TakeDivergenceForAResult) {
  const TempFolder folder;
  const RunRequest wild = tiny().with("--optimizer", "sgd").with("--lr", "1e30");
  RunStore store(folder / "out");
  store.ask(wild);
  EXPECT_EQ(store.work(options()).made, 1);
  const RunResult& run = store.result(wild);
  EXPECT_TRUE(run.diverged());
  EXPECT_EQ(run.exit_code, 5);
  EXPECT_NE(run.failure.find("diverged"), std::string::npos);
  EXPECT_TRUE(std::isnan(run.figure("val_loss")));
  EXPECT_EQ(store.work(options()).kept, 1);
}

TEST(RunStores, NameARunThatFailedAndTryItAgain) {
  const TempFolder folder;
  const RunRequest impossible = tiny().with("--heads", 3), fine = tiny();
  RunRequest slow = tiny().with("--steps", 100000000);
  slow.timeout_s = 0.3;
  for (const int64_t made : {1, 0}) {
    RunStore store(folder / "out");
    const std::string bad = store.ask(impossible), late = store.ask(slow);
    store.ask(fine);
    const RunStore::Done done = store.work(options());
    ASSERT_EQ(done.failed.size(), 2);
    EXPECT_EQ(done.failed.at(bad).rfind(impossible.command() + ": exit code 2: ", 0), 0)
        << done.failed.at(bad);
    EXPECT_NE(done.failed.at(late).find("not done after"), std::string::npos);
    EXPECT_EQ(done.made, made);
    const RunStore::Done again = store.work(options());  // of the same store: it knows
    EXPECT_EQ(again.failed, done.failed);
    EXPECT_EQ(again.kept, 1);
    EXPECT_THROW(store.result(impossible), UsageError);
    EXPECT_TRUE(std::isfinite(store.result(fine).figure("val_loss")));
  }
}

TEST(RunStores, MeasureExperimentsOnceForEachSetOfParameters) {
  const TempFolder folder;
  int measured = 0;
  const auto of = [&](int n) {
    return Experiment{.name = "square",
                      .parameters = {{"n", n}},
                      .measure = [&](const nlohmann::ordered_json& p) -> nlohmann::ordered_json {
                        ++measured;
                        const int value = p["n"];
                        check(value != 0, "nothing to square");
                        return {{"square", value * value}};
                      },
                      .company = Company::alone};
  };
  {
    RunStore store(folder / "out");
    store.ask(of(2));
    store.ask(of(3));
    const std::string nothing = store.ask(of(0));
    const RunStore::Done done = store.work(options());
    EXPECT_EQ(done.made, 2);
    EXPECT_EQ(done.failed.at(nothing), "experiment square {\"n\":0}: nothing to square");
    EXPECT_EQ(store.answer(of(3))["square"], 9);
  }
  RunStore again(folder / "out");
  again.ask(of(3));
  EXPECT_EQ(again.work(options()).kept, 1);
  EXPECT_EQ(again.answer(of(3))["square"], 9);
  EXPECT_EQ(measured, 3);
}

TEST(RunStores, BelongToOneComparisonAtATime) {
  const TempFolder folder;
  const RunStore store(folder / "out");
  EXPECT_NE(error_of<SystemError>([&] { RunStore(folder / "out"); }).find("another comparison"),
            std::string::npos);
}

TEST(RunResults, ReadWhatIsThereAndNameWhatIsNot) {
  const TempFolder folder;
  spill(folder / "result.json",
        R"({"key":"k","command":"c","config":"","exit_code":0,"failure":"","wall_s":1})");
  spill(folder / "summary.json", R"({"val_loss":2.5,"compression":{"ratio":null}})");
  spill(folder / "metrics.jsonl",
        "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":null}\n{\"step\":3,\"loss\":4}\n"
        "{\"step\":2,\"loss\":2.5,\"probe\":{\"zeros\":0.5}}\n{\"step\":3,\"lo");
  const RunResult run = read_result(folder.path());
  EXPECT_EQ(run.figure("val_loss"), 2.5);
  EXPECT_TRUE(std::isnan(run.figure("compression.ratio")));
  EXPECT_TRUE(std::isnan(run.figure("compression.ratio.more")));
  // It went back to step 1 and made step 2 again.
  EXPECT_EQ(run.series("loss").step, (std::vector<double>{1, 2}));
  EXPECT_EQ(run.series("loss").value, (std::vector<double>{3, 2.5}));
  EXPECT_EQ(run.series("probe.zeros").value, std::vector{0.5});
  spill(folder / "metrics.jsonl", "{\"step\":1}\nnonsense\n");
  EXPECT_NE(error_of<SystemError>([&] {
              read_result(folder.path());
            }).find("metrics.jsonl line 2: expected a JSON object, got 'nonsense'"),
            std::string::npos);
  std::filesystem::remove(folder / "summary.json");
  EXPECT_THROW(read_result(folder.path()), SystemError);
}

}  // namespace
}  // namespace lockstep::apps
