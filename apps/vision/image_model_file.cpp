#include "apps/vision/image_model_file.h"

#include "apps/training/model_file.h"
#include "layers/batch_norm.h"

#include <fmt/format.h>

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;
using Norm = ResidualNetConfig::Norm;

constexpr char kKind[] = "residual_net";
constexpr std::pair<Norm, const char*> kNorms[] = {
    {Norm::batch, "batch"}, {Norm::group, "group"}, {Norm::none, "none"}};

ordered_json to_json(const ResidualNetConfig& c) {
  ordered_json json{
      {"channels", c.channels}, {"classes", c.classes}, {"width", c.width}, {"blocks", c.blocks}};
  for (const auto& [norm, name] : kNorms)
    if (norm == c.norm) json["norm"] = name;
  if (c.norm == Norm::group) json["groups"] = c.groups;
  return json;
}

ResidualNetConfig config_from(const ordered_json& j) {
  ResidualNetConfig c;
  c.channels = integer_at(j, "channels");
  c.classes = integer_at(j, "classes");
  c.width = integer_at(j, "width");
  c.blocks = integer_at(j, "blocks");
  const auto norm = j.at("norm").get<std::string>();
  bool known = false;
  for (const auto& [value, name] : kNorms)
    if (norm == name) c.norm = value, known = true;
  check(known, "norm: expected batch, group or none, got {}", printable(norm));
  if (c.norm == Norm::group) c.groups = integer_at(j, "groups");
  check_config(c);
  return c;
}

ResidualNetConfig config_of(const ModelFile& file) {
  return file.checked([&] { return config_from(ordered_json::parse(file.metadata("config"))); });
}

// Parameters and statistics.
void read(const ModelFile& file, ResidualNet& model) {
  file.read_into(model);
  model.visit([&](const std::string& name, layers::Module& module) {
    const auto* norm = dynamic_cast<const layers::BatchNorm*>(&module);
    if (norm == nullptr) return;
    const Tensor& variance = norm->running_variance();
    for (int64_t i = 0; i < variance.numel(); ++i)
      if (const float value = variance.data<float>()[i]; value < 0)
        throw file.bad(fmt::format("{}.running_var; expected at least 0, got {}", name, value));
  });
}

}  // namespace

void save_image_model(const std::string& path, ResidualNet& model, const optim::FlatParams& params,
                      const Tensor& weights) {
  write_model(path, kKind, {{"config", to_json(model.config()).dump()}}, params, weights,
              model.buffers());
}

std::unique_ptr<ResidualNet> load_image_model(const std::string& path) {
  const ModelFile file(path, kKind);
  const ResidualNetConfig config = config_of(file);
  const int64_t parameters = file.checked([&] { return parameter_count(config); });
  if (parameters > file.elements() || config.blocks > file.tensors())
    throw file.bad(
        fmt::format("expected {} parameters, got {} values", parameters, file.elements()));
  auto model = std::make_unique<ResidualNet>(config, 0);
  read(file, *model);
  model->set_mode(layers::Module::Mode::evaluate);
  return model;
}

void load_into(ResidualNet& model, const std::string& path) {
  const ModelFile file(path, kKind);
  const ordered_json stored = to_json(config_of(file)), wanted = to_json(model.config());
  if (stored != wanted)
    throw SystemError(Fault::file,
                      fmt::format("{}: a model of another configuration; expected {}, got {}",
                                  printable(path), wanted.dump(), stored.dump()));
  read(file, model);
}

}  // namespace lockstep::apps
