#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"

namespace lockstep::layers {

/// What synchronisation must know about a parameter.
enum class Placement { replicated, sharded, shared };
enum class GradKind { dense, sparse };

/// One parameter as its module holds it. `slot` is the module's own handle, so that FlatParams can
/// swap in a view of a flat buffer.
struct Parameter {
  std::string name;                  ///< "blocks.0.attention.qkv.weight"
  std::vector<std::string> aliases;  ///< other names of the same (tied) parameter
  Tensor* slot = nullptr;
  Placement placement = Placement::replicated;
  GradKind grad = GradKind::dense;
  bool decay = false;  ///< weight decay applies: matrices yes, biases and norms no
};

/// A layer or a model: named parameters, named children, a training flag. Neither copied nor moved,
/// since slots point into it. Derived classes give their own call operator.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// All parameters in order of construction, names joined by dots; a tied one appears once, with
  /// its other names as aliases.
  std::vector<Parameter> parameters();

  enum class Mode { train, evaluate };
  /// Sets the mode (train by default) of the whole tree.
  void set_mode(Mode mode);
  Mode mode() const { return mode_; }

 protected:
  enum class Decay { no, yes };
  /// Registers a member; it becomes a leaf that wants a gradient.
  void add_parameter(std::string name, Tensor& slot, Decay decay);
  void add_child(std::string name, Module& child);
  /// `alias` (dotted, relative to this module) is another name of the parameter `name`.
  void tie(std::string alias, std::string name);

 private:
  struct Entry {  // a parameter or a child, in order of registration
    Parameter parameter;
    std::string child_name;
    Module* child = nullptr;
  };
  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, std::string>> ties_;  // alias, name
  Mode mode_ = Mode::train;
};

/// Elements of all parameters; a tied one counts once.
int64_t parameter_count(Module& module);

}  // namespace lockstep::layers
