#pragma once
#include "apps/recommender/click_data.h"
#include "apps/recommender/dlrm.h"
#include "apps/training/run_options.h"

namespace lockstep::apps {

/// What `lockstep train recommender` can be told, with its defaults.
struct RecommenderOptions : RunOptions {
  RecommenderOptions();
  // model
  int64_t tables = 8, rows = 2000, dim = 16;
  std::vector<int64_t> bottom{512, 256, 64}, top{512, 256};
  std::string bag = "auto";
  // data
  std::string data = "synthetic";
  int64_t hash_rows = 0, negatives = 4;
  std::string categories = "hex", bad_rows = "stop";
  double val_fraction = 0.1;
  int64_t val_samples = 65536, eval_every = 200;
  // training
  std::string table_optimizer = "rowwise_adagrad";
  double table_lr = 0.02;

  void declare(OptionTable& table);
  /// As RunOptions does, with what only this app has.
  void resolve(const OptionTable& given);
  /// What the data decide: "auto" of --bag, and whether they suffice. UsageError.
  void resolve(const data::ClickSource& source);
  /// SystemError(device), with the sum, for tables that this machine cannot hold; UsageError for
  /// more rows than there are numbers of them.
  void check_memory(const data::ClickSchema& schema) const;

  ClickDataOptions click_data() const;
  DlrmConfig model(const data::ClickSchema& schema) const;
  /// As learning_rate(), at --table-lr.
  optim::Schedule table_learning_rate() const;
};

}  // namespace lockstep::apps
