#include "apps/report/html/html_text.h"

#include <cstddef>

namespace lockstep::apps {
namespace {

// Bytes of the well-formed UTF-8 sequence that `text` begins with (Unicode 15, table 3-7); 0: none.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto in = [](unsigned b, unsigned low, unsigned high) { return low <= b && b <= high; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = in(lead, 0xC2, 0xDF)   ? 2
                        : in(lead, 0xE0, 0xEF) ? 3
                        : in(lead, 0xF0, 0xF4) ? 4
                                               : 0;
  // The second byte's range keeps overlong forms, surrogates and what lies above U+10FFFF out.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (length == 0 || !in(byte(1), low, high)) return 0;
  for (size_t i = 2; i < length; ++i)
    if (!in(byte(i), 0x80, 0xBF)) return 0;
  return length;
}

bool is_control(char c) {
  return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
}

std::string picture_of(char control) {  // U+2400 + c; U+2421 for DEL
  return std::string("\xE2\x90") + static_cast<char>(control == 0x7F ? 0xA1 : 0x80 + control);
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const char c = text[0];
    if (length == 0)
      out += "\xEF\xBF\xBD";
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else if (is_control(c))
      out += picture_of(c);
    else
      out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string script_json(const nlohmann::ordered_json& json) {
  const std::string ascii =
      json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  out.reserve(ascii.size());
  for (const char c : ascii) {  // these three stand in strings only
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  }
  return out;
}

}  // namespace lockstep::apps
