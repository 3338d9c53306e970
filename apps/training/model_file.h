#pragma once
#include <nlohmann/json.hpp>

#include <string>

#include "core/check.h"
#include "core/safetensors.h"
#include "layers/module.h"
#include "optim/flat_params.h"

namespace lockstep::apps {

/// A trained model as one safetensors file: the parameters under their names, taken from `weights`
/// (flat, as params.all(): the fp32 master where the optimiser has one), then the buffers; in the
/// metadata `format` lockstep, `kind`, `aliases` (JSON) and what the app adds to make use of them.
void write_model(const std::string& path, const std::string& kind, Metadata metadata,
                 const optim::FlatParams& params, const Tensor& weights,
                 const std::vector<layers::Buffer>& buffers);

/// An integer of a configuration. UsageError for what is none, such as 4.5, or too large.
int64_t integer_at(const nlohmann::ordered_json& config, const char* name);

/// Reads such a file, and believes nothing it says. `path` is one or a run's directory.
class ModelFile {
 public:
  /// SystemError(file) unless it is a model of this kind.
  ModelFile(const std::string& path, const std::string& kind);
  /// SystemError(file) when there is none.
  const std::string& metadata(const std::string& key) const;
  /// Of all tensors: what a configuration claims must agree before anything is allocated for it.
  int64_t elements() const;
  int64_t tensors() const { return static_cast<int64_t>(file_.entries().size()); }
  /// Parameters and buffers, in f32 whatever the file holds. SystemError(file) unless the file has
  /// just these, finite, and counts that can go on.
  void read_into(layers::Module& model) const;
  /// f(), whose UsageErrors and JSON errors become SystemErrors(file) naming the file.
  template <class F>
  auto checked(F f) const {
    try {
      return f();
    } catch (const nlohmann::ordered_json::exception&) {
      throw bad("its configuration cannot be read");
    } catch (const UsageError& e) {
      throw bad(e.what());
    }
  }
  SystemError bad(const std::string& what) const;

 private:
  std::string name_;
  SafetensorsReader file_;
};

}  // namespace lockstep::apps
