#include "core/file.h"

#include "core/check.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

namespace lockstep {
namespace {

using test::slurp;
using test::spill;
using test::TempFolder;

std::string fault_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const SystemError& e) {
    EXPECT_EQ(e.fault(), Fault::file);
    return e.what();
  }
  return "no error";
}

TEST(AtomicFile, ReplacesTheOldContentsOnlyOnCommit) {
  TempFolder folder;
  spill(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new");
    EXPECT_EQ(slurp(folder / "a"), "old");
    EXPECT_EQ(folder.entries(), 2);
    file.commit();
  }
  EXPECT_EQ(slurp(folder / "a"), "new");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  TempFolder folder;
  { AtomicFile(folder / "a").write("half"); }
  EXPECT_EQ(folder.entries(), 0);
}

TEST(AtomicFile, TakesNamesAsLongAsTheFileSystemDoes) {
  TempFolder folder;
  const std::string name(255, 'n');
  AtomicFile file(folder / name);
  file.write("x");
  file.commit();
  EXPECT_EQ(slurp(folder / name), "x");
}

TEST(AtomicFile, AFullDiskLeavesTheOldFileAndNoTemporary) {
  TempFolder folder;
  spill(folder / "a", "old");
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit small { 1000, before.rlim_max };
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = fault_of([&] {
    AtomicFile file(folder / "a");
    for (int i = 0; i < 100; ++i) file.write(std::string(100, 'x'));
    file.commit();
  });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error, "cannot write " + (folder / "a") + ": File too large");
  EXPECT_EQ(slurp(folder / "a"), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(File, ErrorsNameThePathAndTheReason) {
  TempFolder folder;
  EXPECT_EQ(fault_of([&] { File(folder / "none", File::Mode::read); }),
            "cannot open " + (folder / "none") + ": No such file or directory");
  EXPECT_EQ(fault_of([&] { File(folder.path(), File::Mode::read); }),
            "cannot read " + folder.path() + ": Is a directory");
  EXPECT_EQ(fault_of([&] { AtomicFile(folder / "none/a"); }),
            "cannot create " + (folder / "none/a") + ": No such file or directory");
  EXPECT_EQ(fault_of([&] { File("/dev/full", File::Mode::replace).write("x"); }),
            "cannot write /dev/full: No space left on device");
  EXPECT_NE(
      fault_of([&] { File(std::string(5000, 'p'), File::Mode::read); }).find("File name too long"),
      std::string::npos);
}

TEST(File, PipesAndDevicesAreRefusedWithoutWaiting) {
  TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder / "pipe", std::string("/dev/zero")})
    EXPECT_NE(fault_of([&] { read_file(path, 100); }).find("expected a regular file"),
              std::string::npos);
}

TEST(File, ShortFilesAreAnErrorNotGarbage) {
  TempFolder folder;
  spill(folder / "a", "1234");
  char buffer[8];
  EXPECT_NE(fault_of([&] {
              File(folder / "a", File::Mode::read).read_at(0, buffer, 8);
            }).find("ends early"),
            std::string::npos);
}

TEST(Printable, EscapesWhatATerminalShouldNotSeeAndShortensTheRest) {
  EXPECT_EQ(printable("a\nb\x1b\xff"), "a\\x0ab\\x1b\\xff");
  EXPECT_EQ(printable("naïve"), "naïve");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate is not UTF-8
  EXPECT_EQ(printable(std::string(300, 'x'), 10), "xxxxx…xxxxx");
}

}  // namespace
}  // namespace lockstep
