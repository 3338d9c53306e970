#pragma once
#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "apps/report/html/html_text.h"

namespace lockstep::apps {

/// Writes HTML whose elements nest and whose texts are escaped, by construction: names of elements
/// and attributes are literals of ours, everything else is text.
class HtmlWriter {
 public:
  using Attributes = std::initializer_list<std::pair<const char*, std::string_view>>;

  /// An element around what `inside` writes.
  template <std::invocable Inside>
  void element(const char* tag, Attributes attributes, Inside&& inside) {
    begin(tag, attributes);
    inside();
    out_.append("</").append(tag).append(">");
  }
  /// An element that holds text.
  void element(const char* tag, Attributes attributes, std::string_view text) {
    element(tag, attributes, [&] { this->text(text); });
  }
  /// One without an end: meta, link, input.
  void begin(const char* tag, Attributes attributes) {
    out_.append("<").append(tag);
    for (const auto& [name, value] : attributes)
      out_.append(" ").append(name).append("=\"").append(html_text(value)).append("\"");
    out_ += '>';
  }
  void text(std::string_view text) { out_ += html_text(text); }
  /// Our own files and script_json() only: as it is.
  void verbatim(std::string_view markup) { out_ += markup; }

  const std::string& written() const { return out_; }

 private:
  std::string out_;
};

}  // namespace lockstep::apps
