#pragma once
#include <nlohmann/json.hpp>

#include <string>

namespace lockstep::apps {

/// JSON as we write it, the same bytes under every locale: numbers read back as the same number,
/// NaN and infinity are null, bytes of a name that are not UTF-8 become U+FFFD. One line, or
/// indented for people.
enum class Layout { line, indented };
inline std::string json_text(const nlohmann::ordered_json& json, Layout layout) {
  return json.dump(layout == Layout::line ? -1 : 2, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace lockstep::apps
