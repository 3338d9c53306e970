#include "apps/bench/against/block.h"

#include "core/check.h"
#include "core/file.h"

namespace lockstep::apps {

std::string with_block(const std::string& document, const std::string& text,
                       const std::string& path) {
  const size_t begin = document.find(kBlockBegin);
  const size_t line_end = document.find('\n', begin);
  const size_t end = document.find(kBlockEnd, line_end);
  check(begin != std::string::npos && line_end != std::string::npos && end != std::string::npos &&
            document.find(kBlockBegin, line_end) == std::string::npos,
        "--update {}: expected one line beginning with '{}' and later one '{}'", printable(path),
        kBlockBegin, kBlockEnd);
  return document.substr(0, line_end + 1) + "\n" + text + "\n" + document.substr(end);
}

}  // namespace lockstep::apps
