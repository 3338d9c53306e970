#include "apps/transformer/model_file.h"

#include "apps/report/run_directory.h"
#include "core/check.h"
#include "core/kernels/elementwise.h"
#include "core/safetensors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sys/stat.h>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

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
  c.vocab = j.at("vocab").get<int64_t>();
  c.layers = j.at("layers").get<int64_t>();
  c.heads = j.at("heads").get<int64_t>();
  c.width = j.at("width").get<int64_t>();
  c.context = j.at("context").get<int64_t>();
  c.bias = j.at("bias").get<bool>();
  const auto gelu = j.at("gelu").get<std::string>();
  check(gelu == "exact" || gelu == "tanh", "gelu: expected exact or tanh, got {}", printable(gelu));
  c.gelu = gelu == "exact" ? kernel::Gelu::exact : kernel::Gelu::tanh;
  c.dropout = j.at("dropout").get<float>();
  check_config(c);
  return c;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// The parameters a file holds; what a config claims must agree before anything is allocated for it.
int64_t elements(const SafetensorsReader& file) {
  int64_t n = 0;
  for (const auto& entry : file.entries()) n = checked_add(n, entry.shape.numel());
  return n;
}

}  // namespace

void save_model(const std::string& path, const GptConfig& config, const data::Tokenizer& tokenizer,
                const optim::FlatParams& params, const Tensor& weights) {
  std::vector<NamedTensor> tensors;
  ordered_json aliases = ordered_json::object();
  for (auto i = static_cast<int>(params.slices().size()) - 1; i >= 0;
       --i) {  // in order of construction
    const optim::ParamSlice& slice = params.slices()[static_cast<size_t>(i)];
    tensors.push_back({slice.name, weights.slice(slice.begin, slice.end).reshape(slice.shape)});
    for (const std::string& alias : slice.aliases) aliases[alias] = slice.name;
  }
  write_safetensors(path, tensors,
                    {{"format", "lockstep"},
                     {"kind", "gpt"},
                     {"config", to_json(config).dump()},
                     {"tokenizer", tokenizer.to_json()},
                     {"aliases", aliases.dump()}});
}

LoadedModel load_model(const std::string& path) {
  const std::string name = is_folder(path) ? path + "/" + kModelFile : path;
  const SafetensorsReader file(name);
  const auto bad = [&](const std::string& what) {
    return SystemError(Fault::file,
                       fmt::format("{} is no model of ours: {}", printable(name), what));
  };
  const auto metadata = [&](const char* key) {
    const auto found = file.metadata().find(key);
    if (found == file.metadata().end()) throw bad(fmt::format("expected {} in its metadata", key));
    return found->second;
  };
  if (metadata("kind") != "gpt")
    throw bad(fmt::format("expected kind gpt, got {}", printable(metadata("kind"))));
  try {
    const GptConfig config = config_from(ordered_json::parse(metadata("config")));
    if (parameter_count(config) != elements(file) ||
        config.layers > static_cast<int64_t>(file.entries().size()))
      throw bad(
          fmt::format("expected {} parameters, got {}", parameter_count(config), elements(file)));
    LoadedModel loaded;
    loaded.tokenizer = data::tokenizer_from_json(metadata("tokenizer"));
    if (loaded.tokenizer->vocab() != config.vocab)
      throw bad(fmt::format("expected {} tokens, the tokenizer has {}", config.vocab,
                            loaded.tokenizer->vocab()));
    loaded.model = std::make_unique<Gpt>(config, 0);
    const auto parameters = loaded.model->parameters();
    if (parameters.size() != file.entries().size())
      throw bad(
          fmt::format("expected {} tensors, got {}", parameters.size(), file.entries().size()));
    for (const layers::Parameter& p : parameters) {
      const SafetensorsReader::Entry& stored = file.entry(p.name);
      check(is_floating(stored.dtype) && stored.shape == p.slot->shape(),
            "{}; expected floats {}, got {} {}", p.name, p.slot->shape(), name_of(stored.dtype),
            stored.shape);
      kernel::cast(*p.slot, file.read(p.name));
    }
    loaded.model->set_mode(layers::Module::Mode::evaluate);
    return loaded;
  } catch (const ordered_json::exception&) {
    throw bad("its configuration cannot be read");
  } catch (const UsageError& e) {
    throw bad(e.what());
  }
}

}  // namespace lockstep::apps
