#pragma once
#include <string>

namespace lockstep::apps {

/// The block of a document that a command writes: what stands between these two lines.
inline constexpr char kBlockBegin[] = "<!-- table: lockstep bench --against";
inline constexpr char kBlockEnd[] = "<!-- end of table -->";

/// `document` with `text` as the block's contents; UsageError naming `path` unless it has one
/// block.
std::string with_block(const std::string& document, const std::string& text,
                       const std::string& path);

}  // namespace lockstep::apps
