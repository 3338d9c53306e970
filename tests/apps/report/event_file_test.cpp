#include "apps/report/export/event_file.h"
#include "apps/report/export/crc32c.h"
#include "apps/report/export/tensorboard.h"
#include "core/check.h"
#include "tests/apps/report/event_reader.h"
#include "tests/apps/report/made_run.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::apps {
namespace {

using test::make_run;
using test::read_events;
using test::ReadEvent;
using test::slurp;
using test::TempFolder;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    text += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return text;
}

std::string part(const std::string& folder, int number) {
  return slurp(fmt::format("{}/events.out.tfevents.{:010}.lockstep", folder, number));
}

TEST(KnownFaults, O51d_RecordsHaveMaskedCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5u);
  const std::string record = tf_record(std::string(24, 'x'));
  EXPECT_EQ(hex(record.substr(0, 12)),
            "1800000000000000"
            "a37f4b22");
  EXPECT_EQ(record.size(), 40u);
}

// Written by tensorboard 2.21's RecordWriter from the same events.
TEST(EventFile, HasTheBytesOfTensorBoardsOwnWriter) {
  TempFolder folder;
  EventFile file(folder / "events", 1.5);
  file.restart(100, 2.5);
  file.scalars(300, 1e9 + 0.25,
               {{"loss", 0.5f}, {"probe/überall", std::numeric_limits<float>::quiet_NaN()}});
  file.commit();
  EXPECT_EQ(
      hex(slurp(folder / "events")),
      "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c0f000000"
      "000000006d532b0909000000000000044010643a0208012ef89c943200000000000000241956ec0900002000"
      "65cdcd4110ac022a240a0b0a046c6f7373150000003f0a150a0e70726f62652fc3bc626572616c6c150000c0"
      "7f104877d0");
}

TEST(TensorBoard, EveryStepIsThereWithItsTimeAndItsValues) {
  TempFolder folder;
  make_run(folder / "a", 10, [](StepRecord& record) {
    if (record.step == 3) record.loss = NAN;
    record.more["probe"] = {{"overall", {{"wire", {{"zeros", 0.25}}}}},
                            {"parameters", {{"w", {{"zeros", 1}}}}}};
  });
  write_tensorboard(folder / "out", read_runs({folder / "a"}));
  const std::vector<ReadEvent> events = read_events(part(folder / "out/a", 1));
  ASSERT_EQ(events.size(), 11u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  const double start = 1767323045;  // 2026-01-02T03:04:05Z
  for (int64_t i = 1; i <= 10; ++i) {
    const ReadEvent& event = events[static_cast<size_t>(i)];
    EXPECT_EQ(event.step, i);
    EXPECT_EQ(event.wall_time, start + 0.5 * static_cast<double>(i));
    EXPECT_EQ(event.values.at("samples"), 8);
    EXPECT_EQ(event.values.at("skipped"), 0);
    EXPECT_EQ(event.values.at("probe/overall/wire/zeros"), 0.25f);
    EXPECT_EQ(event.values.contains("val_loss"), i % 5 == 0);
    EXPECT_EQ(event.values.contains("step"), false);
    if (i == 3)
      EXPECT_TRUE(std::isnan(event.values.at("loss")));
    else
      EXPECT_EQ(event.values.at("loss"), static_cast<float>(3.0 / static_cast<double>(i)));
  }
}

TEST(KnownFaults, O51d_ARestartIsANewFileThatAViewerDropsLaterStepsBy) {
  TempFolder folder;
  make_run(folder / "a", 201, [](StepRecord& record) {  // 0..150, then 100..149 again
    const bool again = record.step > 151;
    record.step = again ? record.step - 52 : record.step - 1;
    record.loss = again ? 2 : 1;
  });
  write_tensorboard(folder / "out", read_runs({folder / "a"}));
  const std::string first = part(folder / "out/a", 1), second = part(folder / "out/a", 2);
  EXPECT_EQ(part(folder / "out/a", 3), "");
  EXPECT_EQ(read_events(first).back().step, 150);
  const std::vector<ReadEvent> events = read_events(second);
  EXPECT_FALSE(events[0].version.empty());
  EXPECT_TRUE(events[1].restart);
  EXPECT_EQ(events[1].step, 100);
  for (size_t i = 2; i < events.size(); ++i) EXPECT_GE(events[i].step, 100);
  const auto loss = test::shown({first, second}, "loss");
  ASSERT_EQ(loss.size(), 150u);
  for (const auto& [step, value] : loss) EXPECT_EQ(value, step < 100 ? 1 : 2) << step;
}

TEST(TensorBoard, ExportingAgainReplacesTheOldFilesAndNoOthers) {
  TempFolder folder;
  make_run(folder / "a", 4, [](StepRecord& record) { record.step = 1 + (record.step - 1) % 2; });
  const auto runs = read_runs({folder / "a"});
  write_tensorboard(folder / "out", runs);
  EXPECT_NE(part(folder / "out/a", 2), "");
  test::spill(folder / "out/a/events.out.tfevents.9.mine", "x");
  make_run(folder / "a", 2);
  write_tensorboard(folder / "out", runs);
  EXPECT_EQ(read_events(part(folder / "out/a", 1)).size(), 3u);
  EXPECT_EQ(part(folder / "out/a", 2), "");
  EXPECT_EQ(slurp(folder / "out/a/events.out.tfevents.9.mine"), "x");
}

TEST(TensorBoard, OddNamesStayInsideTheFolder) {
  TempFolder folder;
  make_run(folder / "x/a\xff\n", 1);
  make_run(folder / "y/a\xff\n", 1);
  const auto runs =
      read_runs({folder / "x/a\xff\n", folder / "y/a\xff\n/", folder / "y/a\xff\n/../a\xff\n/."});
  EXPECT_EQ(runs[0].name, "a\\xff\\x0a");
  EXPECT_EQ(runs[1].name, "a\\xff\\x0a 2");
  EXPECT_EQ(runs[2].name, "a\\xff\\x0a 3");
  write_tensorboard(folder / "out", runs);
  for (const RunFiles& run : runs) EXPECT_NE(part(folder / "out/" + run.name, 1), "");
  test::spill(folder / "file", "");
  EXPECT_THROW(write_tensorboard(folder / "file", runs), SystemError);
}

}  // namespace
}  // namespace lockstep::apps
