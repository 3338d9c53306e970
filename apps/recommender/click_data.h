#pragma once
#include "data/best_possible.h"
#include "data/click_row.h"
#include "data/clicks.h"

#include <functional>
#include <memory>
#include <string>

namespace lockstep::apps {

/// Clicks made ready for training.
struct ClickData {
  std::shared_ptr<const data::ClickSource> source;
  /// Of synthetic clicks, of which no model can do better; null for others. Takes a moment.
  std::function<data::BestPossible()> find_best;
};

struct ClickDataOptions {
  std::string spec;                 ///< "synthetic:zipf=1.2", "criteo:FILE"; see click_data_help()
  int64_t tables = 8, rows = 2000;  ///< of synthetic clicks
  int64_t hash_rows = 0;            ///< 0: what the kind of file has by default
  data::Categories categories = data::Categories::hexadecimal;  ///< of criteo files
  int64_t negatives = 4;                                        ///< of interactions
  data::BadRows bad_rows = data::BadRows::stop;
  double val_fraction = 0.1;  ///< of a file's lines, kept from training
  int64_t val_samples = 0;    ///< how many of the last held-out ones are evaluated; 0: all
};
/// UsageError for a spec of no known kind or setting, SystemError(file) for a file.
ClickData load_click_data(const ClickDataOptions& options);

/// The kind of data that a spec names: "criteo". UsageError when there is none of that name.
std::string click_data_kind(const std::string& spec);

/// What `--data help` prints.
std::string click_data_help();

}  // namespace lockstep::apps
