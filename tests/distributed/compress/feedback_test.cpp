#include "distributed/compress/feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "../precision.h"
#include "distributed/comm/launch.h"
#include "distributed/compress/bad_code.h"
#include "distributed/compress/frame.h"
#include "distributed/compress/push_code.h"
#include "distributed/exchange.h"

namespace lockstep::distributed {
namespace {

void write(Feedback& feedback, int64_t begin, int64_t end, float value) {
  std::ranges::fill(feedback.next(begin, end), value);
}

// As a sum does that needs an amplitude first: what nobody wrote stays.
TEST(Feedback, ARangeThatIsAskedForTwiceIsWrittenOnce) {
  Feedback feedback(4);
  write(feedback, 0, 4, 1);
  feedback.resolve(true);
  write(feedback, 0, 4, 9);
  feedback.resolve(false);
  feedback.next(0, 2);
  write(feedback, 0, 2, 2);
  feedback.resolve(true);
  EXPECT_EQ(floats(feedback.residual()), (Floats{2, 2, 1, 1}));
}

// A gradient of one parameter on one rank.
struct Sums {
  Sums(Communicator& comm, const std::string& spec, int64_t numel)
      : slices{{.name = "a", .shape = {numel}, .begin = 0, .end = numel}},
        all{.param = zeros({numel}), .grad = zeros({numel}), .slices = slices},
        exchange(comm, {.compress = spec}, all) {}
  Floats sum(const Floats& values, const WindowTerms& terms) {
    std::ranges::copy(values, all.grad.mutable_data<float>());
    exchange.window(terms);
    exchange.sum(all, {"bucket", 0})->wait();
    EXPECT_FALSE(exchange.take_overflow());
    exchange.resolve(true);
    return floats(all.grad);
  }
  std::vector<optim::ParamSlice> slices;
  optim::FlatView all;
  Exchange exchange;
};

// Residuals are kept times the learning rate; thresholds and norms are those of gradients.
TEST(Feedback, WhatIsKeptTimesTheRateIsComparedWithoutIt) {
  run_ranks(1, [](Communicator& comm) {
    for (const double lr : {1.0, 0.125, 8.0})
      for (const char* rescale : {"", ":rescale"}) {
        Sums threshold(comm, std::string("threshold:value=1+ef") + rescale, 3);
        const WindowTerms terms{.scale = 4, .weight = 2, .lr = lr};
        EXPECT_EQ(threshold.sum({8, -7, 16}, terms), (Floats{8, 0, 16})) << lr << rescale;
        EXPECT_EQ(threshold.sum({0, -1, 0}, terms), (Floats{0, -8, 0})) << lr << rescale;
        // A mean of norm 5 is clipped to 2.5.
        Sums clipped(comm, std::string("topk:ratio=1,clip=2.5+ef") + rescale, 2);
        EXPECT_EQ(clipped.sum({3 * 8, 4 * 8}, terms), (Floats{12, 16})) << lr << rescale;
      }
  });
}

TEST(Feedback, AStepOfNoLengthLeavesResidualsAsTheyWere) {
  run_ranks(1, [](Communicator& comm) {
    for (const char* spec : {"topk:ratio=0.5+ef:rescale", "topk:ratio=0.5,momentum=0.5+ef:rescale"})
      for (const double lr : {0.0, 1e-40, 1e-300}) {
        Sums sums(comm, spec, 2);
        EXPECT_EQ(sums.sum({3, 2}, {.weight = 1, .lr = 0.5}), (Floats{3, 0}));
        EXPECT_EQ(sums.sum({5, 4}, {.weight = 1, .lr = lr}), (Floats{5, 0}));
        const bool momentum = std::strstr(spec, "momentum") != nullptr;
        EXPECT_EQ(sums.sum({0, 0}, {.weight = 1, .lr = 0.5}), (Floats{0, momentum ? 3.0f : 2.0f}));
      }
  });
}

// Position and amplitudes of a frame that is pushed are the sender's to say.
TEST(PushCode, PositionsAndAmplitudesThatNoWindowHasAreRefused) {
  run_ranks(1, [](Communicator& comm) {
    for (const char* spec : {"fp16", "terngrad", "randomk:ratio=1", "topk:warmup=5"}) {
      Sums sums(comm, spec, 4);
      const Tensor frame = sums.exchange.encode(from_values(Floats{1, 2, 3, 4}), {.weight = 1});
      const PushCode code(spec, 1, sums.all);
      auto* const begin = static_cast<std::byte*>(frame.mutable_bytes_data());
      const std::span<std::byte> bytes{begin, static_cast<size_t>(frame.bytes())};
      Floats out(4);
      code.decode(bytes, out);
      FrameHeader header;
      std::memcpy(&header, begin, sizeof header);
      for (const uint64_t position :
           {uint64_t{1}, ~uint64_t{3}, uint64_t{1} << 63, (uint64_t{1} << 62) + 4}) {
        FrameHeader other = header;
        other.position = position;
        std::memcpy(begin, &other, sizeof other);
        EXPECT_THROW(code.decode(bytes, out), BadCode) << spec << " at " << position;
      }
      std::memcpy(begin, &header, sizeof header);
      for (const float amplitude : {-1.0f, std::numeric_limits<float>::infinity(), NAN}) {
        if (header.amplitudes == 0) continue;
        std::memcpy(begin + sizeof header, &amplitude, sizeof amplitude);
        EXPECT_THROW(code.decode(bytes, out), BadCode) << spec << ", " << amplitude;
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::distributed
