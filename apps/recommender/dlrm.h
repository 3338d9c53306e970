#pragma once
#include "layers/embedding_tables.h"
#include "layers/linear.h"

#include <memory>
#include <vector>

namespace lockstep::apps {

struct DlrmConfig {
  int64_t dense = 13;               ///< features of a sample; 0: the bottom MLP sees a constant 1
  std::vector<int64_t> table_rows;  ///< of each table, at least one
  int64_t dim = 16;                 ///< of the rows, and of what the bottom MLP gives
  std::vector<int64_t> bottom{512, 256, 64}, top{512, 256};  ///< hidden widths
  BagMode mode = BagMode::sum;
};

/// UsageError with the first thing that does not fit.
void check_config(const DlrmConfig& config);

/// Floating-point operations of the products in one training step on `samples` samples: two a
/// weight and sample forward, four backward (two, where no gradient of the input is wanted), and
/// those of the interaction's pairs.
double product_flops(const DlrmConfig& config, int64_t samples);

/// The recommender of Naumov et al. 2019 (arXiv:1906.00091): a bottom MLP on dense features, bags
/// of embedding tables, the products of all pairs of these vectors, a top MLP on what the bottom
/// MLP gave and the products, a logit. ReLU follows every layer but the last.
///
/// Parameters: bottom.N.weight, bottom.N.bias, top.N.weight, top.N.bias. The tables are none: see
/// EmbeddingTables.
class Dlrm final : public layers::Module {
 public:
  /// Values depend on config and seed alone. `local_rows`: as many rows of each table as this model
  /// holds (empty: all of them); where these are not all, they begin as 0, to be filled by who
  /// knows which rows they are.
  Dlrm(const DlrmConfig& config, uint64_t seed, const std::vector<int64_t>& local_rows = {});
  ~Dlrm() override;

  /// [B], for dense [B, F] (may be undefined where F is 0); rows, offsets and weights are
  /// kernel::Bags of the rows held.
  Tensor logits(const Tensor& dense, const Tensor& rows, const Tensor& offsets = {},
                const Tensor& weights = {}) const;
  /// Σ over samples of the cross-entropy against labels [B], 0 to 1.
  Tensor loss_sum(const Tensor& dense, const Tensor& rows, const Tensor& offsets,
                  const Tensor& weights, const Tensor& labels) const;

  layers::EmbeddingTables& tables() { return *tables_; }
  const DlrmConfig& config() const { return config_; }

  /// Initial values of rows [first_row, first_row + n) of the flat tables into out [n, dim],
  /// whoever holds them.
  void initial_rows(const Tensor& out, int64_t first_row) const;

 private:
  class Tower;
  DlrmConfig config_;
  uint64_t seed_;
  std::unique_ptr<layers::EmbeddingTables> tables_;
  std::unique_ptr<Tower> bottom_, top_;
};

}  // namespace lockstep::apps
