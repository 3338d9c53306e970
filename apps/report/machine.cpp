#include "apps/report/machine.h"

#include "apps/cli/parse.h"
#include "core/kernels/cpu/isa.h"
#include "core/parallel.h"
#include "version.h"

#include <CLI/Version.hpp>
#include <dnnl.hpp>
#include <fmt/core.h>

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

// The value of a line "KEY<blanks>: VALUE" of a file under /proc.
std::string field(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

}  // namespace

int64_t memory_bytes() {
  int64_t bytes = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  std::string text;
  if (limit >> text)
    if (const auto value = parse_integer(text); value && *value > 0)
      bytes = std::min(bytes, *value);
  return bytes;
}

int64_t peak_memory_bytes() {
  const std::string text = field("/proc/self/status", "VmHWM:");  // "123456 kB"
  const auto kib = parse_integer(text.substr(0, text.find(' ')));
  return kib ? *kib * 1024 : 0;
}

ordered_json machine() {
  struct utsname names {};
  ::uname(&names);
  std::string processor = field("/proc/cpuinfo", "model name");
  return {{"host", names.nodename},
          {"system", fmt::format("{} {} {}", names.sysname, names.release, names.machine)},
          {"processor", processor.empty() ? names.machine : processor},
          {"cores", available_cores()},
          {"memory_bytes", memory_bytes()},
          {"isa", cpu::name_of(cpu::isa())}};
}

ordered_json versions() {
  const dnnl_version_t* dnnl = dnnl_version();
  ordered_json libraries{
      {"onednn", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
      {"fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                    NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
      {"cli11", CLI11_VERSION}};
  return {{"lockstep", kVersion},
          {"compiler", kCompiler},
          {"build",
           std::string(kBuildType) + (kSanitizers[0] ? std::string(" with ") + kSanitizers : "")},
          {"libraries", libraries}};
}

}  // namespace lockstep::apps
