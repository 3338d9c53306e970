#include "apps/report/export/csv.h"
#include "apps/report/json_text.h"
#include "core/check.h"
#include "tests/apps/report/made_run.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <locale>

namespace lockstep::apps {
namespace {

using test::make_run;
using test::slurp;
using test::TempFolder;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(Csv, IsALineForEachStepOfEachRunAndAColumnForEachScalar) {
  TempFolder folder;
  make_run(folder / "a", 1, [](StepRecord& record) {
    record.loss = NAN;
    record.more = {{"list", {1, 2}}, {"text", "t"}, {"sync", {{"late", 9007199254740993}}}};
  });
  make_run(folder / "b, \"2\"", 1, [](StepRecord& record) {
    record.step = 7;
    record.val_loss = 0.1;
  });
  write_csv(folder / "out.csv", read_runs({folder / "a", folder / "b, \"2\""}));
  EXPECT_EQ(
      lines_of(slurp(folder / "out.csv")),
      (std::vector<std::string>{"run,step,comm_s,exposed_comm_s,loss,lr,samples,scale,skipped,"
                                "sync.late,time_s,wire_bytes,val_loss",
                                "a,1,0.0,0.0,nan,0.001,8,1.0,0,9007199254740993,0.5,1000,",
                                "\"b, \"\"2\"\"\",7,0.0,0.0,3.0,0.001,8,1.0,0,,0.5,1000,0.1"}));
}

class CommaDecimals : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(KnownFaults, O51a_CsvNumbersSurviveLocalesAndARoundTrip) {
  TempFolder folder;
  make_run(folder / "a", 5, [](StepRecord& record) {
    const double losses[] = {0.1f, 1e-40f, 0.1, 5e-324, 1234567.25};
    record.loss = losses[record.step - 1];
    record.samples = (int64_t{1} << 53) + 1;
  });
  const auto runs = read_runs({folder / "a"});
  write_csv(folder / "plain.csv", runs);
  const std::locale before = std::locale::global(std::locale(std::locale(), new CommaDecimals));
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"})
    if (std::setlocale(LC_ALL, name) != nullptr) break;
  write_csv(folder / "local.csv", runs);
  std::setlocale(LC_ALL, "C");
  std::locale::global(before);
  const std::string plain = slurp(folder / "plain.csv");
  EXPECT_EQ(slurp(folder / "local.csv"), plain);
  for (const char* cell :
       {",0.10000000149011612,", ",0.1,", ",5e-324,", ",1234567.25,", ",9007199254740993,"})
    EXPECT_NE(plain.find(cell), std::string::npos) << cell << "\n" << plain;
}

TEST(Csv, AFileThatCannotBeWrittenIsAnErrorAndLeavesNothing) {
  TempFolder folder;
  make_run(folder / "a", 1);
  EXPECT_THROW(write_csv(folder / "no/such.csv", read_runs({folder / "a"})), SystemError);
  EXPECT_EQ(folder.entries(), 1);
}

}  // namespace
}  // namespace lockstep::apps
