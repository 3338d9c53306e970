#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/state_io.h"
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

/// State of a module that is no parameter: no gradient, no optimiser, no FlatParams; forward itself
/// writes it (running statistics), on every rank from the batches it sees. It belongs to the model:
/// it is saved with the parameters.
struct Buffer {
  std::string name;  ///< "stem.norm.running_mean"
  Tensor* slot = nullptr;
};

/// A layer or a model: named parameters and buffers, named children, a training flag. Neither
/// copied nor moved, since slots point into it. Derived classes give their own call operator.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// All parameters in order of construction, names joined by dots; a tied one appears once, with
  /// its other names as aliases.
  std::vector<Parameter> parameters();

  /// All buffers, names joined by dots: a module's own, then those of its children.
  std::vector<Buffer> buffers();
  /// f(name, module) for this module (its name is empty) and all below it, in order of
  /// construction.
  void visit(const std::function<void(const std::string& name, Module&)>& f);

  enum class Mode { train, evaluate };
  /// Sets the mode (train by default) of the whole tree.
  void set_mode(Mode mode);
  Mode mode() const { return mode_; }

 protected:
  enum class Decay { no, yes };
  /// Registers a member; it becomes a leaf that wants a gradient.
  void add_parameter(std::string name, Tensor& slot, Decay decay);
  /// Registers a member that is saved with the parameters and is none: f32, or i64 where it counts.
  void add_buffer(std::string name, Tensor& slot);
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
  std::vector<Buffer> buffers_;
  std::vector<std::pair<std::string, std::string>> ties_;  // alias, name
  Mode mode_ = Mode::train;
};

/// Elements of all parameters; a tied one counts once.
int64_t parameter_count(Module& module);

/// Walks over the buffers of all modules, under their names. Fold::replicated: they are to be equal
/// on all ranks when they are saved (distributed/buffer_sync.h).
void buffer_state(Module& module, StateIo& io);

}  // namespace lockstep::layers
