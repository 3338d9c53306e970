#pragma once
#include <memory>
#include <string>

#include "apps/transformer/gpt.h"
#include "data/text.h"
#include "optim/flat_params.h"

namespace lockstep::apps {

/// Writes a trained model (apps/training/model_file.h) of kind gpt, whose metadata holds `config`
/// and `tokenizer` (JSON) besides.
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
