// AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101): Adam whose weight decay is apart from the
// moments, w ← w·(1 - lr·decay).
#include "optim/adam_base.h"

namespace lockstep::optim {
namespace {

class AdamW final : public AdamBase {
 public:
  AdamW(const Spec&, FlatView view, const OptimizerOptions& options)
      : AdamBase(std::move(view), options, Decay::decoupled) {}
};

const Register<Optimizer, AdamW, FlatView, const OptimizerOptions&> registered{
    "adamw", "Adam with decay apart from the moments (Loshchilov & Hutter 2019)",
    adam_settings("on matrices, w·(1 - lr·decay) (0.01)")};

}  // namespace
}  // namespace lockstep::optim
