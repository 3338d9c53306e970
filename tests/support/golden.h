#pragma once
#include "apps/transformer/gpt.h"
#include "core/kernels/elementwise.h"
#include "core/safetensors.h"

#include "test_paths.h"

/// What tests/golden/make_golden.py computed with PyTorch.
namespace lockstep::testing {

inline const char* const kGoldenFiles[] = {"gpt_bias_tanh", "gpt_nobias_exact"};

struct Golden {
  explicit Golden(const std::string& name)
      : file(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/" + name + ".safetensors") {}

  Tensor operator[](const std::string& name) const { return file.read(name); }
  std::string text(const std::string& key) const { return file.metadata().at(key); }
  int64_t integer(const std::string& key) const { return std::stoll(text(key)); }
  double number(const std::string& key) const { return std::stod(text(key)); }

  apps::GptConfig config() const {
    return {.vocab = integer("vocab"),
            .layers = integer("layers"),
            .heads = integer("heads"),
            .width = integer("width"),
            .context = integer("context"),
            .bias = text("bias") == "on",
            .gelu = text("gelu") == "exact" ? kernel::Gelu::exact : kernel::Gelu::tanh};
  }
  /// Gives every parameter of `module` the value of param/`prefix` + its name.
  void load(layers::Module& module, const std::string& prefix = "") const {
    for (const layers::Parameter& p : module.parameters())
      kernel::copy(*p.slot, file.read("param/" + prefix + p.name));
  }

  SafetensorsReader file;
};

}  // namespace lockstep::testing
