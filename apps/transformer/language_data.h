#pragma once
#include <memory>
#include <optional>
#include <string>

#include "data/dataset.h"

namespace lockstep::apps {

/// A text made ready for training: token windows, and a fixed tail that only evaluations see.
struct LanguageData {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  std::shared_ptr<const data::TokenWindows> training;
  std::shared_ptr<const data::TokenWindows> validation;  ///< null: none was asked for
  std::optional<double> best_loss;  ///< of synthetic texts: no model can do better
};

struct LanguageDataOptions {
  std::string text;   ///< a file, or `synthetic:order=2,letters=8,length=200000,seed=1`
  std::string vocab;  ///< "byte" or "char"
  int64_t context = 64;
  double val_fraction = 0.1;  ///< of the tokens, kept from training; at least one window unless 0
  int64_t val_tokens = 0;     ///< evaluate on the last so many of them; 0: on all
};
LanguageData load_language_data(const LanguageDataOptions& options);

/// What `--text help` prints.
std::string text_help();

}  // namespace lockstep::apps
