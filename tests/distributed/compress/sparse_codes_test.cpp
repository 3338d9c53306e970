// What holds for all codes that send some elements.
#include <gtest/gtest.h>

#include <cmath>

#include "codes.h"
#include "core/random.h"
#include "degenerate.h"

namespace lockstep::distributed {
namespace {

const std::vector<std::string> kSparse = {
    "topk",
    "topk:ratio=0.3,values=fp16",
    "topk:ratio=0.3,values=bf16",
    "topk:ratio=0.3,values=int8",
    "topk:ratio=1",
    "topk:ratio=0.1,select=sampled",
    "topk:ratio=0.1,scope=bucket,dense_below=20",
    "threshold",
    "threshold:value=0,values=int8",
    "randomk:ratio=0.3",
    "randomk:ratio=1,values=bf16",
};

TEST(SparseCodes, EveryFiniteInputHasACode) {
  for (const std::string& spec : kSparse)
    for (const auto& [name, x] : degenerate_inputs()) {
      OneRank rank(spec, {static_cast<int64_t>(x.size())});
      rank.with_feedback();
      const Floats out = rank.send(x);
      EXPECT_TRUE(rank.encoded.finite) << spec << ", " << name;
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(std::isfinite(out[i])) << spec << ", " << name;
        if (std::abs(x[i]) < 1e30f) {
          EXPECT_FLOAT_EQ(rank.residual[i] + out[i], x[i]) << spec << ", " << name;
        }
      }
    }
}

// But for those whose choice is another once what was not sent is zero.
TEST(SparseCodes, DecodedNumbersAreEncodedAsTheyWere) {
  const Random random(5, RandomStream::tests);
  Floats x(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
  for (const char* spec :
       {"topk:ratio=0.1", "topk:ratio=0.1,values=fp16", "topk:ratio=0.1,values=bf16",
        "topk:ratio=0.1,values=int8", "topk:ratio=1,values=int8",
        "topk:ratio=0.02,scope=bucket,dense_below=50", "threshold:value=1", "randomk:ratio=1"}) {
    OneRank rank(spec, {30, 31, 1000});
    const Floats seen = rank.send(x);
    const auto bytes = rank.bytes;
    EXPECT_EQ(rank.send(seen), seen) << spec;
    EXPECT_EQ(rank.bytes, bytes) << spec;
  }
}

}  // namespace
}  // namespace lockstep::distributed
