#include "distributed/comm/virtual_cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "core/check.h"
#include "core/spec.h"
#include "distributed/comm/virtual_cluster/units.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

using Words = std::vector<std::string_view>;

// Bounds that keep numbers free of `e+`, since `+` joins the parts of a list.
constexpr double kMaxSeconds = 1e6, kMaxFactor = 1e6;

constexpr std::string_view kSlow = "RANK:FACTOR, joined by +, like 7:1.3+3:2, or none";
constexpr std::string_view kJitter =
    "none, or lognormal:SIGMA, exponential:FRACTION or pareto:ALPHA[:FRACTION], "
    "periodic:PERIOD:LENGTH:FACTOR and pause:PROBABILITY:TIME, joined by +";

[[noreturn]] void fail(std::string_view key, std::string_view expected, std::string_view got) {
  throw UsageError(
      fmt::format("[distributed.cluster] {}; expected {}, got '{}'", key, expected, got));
}

Words split(std::string_view text, char separator) {
  Words words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

template <class T>
T number(std::string_view key, std::string_view word, T min, T max, std::string_view of_what) {
  T value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc{} || stop != end || !(value >= min && value <= max))
    fail(key, fmt::format("{} in {}..{}", of_what, min, max), word);
  return value;
}

double factor(std::string_view key, std::string_view word) {
  return number(key, word, 1e-6, kMaxFactor, "a factor");
}

double seconds(std::string_view key, std::string_view word) {
  const std::optional<double> value = read_seconds(word);
  if (!value || *value < 0 || *value > kMaxSeconds || std::signbit(*value))
    fail(key, fmt::format("a time like 100ms ({}) in 0s..{}s", kTimeUnits, kMaxSeconds), word);
  return *value;
}

double rate(std::string_view key, std::string_view word) {
  constexpr double kMin = 1, kMax = 1e15;  // bytes per second
  const std::optional<double> value = read_rate(word);
  if (!value || *value < kMin || *value > kMax)
    fail(key, fmt::format("a rate like 10Gbit ({}, per second) in 1B..1000TB", kRateUnits), word);
  return *value;
}

std::vector<SlowRank> read_slow(const std::string& text) {
  std::vector<SlowRank> slow;
  if (text == "none") return slow;
  for (const std::string_view part : split(text, '+')) {
    const Words words = split(part, ':');
    if (words.size() != 2) fail("slow", kSlow, text);
    slow.push_back({number("slow", words[0], 0, 1 << 20, "a rank"), factor("slow", words[1])});
  }
  std::ranges::sort(slow, {}, &SlowRank::rank);
  const auto twice = std::ranges::adjacent_find(slow, {}, &SlowRank::rank);
  if (twice != slow.end()) fail("slow", fmt::format("one factor for rank {}", twice->rank), text);
  return slow;
}

void read_law(const Words& words, Jitter& jitter, const std::string& text) {
  if (jitter.law != Jitter::Law::none) fail("jitter", "one random law", text);
  if (words[0] == "lognormal") {
    jitter.law = Jitter::Law::lognormal;
    jitter.spread = number("jitter", words[1], 0.0, 5.0, "a sigma");
    return;
  }
  const bool pareto = words[0] == "pareto";
  jitter.law = pareto ? Jitter::Law::pareto : Jitter::Law::exponential;
  if (pareto) jitter.alpha = number("jitter", words[1], 1.01, 1e6, "an alpha");
  jitter.spread = words.size() > (pareto ? 2u : 1u)
                      ? number("jitter", words.back(), 0.0, 1.0, "a fraction")
                      : 1;
}

Jitter read_jitter(const std::string& text) {
  Jitter jitter;
  if (text == "none") return jitter;
  bool periodic = false, pause = false;
  for (const std::string_view part : split(text, '+')) {
    const Words words = split(part, ':');
    const std::string_view law = words[0];
    const size_t settings = words.size() - 1;
    if ((law == "lognormal" || law == "exponential") && settings == 1) {
      read_law(words, jitter, text);
    } else if (law == "pareto" && (settings == 1 || settings == 2)) {
      read_law(words, jitter, text);
    } else if (law == "periodic" && settings == 3 && !periodic) {
      periodic = true;
      jitter.periodic.period = number<int64_t>("jitter", words[1], 1, 1'000'000'000, "a period");
      jitter.periodic.length =
          number<int64_t>("jitter", words[2], 0, jitter.periodic.period, "a length");
      jitter.periodic.factor = factor("jitter", words[3]);
    } else if (law == "pause" && settings == 2 && !pause) {
      pause = true;
      jitter.pause = {number("jitter", words[1], 0.0, 1.0, "a probability"),
                      seconds("jitter", words[2])};
    } else {
      fail("jitter", kJitter, text);
    }
  }
  return jitter;
}

std::string write(const std::vector<SlowRank>& slow) {
  std::string text;
  for (const SlowRank& s : slow)
    text += fmt::format("{}{}:{}", text.empty() ? "" : "+", s.rank, s.factor);
  return text.empty() ? "none" : text;
}

std::string write(const Jitter& jitter) {
  Jitter none;
  std::vector<std::string> parts;
  switch (jitter.law) {
    case Jitter::Law::none:
      break;
    case Jitter::Law::lognormal:
      parts.push_back(fmt::format("lognormal:{}", jitter.spread));
      break;
    case Jitter::Law::exponential:
      parts.push_back(fmt::format("exponential:{}", jitter.spread));
      break;
    case Jitter::Law::pareto:
      parts.push_back(fmt::format("pareto:{}:{}", jitter.alpha, jitter.spread));
      break;
  }
  if (const auto& p = jitter.periodic; p != none.periodic)
    parts.push_back(fmt::format("periodic:{}:{}:{}", p.period, p.length, p.factor));
  if (const auto& p = jitter.pause; p != none.pause)
    parts.push_back(fmt::format("pause:{}:{}", p.probability, write_seconds(p.seconds)));
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, "+"));
}

}  // namespace

Cluster Cluster::parse(const std::string& text) {
  const Spec spec(text.empty() ? "cluster" : "cluster:" + text);
  spec.expect_keys({"compute", "slow", "jitter", "latency", "bandwidth", "links",
                    "oversubscription", "algorithm", "server-latency", "server-bandwidth"});
  const auto read = [&](const char* key, auto reader, auto fallback) {
    return spec.has(key) ? reader(key, spec.text(key, "")) : fallback;
  };
  Cluster c;
  if (spec.text("compute", "measure") != "measure") {
    c.compute = seconds("compute", spec.text("compute", ""));
    if (*c.compute == 0) fail("compute", "a time above 0, or measure", spec.text("compute", ""));
  }
  c.slow = read_slow(spec.text("slow", "none"));
  c.jitter = read_jitter(spec.text("jitter", "none"));
  c.latency = read("latency", seconds, c.latency);
  c.bandwidth = read("bandwidth", rate, c.bandwidth);
  c.links = spec.text("links", "per-link", {"per-link", "shared"}) == "shared" ? Links::shared
                                                                               : Links::per_link;
  c.oversubscription = spec.number("oversubscription", 1, {.min = 1, .max = kMaxFactor});
  if (c.links == Links::shared && c.oversubscription != 1)
    fail("oversubscription", "links=per-link beside it (a shared medium has no switch)",
         "links=shared");
  c.algorithm = spec.text("algorithm", "ring", {"ring", "tree"}) == "tree" ? Algorithm::tree
                                                                           : Algorithm::ring;
  c.server_latency = read("server-latency", seconds, c.latency);
  c.server_bandwidth = read("server-bandwidth", rate, c.bandwidth);
  return c;
}

std::string Cluster::to_string() const {
  return fmt::format(
      "compute={},slow={},jitter={},latency={},bandwidth={},links={},oversubscription={},"
      "algorithm={},server-latency={},server-bandwidth={}",
      compute ? write_seconds(*compute) : "measure", write(slow), write(jitter),
      write_seconds(latency), write_rate(bandwidth), links == Links::shared ? "shared" : "per-link",
      oversubscription, algorithm == Algorithm::tree ? "tree" : "ring",
      write_seconds(server_latency), write_rate(server_bandwidth));
}

void Cluster::expect_ranks(int ranks) const {
  for (const SlowRank& s : slow)
    if (s.rank >= ranks)
      fail("slow", fmt::format("a rank in 0..{} of {}", ranks - 1, ranks), write(slow));
}

double Cluster::factor(int rank) const {
  const auto at = std::ranges::lower_bound(slow, rank, {}, &SlowRank::rank);
  return at != slow.end() && at->rank == rank ? at->factor : 1;
}

std::string cluster_help() {
  return
      R"(--cluster KEY=VALUE,KEY=VALUE,…  describes the cluster that --backend virtual models.

  compute           time of one micro-batch on a nominal rank, forward : backward = 1 : 2 (measure:
                    measured at the start and written into run.json)
  slow              RANK:FACTOR+RANK:FACTOR… : ranks that take FACTOR times as long (none)
  jitter            how micro-batches differ in time, joined by + (none)
    lognormal:SIGMA              factor of mean 1, exp(SIGMA·Z - SIGMA²/2)
    exponential:FRACTION         factor of mean 1 and deviation FRACTION, at least 1 - FRACTION
    pareto:ALPHA[:FRACTION]      factor of mean 1 with a heavy tail, P(> x) ~ x^-ALPHA (fraction 1)
    periodic:PERIOD:LENGTH:FACTOR  of every PERIOD micro-batches, LENGTH in a row take FACTOR times
                                 as long; each rank at another point
    pause:PROBABILITY:TIME       with PROBABILITY a micro-batch begins with a pause of TIME
  latency           of a message, beside its bytes (20us)
  bandwidth         of a rank's link, each way (10Gbit)
  links             per-link: each rank has its own; shared: all ranks share one (per-link)
  oversubscription  the switch carries ranks · bandwidth / this (1)
  algorithm         ring or tree, of collectives (ring)
  server-latency    of a parameter service's link (that of latency)
  server-bandwidth  of a parameter service's link, each way (that of bandwidth)

Times: ns, us, ms, s. Rates, per second and decimal: bit, Kbit, Mbit, Gbit, Tbit and B, KB, MB, GB, TB.

  --cluster compute=100ms,slow=7:1.3,jitter=lognormal:0.1,latency=20us,bandwidth=10Gbit
)";
}

}  // namespace lockstep::distributed::virtual_cluster
