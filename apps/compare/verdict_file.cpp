#include "apps/compare/verdict_file.h"

#include "apps/compare/verdict_text.h"
#include "core/check.h"
#include "core/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace lockstep::apps {
namespace {

using nlohmann::json, nlohmann::ordered_json;

ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json interval_json(const std::optional<Interval>& interval) {
  if (!interval) return nullptr;
  return {number(interval->low), number(interval->high)};
}

ordered_json judgement_json(const Judgement& j) {
  return {
      {"finding", name_of(j.finding)}, {"provenance", name_of(j.provenance)}, {"reason", j.reason}};
}

// Walks an object of a file that somebody else may have written, and remembers where it is.
class Reader {
 public:
  Reader(const json& value, std::string where) : value_(value), where_(std::move(where)) {}

  /// Exactly these keys.
  void expect(const std::set<std::string>& keys) const {
    if (!value_.is_object()) fail("an object");
    for (const auto& item : value_.items())
      if (!keys.contains(item.key()))
        throw error(fmt::format("unknown '{}'", printable(item.key())));
    for (const std::string& key : keys)
      if (!value_.contains(key)) throw error(fmt::format("missing '{}'", key));
  }
  Reader at(const std::string& key) const { return {value_.at(key), where_ + "." + key}; }
  std::vector<Reader> items() const {
    if (!value_.is_array()) fail("a list");
    std::vector<Reader> list;
    for (size_t i = 0; i < value_.size(); ++i)
      list.emplace_back(value_[i], fmt::format("{}[{}]", where_, i));
    return list;
  }
  std::string text() const {
    if (!value_.is_string()) fail("a text");
    return value_.get<std::string>();
  }
  int64_t integer() const {
    if (!value_.is_number_integer()) fail("a whole number");
    return value_.get<int64_t>();
  }
  /// null is NaN.
  double number() const {
    if (is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!value_.is_number()) fail("a number or null");
    return value_.get<double>();
  }
  bool is_null() const { return value_.is_null(); }
  ordered_json object() const {
    if (!value_.is_object()) fail("an object");
    return value_;
  }
  [[noreturn]] void fail(std::string_view expected) const {
    throw error(fmt::format("expected {}, got '{}'", expected, printable(value_.dump(), 60)));
  }

 private:
  SystemError error(const std::string& what) const {
    return {Fault::file, fmt::format("{}: {}", where_, what)};
  }
  const json& value_;
  std::string where_;
};

Judgement read_judgement(const Reader& r) {
  r.expect({"finding", "provenance", "reason"});
  const auto finding = finding_named(r.at("finding").text());
  const auto provenance = provenance_named(r.at("provenance").text());
  if (!finding) r.at("finding").fail("a finding");
  if (!provenance) r.at("provenance").fail("a provenance");
  return {*finding, *provenance, r.at("reason").text()};
}

Figure read_figure(const Reader& r) {
  r.expect({"name", "unit", "value", "interval", "samples", "spread"});
  Figure figure{r.at("name").text(), r.at("unit").text(), r.at("value").number()};
  if (!r.at("interval").is_null()) {
    const std::vector<Reader> ends = r.at("interval").items();
    if (ends.size() != 2) r.at("interval").fail("two ends");
    figure.interval = Interval{ends[0].number(), ends[1].number()};
  }
  figure.samples = r.at("samples").integer();
  if (!r.at("spread").is_null()) figure.spread = r.at("spread").number();
  return figure;
}

ClaimRecord read_claim(const Reader& r) {
  r.expect({"id", "direction", "size", "figures", "runs"});
  ClaimRecord claim{r.at("id").text(), {read_judgement(r.at("direction")), {}}, {}, {}};
  if (!r.at("size").is_null()) claim.verdict.size = read_judgement(r.at("size"));
  for (const Reader& figure : r.at("figures").items()) claim.figures.push_back(read_figure(figure));
  for (const Reader& run : r.at("runs").items()) claim.runs.push_back(run.text());
  return claim;
}

}  // namespace

ordered_json to_json(const VerdictFile& file) {
  ordered_json claims = ordered_json::array();
  for (const ClaimRecord& claim : file.claims) {
    ordered_json figures = ordered_json::array();
    for (const Figure& f : claim.figures)
      figures.push_back({{"name", f.name},
                         {"unit", f.unit},
                         {"value", number(f.value)},
                         {"interval", interval_json(f.interval)},
                         {"samples", f.samples},
                         {"spread", f.spread ? number(*f.spread) : ordered_json(nullptr)}});
    const auto& size = claim.verdict.size;
    claims.push_back({{"id", claim.id},
                      {"direction", judgement_json(claim.verdict.direction)},
                      {"size", size ? judgement_json(*size) : ordered_json(nullptr)},
                      {"figures", figures},
                      {"runs", claim.runs}});
  }
  return {{"schema", VerdictFile::kSchema},
          {"version", file.version},
          {"date", file.date},
          {"command", file.command},
          {"isa", file.isa},
          {"extent", file.extent},
          {"text", file.text},
          {"machine", file.machine},
          {"versions", file.versions},
          {"claims", claims}};
}

VerdictFile verdicts_from(const std::string& text, const std::string& name) {
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Reader r(root, printable(name));
  if (!root.is_object() || !root.contains("schema")) r.fail("verdicts of `compare`");
  if (const int64_t schema = r.at("schema").integer(); schema != VerdictFile::kSchema)
    throw SystemError(Fault::file, fmt::format("{}: expected schema {}, got {}", printable(name),
                                               VerdictFile::kSchema, schema));
  r.expect({"schema", "version", "date", "command", "isa", "extent", "text", "machine", "versions",
            "claims"});
  VerdictFile file{.version = r.at("version").text(),
                   .date = r.at("date").text(),
                   .command = r.at("command").text(),
                   .isa = r.at("isa").text(),
                   .extent = r.at("extent").text(),
                   .text = r.at("text").text(),
                   .machine = r.at("machine").object(),
                   .versions = r.at("versions").object()};
  std::set<std::string> ids;
  for (const Reader& claim : r.at("claims").items()) {
    file.claims.push_back(read_claim(claim));
    if (!ids.insert(file.claims.back().id).second) claim.fail("each claim once");
  }
  return file;
}

}  // namespace lockstep::apps
