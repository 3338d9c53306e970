#pragma once
#include <cstdint>

#include "apps/transformer/gpt.h"
#include "data/dataset.h"
#include "distributed/comm/communicator.h"

namespace lockstep::apps {

struct Evaluation {
  double loss = 0;      ///< mean cross-entropy, nats a token
  double accuracy = 0;  ///< share of tokens whose successor was the most likely one
  int64_t tokens = 0;
  int signal = 0;  ///< the one that cut it short: then there are no figures
};

/// Goes once through windows side by side, `rows` at a time, every token exactly once over all
/// ranks; the same result on all of them. Without `comm`: on this rank alone. A signal to any rank
/// ends it early. Records nothing, takes no modelled time and leaves the model in training mode.
Evaluation evaluate(Gpt& model, const data::TokenWindows& windows, int64_t rows,
                    distributed::Communicator* comm);

}  // namespace lockstep::apps
