// Adam with L2 decay, which goes through the moments.
#include "optim/adam_base.h"

namespace lockstep::optim {
namespace {

class Adam final : public AdamBase {
 public:
  Adam(const Spec&, FlatView view, const OptimizerOptions& options)
      : AdamBase(std::move(view), options, Decay::coupled) {}
};

const Register<Optimizer, Adam, FlatView, const OptimizerOptions&> registered{
    "adam", "Adam (Kingma & Ba 2015)", adam_settings("on matrices, added to the gradient (0)")};

}  // namespace
}  // namespace lockstep::optim
