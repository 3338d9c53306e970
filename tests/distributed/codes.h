#pragma once
#include <cctype>
#include <string>
#include <vector>

#include "distributed/compress/compress_spec.h"

namespace lockstep::distributed {

/// Settings that change how a code travels; beside those of the registry with theirs.
inline const std::vector<std::string> kCodeVariants = {
    "int8:block=64,mode=minmax,round=stochastic",
    "fp16:scale=none",
    "fp8:e5m2,block=64",
    "fp8:scale=amplitude",
    "qsgd:bits=2,block=8",
    "qsgd:bits=7,norm=l2",
    "sign:vote",
    "topk:ratio=0.1,select=sampled,values=int8,dense_below=20",
    "topk:ratio=0.2,scope=bucket,values=fp16,warmup=4",
    "threshold:value=0.1,values=bf16",
    "randomk:ratio=0.1,values=bf16"};

/// Every registered code, and the variants.
inline std::vector<std::string> all_codes() {
  std::vector<std::string> specs = kCodeVariants;
  for (const auto& entry : Registry<Compressor>::instance().entries()) specs.push_back(entry.name);
  return specs;
}

/// As a name of a test: letters, digits and underscores.
inline std::string test_name(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return text;
}

}  // namespace lockstep::distributed
