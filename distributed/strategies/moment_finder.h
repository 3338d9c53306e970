#pragma once
#include <map>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace lockstep::distributed {

/// An optimiser's moments and step counts, found among its state: to be read and written between
/// its steps, as long as it lives.
class MomentFinder final : private StateIo {
 public:
  explicit MomentFinder(optim::Optimizer& optimizer) { optimizer.state(*this); }

  std::map<std::string, Tensor> moments;  ///< by name: "m", "v"
  std::vector<int64_t*> counts;           ///< updates so far, by parameter

 private:
  void flat(const std::string& name, Tensor& value, Fold) override {
    if (name != "master") moments.emplace(name, value);
  }
  void value(const std::string& name, int64_t& value, Fold) override {
    if (name.starts_with("steps.")) counts.push_back(&value);
  }
  void value(const std::string&, double&, Fold) override {}
};

}  // namespace lockstep::distributed
