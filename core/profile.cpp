#include "core/profile.h"

#include "core/check.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <new>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace lockstep {
namespace {

thread_local constinit Profile* current = nullptr;

constexpr size_t kMaxSpans = size_t{1} << 20;  // some 60 MB

// Literals: the same name may be here under several addresses, which rows() brings together.
struct Key {
  Profile::Kind kind;
  const char *name, *phase;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    const auto word = [](const char* p) { return reinterpret_cast<uintptr_t>(p); };
    return (word(key.name) * 31 + word(key.phase)) * 31 + static_cast<size_t>(key.kind);
  }
};

struct Open {
  Profile::Row* row;
  Cost cost;
  std::string_view phase;  // within it
  int64_t begin_ns = 0, inside_ns = 0;
};

}  // namespace

struct Profile::Impl {
  Options options;
  std::unordered_map<Key, Row, KeyHash> rows;
  std::vector<Open> open;
  std::vector<Span> spans;
  int64_t begun = 0;  // steps, those of the warm-up included
  int64_t spans_of_step = 0, dropped = 0;

  bool counting() const { return begun > options.warm_up; }
  bool tracing() const { return counting() && begun <= options.warm_up + options.traced; }

  void begin_step() {
    if (++begun == options.warm_up + 1) {  // rows keep their places: there will be no more
      for (auto& [key, row] : rows) row.calls = row.total_ns = row.self_ns = 0, row.cost = {};
      spans.reserve(std::min(static_cast<size_t>(2 * spans_of_step * options.traced), kMaxSpans));
    }
    spans_of_step = 0;
  }

  Row& row_of(Kind kind, std::string_view name, std::string_view phase) {
    const auto [at, made] = rows.try_emplace({kind, name.data(), phase.data()});
    if (made) at->second = {.kind = kind, .name = name, .phase = phase};
    return at->second;
  }

  void add(Row& row, int64_t begin_ns, int64_t end_ns, int64_t inside_ns, Cost cost) {
    ++spans_of_step;
    ++row.calls;
    row.total_ns += end_ns - begin_ns;
    row.self_ns += end_ns - begin_ns - inside_ns;
    row.cost.flops += cost.flops;
    row.cost.bytes += cost.bytes;
    if (tracing()) keep({row.kind, row.name, begin_ns, end_ns, cost});
  }

  void keep(const Span& span) noexcept {
    try {
      if (spans.size() < kMaxSpans) return spans.push_back(span);
    } catch (const std::bad_alloc&) {  // a trace is not worth a run
    }
    ++dropped;
  }
};

Profile::Profile(const Options& options) : impl_(std::make_unique<Impl>()) {
  check(options.warm_up >= 0 && options.traced >= 0,
        "[core.profile] steps; expected at least 0, got {} to warm up and {} to trace",
        options.warm_up, options.traced);
  impl_->options = options;
  impl_->rows.reserve(512);
  impl_->open.reserve(64);
}

Profile::~Profile() = default;

int64_t Profile::warm_up() const { return std::min(impl_->begun, impl_->options.warm_up); }
int64_t Profile::steps() const { return impl_->begun - warm_up(); }

std::vector<Profile::Row> Profile::rows() const {
  if (!impl_->counting()) return {};
  std::map<std::tuple<Kind, std::string_view, std::string_view>, Row> merged;
  for (const auto& [key, row] : impl_->rows) {
    if (row.calls == 0) continue;
    Row& sum = merged[{row.kind, row.name, row.phase}];
    sum.kind = row.kind, sum.name = row.name, sum.phase = row.phase;
    sum.calls += row.calls;
    sum.total_ns += row.total_ns;
    sum.self_ns += row.self_ns;
    sum.cost.flops += row.cost.flops;
    sum.cost.bytes += row.cost.bytes;
  }
  std::vector<Row> rows;
  for (auto& [key, row] : merged) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.self_ns > b.self_ns; });
  return rows;
}

std::span<const Profile::Span> Profile::spans() const { return impl_->spans; }
int64_t Profile::dropped() const { return impl_->dropped; }
int64_t Profile::now() const { return impl_->options.now(); }

bool Profile::begin(Kind kind, std::string_view name, Cost cost) {
  Impl& p = *impl_;
  if (p.open.empty()) {
    if (kind != Kind::step) return false;
    p.begin_step();
  }
  const std::string_view outer = p.open.empty() ? std::string_view() : p.open.back().phase;
  Row& row = p.row_of(kind, name, kind == Kind::phase ? name : outer);
  p.open.push_back({&row, cost, row.phase, 0, 0});
  p.open.back().begin_ns = now();  // last, so that our own work counts outside the span
  return true;
}

void Profile::end() noexcept {
  const int64_t end_ns = now();
  Impl& p = *impl_;
  const Open span = p.open.back();
  p.open.pop_back();
  if (!p.open.empty()) p.open.back().inside_ns += end_ns - span.begin_ns;
  p.add(*span.row, span.begin_ns, end_ns, span.inside_ns, span.cost);
}

void Profile::transfer(std::string_view name, int64_t begin_ns, int64_t end_ns, Cost cost) {
  Impl& p = *impl_;
  if (p.open.empty()) return;
  p.add(p.row_of(Kind::transfer, name, {}), begin_ns, end_ns, 0, cost);
}

int64_t Profile::steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Profile* Profile::of_thread() { return current; }

Profile::Attach::Attach(Profile* profile) : before_(std::exchange(current, profile)) {
  attached_.fetch_add(profile != nullptr ? 1 : 0, std::memory_order_relaxed);
}
Profile::Attach::~Attach() {
  attached_.fetch_sub(current != nullptr ? 1 : 0, std::memory_order_relaxed);
  current = before_;
}

}  // namespace lockstep
