#pragma once
#include <memory>
#include <string>
#include <vector>

#include "distributed/compress/compress_spec.h"
#include "optim/flat_params.h"

namespace lockstep::distributed {

/// How a parameter service reads whole gradients that workers push as frames: each tells the
/// window that it is of, and brings the amplitudes that it goes by.
class PushCode {
 public:
  /// `spec` without +ef, which is the worker's business.
  PushCode(const std::string& spec, uint64_t seed, const optim::FlatView& all);

  /// Overwrites `out`, a number for each element. BadCode for what no worker sends.
  void decode(std::span<const std::byte> frame, std::span<float> out) const;

 private:
  std::unique_ptr<Compressor> code_;
  uint32_t id_;
  uint64_t seed_;
  int64_t numel_;
  std::vector<int64_t> ends_;
};

}  // namespace lockstep::distributed
