// The second lock on the rooms' order (the first: an arrow back does not link): reads the includes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "test_paths.h"

namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"core", {}},
    {"autograd", {"core"}},
    {"layers", {"core", "autograd"}},
    {"optim", {"core", "autograd", "layers"}},
    {"data", {"core"}},
    {"distributed", {"core", "autograd", "layers", "optim"}},
    {"apps", {"core", "autograd", "layers", "optim", "data", "distributed"}},
};

// The first folder of `#include "folder/…"`, or "".
std::string included_folder(const std::string& line) {
  const size_t hash = line.find_first_not_of(" \t");
  if (hash == std::string::npos || line[hash] != '#') return "";
  const size_t word = line.find("include", hash), quote = line.find('"', hash);
  if (word == std::string::npos || quote == std::string::npos) return "";
  const size_t slash = line.find('/', quote);
  return slash == std::string::npos ? "" : line.substr(quote + 1, slash - quote - 1);
}

TEST(Rooms, IncludeOnlyTheRoomsAboveThem) {
  int files = 0, includes = 0;
  for (const auto& [room, allowed] : kMayInclude) {
    for (const auto& entry :
         fs::recursive_directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / room)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp") continue;
      ++files;
      std::ifstream in(entry.path());
      int number = 0;
      for (std::string line; std::getline(in, line);) {
        ++number;
        const std::string used = included_folder(line);
        includes += kMayInclude.contains(used);
        EXPECT_TRUE(used == room || allowed.contains(used) || !kMayInclude.contains(used))
            << entry.path() << ":" << number << ": " << room << " may not include " << used;
      }
    }
  }
  EXPECT_GT(includes, 100);
  EXPECT_GT(files, 30);  // the test looked at the sources at all
}

}  // namespace
