#include "apps/transformer/model_file.h"

#include "apps/training/model_file.h"
#include "core/check.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

constexpr char kKind[] = "gpt";

ordered_json to_json(const GptConfig& c) {
  return {{"vocab", c.vocab},
          {"layers", c.layers},
          {"heads", c.heads},
          {"width", c.width},
          {"context", c.context},
          {"bias", c.bias},
          {"gelu", c.gelu == kernel::Gelu::exact ? "exact" : "tanh"},
          {"dropout", c.dropout}};
}

GptConfig config_from(const ordered_json& j) {
  GptConfig c;
  c.vocab = integer_at(j, "vocab");
  c.layers = integer_at(j, "layers");
  c.heads = integer_at(j, "heads");
  c.width = integer_at(j, "width");
  c.context = integer_at(j, "context");
  c.bias = j.at("bias").get<bool>();
  const auto gelu = j.at("gelu").get<std::string>();
  check(gelu == "exact" || gelu == "tanh", "gelu: expected exact or tanh, got {}", printable(gelu));
  c.gelu = gelu == "exact" ? kernel::Gelu::exact : kernel::Gelu::tanh;
  c.dropout = j.at("dropout").get<float>();
  check_config(c);
  return c;
}

}  // namespace

void save_model(const std::string& path, const GptConfig& config, const data::Tokenizer& tokenizer,
                const optim::FlatParams& params, const Tensor& weights) {
  write_model(path, kKind, {{"config", to_json(config).dump()}, {"tokenizer", tokenizer.to_json()}},
              params, weights, {});
}

LoadedModel load_model(const std::string& path) {
  const ModelFile file(path, kKind);
  return file.checked([&] {
    const GptConfig config = config_from(ordered_json::parse(file.metadata("config")));
    if (parameter_count(config) != file.elements() || config.layers > file.tensors())
      throw file.bad(
          fmt::format("expected {} parameters, got {}", parameter_count(config), file.elements()));
    LoadedModel loaded;
    loaded.tokenizer = data::tokenizer_from_json(file.metadata("tokenizer"));
    if (loaded.tokenizer->vocab() != config.vocab)
      throw file.bad(fmt::format("expected {} tokens, the tokenizer has {}", config.vocab,
                                 loaded.tokenizer->vocab()));
    loaded.model = std::make_unique<Gpt>(config, 0);
    file.read_into(*loaded.model);
    loaded.model->set_mode(layers::Module::Mode::evaluate);
    return loaded;
  });
}

}  // namespace lockstep::apps
