#pragma once
#include <memory>
#include <string>

#include "apps/transformer/gpt.h"
#include "data/text.h"
#include "optim/flat_params.h"

namespace lockstep::apps {

/// A trained model as one safetensors file: the parameters under their names, taken from `weights`
/// (flat, as params.all(): the fp32 master where the optimiser has one), and in the metadata
/// what it takes to use them: `format` lockstep, `kind` gpt, `config`, `tokenizer`, `aliases`
/// (JSON).
void save_model(const std::string& path, const GptConfig& config, const data::Tokenizer& tokenizer,
                const optim::FlatParams& params, const Tensor& weights);

struct LoadedModel {
  std::unique_ptr<Gpt> model;  ///< in evaluation mode
  std::unique_ptr<data::Tokenizer> tokenizer;
};
/// In f32, whatever the file holds. `path` is such a file or a run's directory. SystemError(file)
/// for anything that does not fit.
LoadedModel load_model(const std::string& path);

}  // namespace lockstep::apps
