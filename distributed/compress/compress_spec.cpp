#include "distributed/compress/compress_spec.h"

#include "core/check.h"

namespace lockstep::distributed {

CompressSpec CompressSpec::parse(const std::string& text) {
  CompressSpec spec;
  const size_t plus = text.rfind("+ef");
  spec.code = text.substr(0, plus);
  check(text.empty() || !spec.code.empty(), "[compress] '{}'; expected a code before +ef", text);
  if (plus == std::string::npos) return spec;
  const std::string rest = text.substr(plus + 3);
  check(rest.empty() || rest == ":rescale",
        "[compress] '{}'; expected +ef or +ef:rescale at the end, got '+ef{}'", text, rest);
  spec.feedback = true;
  spec.rescale = !rest.empty();
  return spec;
}

std::unique_ptr<Compressor> make_compressor(const Spec& spec) {
  return Registry<Compressor>::instance().make(spec);
}

std::unique_ptr<Compressor> make_compressor(const CompressSpec& spec) {
  auto code = make_compressor(Spec(spec.code));
  check(code->momentum() == 0 || spec.feedback,
        "[compress] '{}': momentum correction keeps what was not sent; expected +ef behind it",
        spec.code);
  check(!spec.feedback || code->bounds_residuals(),
        "[compress] '{}': this code may lose more than it was given, and what is added to the next "
        "gradient would grow from step to step; expected no +ef behind it, or more bits",
        spec.code);
  return code;
}

std::string compress_help() {
  return Registry<Compressor>::instance().help() +
         "\n"
         "SPEC+ef         error feedback: what a code loses is added to the next gradient\n"
         "SPEC+ef:rescale the same where the learning rate changes: what is sent late moves the\n"
         "                parameters as far as it would have at once\n"
         "\n"
         "topk, threshold and sign without +ef lose for good what they leave out. What comes late\n"
         "wants plain SGD; Adam squares it. Strategies with codes of their own: --sync powersgd,\n"
         "--sync onebit_adam. Rows of embedding tables travel as they are.\n";
}

}  // namespace lockstep::distributed
