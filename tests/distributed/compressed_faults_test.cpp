// What an exchange that compresses does when a rank sends something else than a code, stalls or
// dies between the collectives that a sum is made of: an error in time that names the rank, or a
// step that all ranks skip; never a hang, and never a number that no rank sent.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <thread>

#include "codes.h"
#include "distributed/comm/launch.h"
#include "distributed/exchange.h"
#include "precision.h"

namespace lockstep::distributed {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 3, kCulprit = 1;

// Calls f(number of the operation, from 0; what is about to be sent) before each operation of a
// rank.
class Tampering final : public CommBackend {
 public:
  using Tamper = std::function<void(int64_t, const Tensor&)>;
  Tampering(Communicator& inner, Tamper tamper) : inner_(inner), tamper_(std::move(tamper)) {}

  std::string_view name() const override { return "tampering"; }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  WorkPtr post(const Operation& o) override {
    tamper_(posted_++, o.in);
    switch (o.verb) {
      case Verb::all_reduce:
        return inner_.all_reduce(o.out, o.reduce);
      case Verb::all_gather:
        return inner_.all_gather_v(o.out, o.in, o.counts, o.tag);
      case Verb::all_to_all:
        return inner_.all_to_all_v(o.out, o.receive_counts, o.in, o.send_counts, o.tag);
      default:
        throw std::logic_error("not of an exchange");
    }
  }
  void progress() override { inner_.progress(); }
  std::unique_ptr<CommBackend> split(const Operation&, int, int) override { return nullptr; }
  void abort(const std::string& cause) noexcept override { inner_.abort(cause); }
  std::unique_ptr<ServicePort> open_service(int64_t, const MakeServiceLogic&) override {
    return nullptr;
  }
  int64_t moved_bytes() const override { return inner_.moved_bytes(); }

 private:
  Communicator& inner_;
  Tamper tamper_;
  int64_t posted_ = 0;
};

struct Outcome {
  std::string text;  // of what was thrown
  bool skipped = false;
  Floats sum;
};

// Three sums of one window by an exchange, the culprit's operations being tampered with.
std::vector<Outcome> sum_with(const std::string& spec, Way way, const CommOptions& options,
                              const Tampering::Tamper& tamper) {
  std::vector<Outcome> outcomes(kRanks);
  run_ranks(kRanks, options, [&](Communicator& comm) {
    Outcome& outcome = outcomes[static_cast<size_t>(comm.rank())];
    try {
      Communicator tampered(std::make_unique<Tampering>(
          comm, comm.rank() == kCulprit ? tamper : [](int64_t, const Tensor&) {}));
      const std::vector<optim::ParamSlice> slices = {
          {.name = "a", .shape = {30}, .begin = 0, .end = 30},
          {.name = "b", .shape = {70}, .begin = 30, .end = 100}};
      optim::FlatView all{.param = zeros({100}), .grad = zeros({100}), .slices = slices};
      for (int64_t i = 0; i < 100; ++i)
        all.grad.mutable_data<float>()[i] = static_cast<float>((7 * i + comm.rank()) % 11 - 5);
      Exchange exchange(tampered, {.compress = spec, .way = way}, all);
      exchange.window({.scale = 1, .weight = 1});
      std::vector<WorkPtr> works;
      for (const auto& [begin, end] : {std::pair{0, 30}, std::pair{30, 31}, std::pair{31, 100}})
        works.push_back(exchange.sum(all.range(begin, end), {"bucket", begin}));
      for (const WorkPtr& work : works) work->wait();
      outcome.skipped = exchange.take_overflow();
      exchange.resolve(!outcome.skipped);
      outcome.sum = floats(all.grad);
      comm.barrier();
    } catch (const std::exception& e) {
      outcome.text = e.what();
    }
  });
  return outcomes;
}

bool says(const std::vector<Outcome>& outcomes, const std::string& part) {
  for (const Outcome& outcome : outcomes)
    if (outcome.text.find(part) != std::string::npos) return true;
  return false;
}
bool anything_thrown(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes)
    if (!outcome.text.empty()) return true;
  return false;
}

struct Setting {
  std::string spec;
  Way way;
};
std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const std::string& code : all_codes())
    for (const char* feedback : {"", "+ef"})
      for (const Way way : {Way::added, Way::gathered, Way::owned}) {
        const auto compressor = make_compressor(code);
        if (way == Way::added && (!compressor->adds_as() || *feedback != 0)) continue;
        if (way == Way::gathered && compressor->needs_owners()) continue;
        if (*feedback != 0 && !compressor->bounds_residuals()) continue;
        all.push_back({code + feedback, way});
      }
  return all;
}
class CompressedFaults : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(All, CompressedFaults, testing::ValuesIn(settings()),
                         [](const auto& setting) {
                           return fmt::format("{}_way_{}", test_name(setting.param.spec),
                                              static_cast<int>(setting.param.way));
                         });

int64_t operations_of(const Setting& setting) {
  int64_t count = 0;
  const auto outcomes = sum_with(setting.spec, setting.way, {},
                                 [&](int64_t number, const Tensor&) { count = number + 1; });
  EXPECT_FALSE(anything_thrown(outcomes)) << outcomes[0].text;
  return count;
}

TEST_P(CompressedFaults, ARankThatDiesAmidASumIsNamedAtOnce) {
  const auto [spec, way] = GetParam();
  const int64_t operations = operations_of(GetParam());
  for (int64_t at = 0; at < operations; ++at) {
    const auto start = Clock::now();
    const auto outcomes = sum_with(spec, way, {}, [&](int64_t number, const Tensor&) {
      if (number == at) throw std::domain_error("the disk caught fire");
    });
    EXPECT_LT(Clock::now() - start, 20s);
    for (int r = 0; r < kRanks; ++r) {
      if (r == kCulprit) continue;
      EXPECT_NE(outcomes[static_cast<size_t>(r)].text.find("rank 1"), std::string::npos)
          << "operation " << at << ", rank " << r << ": " << outcomes[static_cast<size_t>(r)].text;
    }
  }
}

TEST_P(CompressedFaults, ARankThatStallsAmidASumIsNamedInTime) {
  const auto [spec, way] = GetParam();
  const int64_t operations = operations_of(GetParam());
  const auto outcomes = sum_with(spec, way, {.timeout = 100ms}, [&](int64_t number, const Tensor&) {
    if (number == operations - 1) std::this_thread::sleep_for(250ms);
  });
  for (int r = 0; r < kRanks; ++r)
    EXPECT_NE(outcomes[static_cast<size_t>(r)].text.find("rank 1 of 3"), std::string::npos)
        << "rank " << r << ": " << outcomes[static_cast<size_t>(r)].text;
}

// Frames and sizes, byte by byte.
TEST_P(CompressedFaults, BytesThatAreNoCodeAreNamedOrSkippedNeverANumberThatIsNone) {
  const auto [spec, way] = GetParam();
  if (way == Way::added) return;  // arrays of numbers: any bytes are some
  const int64_t operations = operations_of(GetParam());
  int named = 0;
  for (int64_t at = 0; at < operations; ++at)
    for (const int value : {0x00, 0x7f, 0xff})
      for (const int64_t place : {0, 4, 8, 12, 16, 24, 32, 40, 47, 48, 51, 60}) {
        bool changed = false;
        const auto outcomes = sum_with(spec, way, {}, [&](int64_t number, const Tensor& sent) {
          if (number != at || sent.dtype() == DType::f32 || place >= sent.bytes()) return;
          auto* bytes = static_cast<uint8_t*>(sent.mutable_bytes_data());
          for (int64_t i = place; i < std::min<int64_t>(place + (place < 48 ? 1 : 4), sent.bytes());
               ++i)
            bytes[i] = static_cast<uint8_t>(value);
          changed = true;
        });
        if (!changed) continue;
        const std::string where = fmt::format("operation {}, byte {} is {:#x}", at, place, value);
        if (anything_thrown(outcomes)) {
          ++named;
          ASSERT_TRUE(says(outcomes, "rank 1")) << where << ": " << outcomes[0].text;
          continue;
        }
        for (const Outcome& outcome : outcomes) {
          ASSERT_EQ(outcome.skipped, outcomes[0].skipped) << where;
          ASSERT_EQ(outcome.sum.size(), 100u);
          for (size_t i = 0; i < 100 && !outcome.skipped; ++i) {
            ASSERT_TRUE(std::isfinite(outcome.sum[i])) << where << ", element " << i;
            ASSERT_EQ(outcome.sum[i], outcomes[0].sum[i]) << where;
          }
        }
      }
  EXPECT_GT(named, 20);
}

// Not finite on one rank only: all skip, whatever the code.
TEST_P(CompressedFaults, WhatIsNotFiniteOnOneRankIsSkippedOnAll) {
  const auto [spec, way] = GetParam();
  for (const float bad : {INFINITY, -INFINITY, NAN})
    for (const int64_t place : {0, 30, 99}) {
      std::vector<char> skipped(kRanks);
      run_ranks(kRanks, [&](Communicator& comm) {
        optim::FlatView all{.param = zeros({100}), .grad = full({100}, 1), .slices = {}};
        const Floats before = floats(all.grad);
        if (comm.rank() == kCulprit) all.grad.mutable_data<float>()[place] = bad;
        Exchange exchange(comm, {.compress = spec, .way = way}, all);
        exchange.window({.scale = 1, .weight = 1});
        exchange.sum(all.range(0, 100), {"bucket", 0})->wait();
        skipped[static_cast<size_t>(comm.rank())] = static_cast<char>(exchange.take_overflow());
      });
      for (const char s : skipped) EXPECT_EQ(s, 1) << bad << " at " << place;
    }
}

}  // namespace
}  // namespace lockstep::distributed
