#include "data/text.h"

#include "core/check.h"
#include "core/file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace lockstep::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

[[noreturn]] void fail(std::string_view doing, const std::string& path, int reason) {
  throw SystemError(Fault::file, fmt::format("cannot {} {}: {}", doing, printable(path),
                                             std::generic_category().message(reason)));
}

}  // namespace

std::string read_text(const std::string& path, int64_t longest) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("read", path, EISDIR);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) fail("open", path, errno);
  std::string text;
  constexpr size_t kChunk = size_t{1} << 20;  // no question for the size: it may be a pipe
  for (size_t got = kChunk; got == kChunk;) {
    const size_t before = text.size();
    text.resize(before + kChunk);
    got = std::fread(text.data() + before, 1, kChunk, file.get());
    text.resize(before + got);
    if (static_cast<int64_t>(text.size()) > longest)
      throw SystemError(Fault::file,
                        fmt::format("{} is too large or has no end; expected at most {} bytes",
                                    printable(path), longest));
  }
  if (std::ferror(file.get())) fail("read", path, errno);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (text.empty())
    throw SystemError(Fault::file, fmt::format("{} is empty; expected text", printable(path)));
  return text;
}

std::vector<std::string_view> split_records(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<std::string_view> records;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    std::string_view record = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (newline != std::string_view::npos && record.ends_with('\r')) record.remove_suffix(1);
    records.push_back(record);
  }
  return records;
}

}  // namespace lockstep::data
