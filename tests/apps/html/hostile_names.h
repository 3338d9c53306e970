#pragma once
#include <string>
#include <vector>

namespace lockstep::test {

/// Names that have become markup in other people's reports.
inline std::vector<std::string> hostile_names() {
  return {"</script><svg onload=alert(7)>",
          "<!--<script>",
          "\" onmouseover=\"x",
          "' onmouseover='x",
          "&lt;",
          "]]>",
          "$&",
          "{{x}}",
          "${alert(7)}",
          "url(#charts)",
          "line\u2028separator",
          "back\\slash\\u003c",
          std::string("control\x01\x1b[31m\x00\x7f", 15),
          "invalid \xff\xc0\xaf\xed\xa0\x80",
          "</style><base href=//x>"};
}

}  // namespace lockstep::test
