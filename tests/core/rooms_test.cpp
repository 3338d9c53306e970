// The second lock on the rooms' order (the first: an arrow back does not link): reads the includes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

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

TEST(Rooms, IncludeOnlyTheRoomsAboveThem) {
  const std::regex include("^\\s*#\\s*include\\s*\"([a-z_]+)/[^\"]*\"");
  int files = 0;
  for (const auto& [room, allowed] : kMayInclude) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / room)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp") continue;
      ++files;
      std::ifstream in(entry.path());
      std::smatch match;
      int number = 0;
      for (std::string line; std::getline(in, line);) {
        ++number;
        if (!std::regex_search(line, match, include)) continue;
        const std::string used = match[1];
        EXPECT_TRUE(used == room || allowed.contains(used) || !kMayInclude.contains(used))
            << entry.path() << ":" << number << ": " << room << " may not include " << used;
      }
    }
  }
  EXPECT_GT(files, 30);  // the test looked at the sources at all
}

}  // namespace
