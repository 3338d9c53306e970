#include "apps/report/run_directory.h"

#include "apps/cli/option_table.h"
#include "apps/cli/parse.h"
#include "apps/report/json_text.h"
#include "apps/report/run_files.h"
#include "core/check.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <clocale>
#include <cmath>
#include <csignal>
#include <cstring>
#include <locale>

namespace lockstep::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using test::slurp;
using test::TempFolder;
using Existing = RunDirectory::Existing;

StepRecord example_record() {
  return {.step = 1234567,
          .time_s = 0.5,
          .loss = 1234567.25,
          .lr = 1e-3,
          .samples = 12345,
          .wire_bytes = 1 << 30,
          .val_loss = 0.1};
}

class CommaDecimals : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

std::string written(const TempFolder& folder, const std::string& name) {
  RunDirectory run(folder / name, Existing::refuse);
  run.write_step(example_record());
  run.write_json(kSummaryFile, {{"a", 0.5}, {"b", 1234567.25}, {"c", 1234567}});
  run.keep();
  return slurp(run.file(kMetricsFile)) + slurp(run.file(kSummaryFile));
}

TEST(KnownFaults, O51a_LocaleChangesNeitherOutputNorOptions) {
  TempFolder folder;
  const std::string plain = written(folder, "plain");
  EXPECT_NE(plain.find("\"time_s\":0.5,\"loss\":1234567.25"), std::string::npos) << plain;

  const std::locale before = std::locale::global(std::locale(std::locale(), new CommaDecimals));
  std::string c_locale;  // where the machine has one of these, the C library's locale too
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"})
    if (c_locale.empty() && std::setlocale(LC_ALL, name) != nullptr) c_locale = name;
  const std::string local = written(folder, "local");
  double lr = 0;
  OptionTable table;
  table.number("--lr", lr, {0, 10, ""}, "");
  table.parse({"--lr", "1.5"});
  EXPECT_EQ(table.values().dump(), R"({"lr":1.5})");
  EXPECT_EQ(number_text(1234567.25), "1234567.25");
  std::setlocale(LC_ALL, "C");
  std::locale::global(before);

  EXPECT_EQ(local, plain);
  EXPECT_EQ(lr, 1.5);
}

TEST(KnownFaults, O51a_NumbersSurviveARoundTrip) {
  const ordered_json out{
      {"f", 0.1f}, {"tiny", 1e-40f}, {"d", 0.1}, {"least", 5e-324}, {"i", (int64_t{1} << 53) + 1}};
  const json back = json::parse(json_text(out, Layout::line));
  EXPECT_EQ(back["f"].get<float>(), 0.1f);
  EXPECT_EQ(back["tiny"].get<float>(), 1e-40f);
  EXPECT_EQ(back["d"].get<double>(), 0.1);
  EXPECT_EQ(back["least"].get<double>(), 5e-324);
  EXPECT_EQ(back["i"].get<int64_t>(), 9007199254740993);
}

TEST(KnownFaults, O51b_ValuesThatAreNotFiniteAreNull) {
  TempFolder folder;
  RunDirectory run(folder / "r", Existing::refuse);
  int64_t step = 0;
  for (const double loss : std::vector<double>{NAN, INFINITY, -INFINITY, 1}) {
    StepRecord record = example_record();
    record.step = ++step;
    record.loss = loss;
    run.write_step(record);
  }
  const std::string text = slurp(run.file(kMetricsFile));
  int64_t lines = 0;
  for (size_t at = 0; at < text.size(); ++lines) {
    const size_t end = text.find('\n', at);
    const json line = json::parse(text.substr(at, end - at));  // a strict parser: throws on NaN
    EXPECT_EQ(line["step"], lines + 1);
    EXPECT_EQ(line["loss"].is_null(), lines < 3);
    at = end + 1;
  }
  EXPECT_EQ(lines, 4);
}

TEST(KnownFaults, O51c_OddNamesAreOpenedAsTheyAreAndJsonStaysUtf8) {
  TempFolder folder;
  for (const std::string& name :
       {std::string("a\xff b"), std::string("two\nlines"), std::string(255, 'n')}) {
    RunDirectory run(folder / name, Existing::refuse);
    run.write_json(kRunFile, {{"out", folder / name}});
    EXPECT_EQ(::access((folder / name + "/run.json").c_str(), F_OK), 0);
    EXPECT_NO_THROW(json::parse(slurp(run.file(kRunFile))));
  }
  for (const std::string& path :
       {folder / std::string(256, 'n'), folder / std::string(5000, 'p')}) {
    try {
      RunDirectory run(path, Existing::refuse);
      FAIL();
    } catch (const SystemError& e) {
      EXPECT_EQ(e.fault(), Fault::file);
      EXPECT_NE(std::string(e.what()).find("File name too long"), std::string::npos);
      EXPECT_LT(std::strlen(e.what()), 300u);
    }
  }
}

TEST(RunDirectory, KeepsItsHandsOffOtherPeoplesFiles) {
  TempFolder folder;
  test::spill(folder / "mine.txt", "x");
  EXPECT_THROW(RunDirectory(folder.path(), Existing::refuse), UsageError);
  {
    RunDirectory run(folder.path(), Existing::overwrite);
    run.write_json(kRunFile, {});
  }
  EXPECT_EQ(folder.entries(), 1);  // mine.txt
  test::spill(folder / "file", "x");
  EXPECT_THROW(RunDirectory(folder / "file", Existing::refuse), SystemError);
  EXPECT_THROW(RunDirectory(folder / "file/below", Existing::refuse), SystemError);
}

TEST(RunDirectory, OverwritingRemovesWhatTheOldRunLeft) {
  TempFolder folder;
  for (const char* name : {kRunFile, kMetricsFile, kSummaryFile, kModelFile, kTraceFile})
    test::spill(folder / name, "old");
  RunDirectory run(folder.path(), Existing::overwrite);
  EXPECT_EQ(folder.entries(), 0);
}

TEST(RunDirectory, WithoutKeepNothingStays) {
  TempFolder folder;
  {
    RunDirectory run(folder / "a/b", Existing::refuse);
    run.write_json(kRunFile, {{"x", 1}});
    run.write_step(example_record());
    EXPECT_EQ(::access((folder / "a/b/metrics.jsonl").c_str(), F_OK), 0);
  }
  EXPECT_NE(::access((folder / "a/b").c_str(), F_OK), 0);
}

TEST(RunDirectory, AFullDiskLeavesWholeLinesOnly) {
  TempFolder folder;
  RunDirectory run(folder / "r", Existing::refuse);
  run.write_step(example_record());
  const std::string one = slurp(run.file(kMetricsFile));
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit small { one.size() + 10, before.rlim_max };
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(run.write_step(example_record()), SystemError);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(slurp(run.file(kMetricsFile)), one);
  run.write_step(example_record());  // and goes on where the last line ended
  EXPECT_EQ(slurp(run.file(kMetricsFile)), one + one);
}

TEST(RunFiles, ReadsBackWhatWasWrittenAndNamesBadLines) {
  TempFolder folder;
  RunDirectory run(folder / "r", Existing::refuse);
  run.write_json(kRunFile, {{"config", {{"ranks", 2}}}});
  run.write_json(kSummaryFile, {{"val_loss", nullptr}, {"tokens_per_s", 5.0}});
  run.write_step(example_record());
  const RunFiles files = read_run(folder / "r/");
  EXPECT_EQ(files.name, "r");
  EXPECT_EQ(files.loss, std::vector<double>{1234567.25});
  EXPECT_TRUE(std::isnan(number_in(files.summary, "val_loss")));
  EXPECT_EQ(number_in(files.summary, "tokens_per_s"), 5);

  test::spill(run.file(kMetricsFile), "{}\n{\"loss\": nan}\n");
  try {
    read_run(folder / "r");
    FAIL();
  } catch (const SystemError& e) {
    EXPECT_NE(std::string(e.what()).find("metrics.jsonl line 2"), std::string::npos) << e.what();
  }
}

TEST(RunDirectory, TwoRunsCannotWriteIntoOne) {
  TempFolder folder;
  RunDirectory first(folder / "r", Existing::refuse);
  first.write_step(example_record());
  const std::string before = slurp(first.file(kMetricsFile));
  for (const Existing existing : {Existing::refuse, Existing::overwrite})
    EXPECT_ANY_THROW(RunDirectory(folder / "r", existing));
  EXPECT_EQ(slurp(first.file(kMetricsFile)), before);
}

TEST(RunFiles, DeepJsonIsAnErrorNotAnOverflow) {
  TempFolder folder;
  const int depth = 300'000;
  test::spill(folder / kRunFile,
              "{\"config\":" + std::string(depth, '[') + std::string(depth, ']') + "}");
  EXPECT_THROW(read_run(folder.path()), SystemError);
}

}  // namespace
}  // namespace lockstep::apps
