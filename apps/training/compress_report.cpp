#include "apps/training/compress_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

using distributed::Traffic;

nlohmann::ordered_json json_of(const Traffic& t, int64_t steps) {
  const auto a_step = [&](auto sum) {
    return static_cast<double>(sum) / static_cast<double>(std::max<int64_t>(steps, 1));
  };
  const auto both = [&](auto member) { return a_step(t.codes.*member + t.sum_codes.*member); };
  using distributed::CodeBytes;
  return {{"elements", t.numel},
          {"nominal_ratio", t.nominal_ratio()},
          {"effective_ratio", t.effective_ratio()},
          {"raw", a_step(t.raw)},
          {"wire", a_step(t.wire)},
          {"payload", both(&CodeBytes::payload)},
          {"indices", both(&CodeBytes::indices)},
          {"scales", both(&CodeBytes::scales)},
          {"padding", both(&CodeBytes::padding)},
          {"framing", a_step(t.framing)},
          {"encode_s", a_step(t.encode_s)},
          {"decode_s", a_step(t.decode_s)},
          {"saturated", t.saturated},
          {"underflowed", t.underflowed},
          {"residual_norm", t.residual_norm()},
          {"break_even_bytes_per_s", t.break_even()}};
}

std::string bytes_text(double bytes) {
  return bytes >= 1e6   ? fmt::format("{:.4g} MB", bytes / 1e6)
         : bytes >= 1e3 ? fmt::format("{:.4g} kB", bytes / 1e3)
                        : fmt::format("{:.0f} B", bytes);
}
std::string rate_text(double bytes_per_s) {
  const double bits = 8 * bytes_per_s;
  return bits >= 1e9 ? fmt::format("{:.3g} Gbit/s", bits / 1e9)
                     : fmt::format("{:.3g} Mbit/s", bits / 1e6);
}

}  // namespace

nlohmann::ordered_json compression_json(const distributed::CompressionReport& report,
                                        int64_t steps) {
  nlohmann::ordered_json json{{"spec", report.spec}};
  json.update(json_of(report.total(), steps));
  for (const Traffic& bucket : report.buckets) json["buckets"].push_back(json_of(bucket, steps));
  return json;
}

std::string compression_text(const distributed::CompressionReport& report, int64_t steps,
                             std::optional<double> bandwidth) {
  if (report.spec.empty() || steps == 0 || report.buckets.empty()) return "";
  const Traffic all = report.total();
  const auto n = static_cast<double>(steps);
  const double made = static_cast<double>(all.codes.total() + all.sum_codes.total() + all.framing);
  const auto share = [&](int64_t bytes) { return 100 * static_cast<double>(bytes) / made; };
  std::string text = fmt::format("compression {}: gradients ", report.spec);
  text += all.wire > 0 ? fmt::format("take {} a step and rank instead of {}, ",
                                     bytes_text(all.wire / n), bytes_text(all.raw / n))
                       : "of one rank go nowhere; their codes are ";
  text += fmt::format("{:.1f} times less", all.effective_ratio());
  text += all.codes.payload > 0
              ? fmt::format(" ({:.1f} by the values alone)\n", all.nominal_ratio())
              : ": no value was sent\n";
  text += "  codes: ";
  bool first = true;
  for (const auto& [what, bytes] : {std::pair{"values", all.codes.payload + all.sum_codes.payload},
                                    std::pair{"indices", all.codes.indices + all.sum_codes.indices},
                                    std::pair{"scales", all.codes.scales + all.sum_codes.scales},
                                    std::pair{"padding", all.codes.padding + all.sum_codes.padding},
                                    std::pair{"headers", all.framing}}) {
    if (bytes == 0) continue;
    text += fmt::format("{}{:.3g} % {}", first ? "" : ", ", share(bytes), what);
    first = false;
  }
  text += fmt::format("; encoding {:.3g} ms and decoding {:.3g} ms a step\n",
                      1e3 * all.encode_s / n, 1e3 * all.decode_s / n);
  if (all.saturated + all.underflowed > 0)
    text +=
        fmt::format("  in all steps, {} elements were beyond the code's range, {} became zero\n",
                    all.saturated, all.underflowed);
  if (all.wire <= 0) return text;
  if (all.break_even() <= 0) return text + "  it saves no bytes\n";
  text += fmt::format("  it pays on networks slower than {} (a rank's link)\n",
                      rate_text(all.break_even()));
  if (bandwidth && *bandwidth > all.break_even())
    text += fmt::format("  encoding costs more than it saves: this cluster's links carry {}\n",
                        rate_text(*bandwidth));
  return text;
}

}  // namespace lockstep::apps
