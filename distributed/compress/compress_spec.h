#pragma once
#include <memory>
#include <string>

#include "distributed/compress/compressor.h"

namespace lockstep::distributed {

/// What `--compress` says: a code, and whether what it loses is kept for the next step.
///
///     topk:ratio=0.05,values=fp16+ef
///     int8:block=256+ef:rescale
struct CompressSpec {
  std::string code;       ///< spec of a Compressor; empty: gradients travel as they are
  bool feedback = false;  ///< +ef: what a code loses is added to the next gradient
  /// +ef:rescale: residuals are kept times the learning rate that they were left out with, so that
  /// what is sent late moves the parameters as far as it would have.
  bool rescale = false;

  /// UsageError for what stands behind +ef and is neither. The code is not looked at.
  static CompressSpec parse(const std::string& text);
};

/// Looked up in the registry; a UsageError lists what there is.
std::unique_ptr<Compressor> make_compressor(const Spec& spec);
/// The same; also a UsageError for a code that does not go with, or without, error feedback.
std::unique_ptr<Compressor> make_compressor(const CompressSpec& spec);
/// What `--compress help` prints.
std::string compress_help();

}  // namespace lockstep::distributed
