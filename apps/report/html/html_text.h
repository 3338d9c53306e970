#pragma once
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

/// Everything that others named or said enters a page through one of these two functions, so that
/// no name, error text or option can ever become markup.
namespace lockstep::apps {

/// Text for an element or a quoted attribute. Bytes that are not UTF-8 become U+FFFD, control
/// characters other than line break and tab their pictures (U+2400 and on).
std::string html_text(std::string_view text);

/// JSON for the inside of a script element, in ASCII: no byte sequence of it can end the element or
/// begin a comment, and it parses back to the same values.
std::string script_json(const nlohmann::ordered_json& json);

}  // namespace lockstep::apps
