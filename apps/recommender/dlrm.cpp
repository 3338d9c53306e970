#include "apps/recommender/dlrm.h"

#include "autograd/ops.h"
#include "core/kernels/interaction.h"

#include <cmath>

namespace lockstep::apps {
namespace {

using layers::Initialiser;

int64_t tables_of(const DlrmConfig& config) {
  return static_cast<int64_t>(config.table_rows.size());
}
int64_t bottom_input(const DlrmConfig& config) { return std::max<int64_t>(config.dense, 1); }
int64_t top_input(const DlrmConfig& config) {
  return kernel::interaction_width(1 + tables_of(config), config.dim);
}

// input, hidden…, output
std::vector<int64_t> widths(int64_t input, const std::vector<int64_t>& hidden, int64_t output) {
  std::vector<int64_t> all{input};
  all.insert(all.end(), hidden.begin(), hidden.end());
  all.push_back(output);
  return all;
}
double weights_of(const std::vector<int64_t>& widths) {
  double sum = 0;
  for (size_t i = 1; i < widths.size(); ++i)
    sum += static_cast<double>(widths[i - 1]) * static_cast<double>(widths[i]);
  return sum;
}

const DlrmConfig& checked(const DlrmConfig& config) {
  check_config(config);
  return config;
}

}  // namespace

void check_config(const DlrmConfig& c) {
  const auto positive = [](const char* name, int64_t value) {
    check(value >= 1, "[dlrm.config] {}; expected at least 1, got {}", name, value);
  };
  check(c.dense >= 0, "[dlrm.config] dense features; expected 0 or more, got {}", c.dense);
  positive("tables", tables_of(c));
  for (int64_t rows : c.table_rows) positive("rows of a table", rows);
  positive("dim", c.dim);
  for (int64_t width : c.bottom) positive("width of a bottom layer", width);
  for (int64_t width : c.top) positive("width of a top layer", width);
}

double product_flops(const DlrmConfig& c, int64_t samples) {
  const auto bottom = widths(bottom_input(c), c.bottom, c.dim),
             top = widths(top_input(c), c.top, 1);
  const double without_input = static_cast<double>(bottom[0]) * static_cast<double>(bottom[1]);
  const double vectors = static_cast<double>(1 + tables_of(c));
  const double pairs = vectors * (vectors - 1) / 2 * static_cast<double>(c.dim);
  return static_cast<double>(samples) *
         (6 * (weights_of(bottom) + weights_of(top) + pairs) - 2 * without_input);
}

// Linear layers with ReLU between. Parameters "N.weight", "N.bias".
class Dlrm::Tower final : public layers::Module {
 public:
  enum class Last { linear, relu };
  Tower(Initialiser& init, const std::vector<int64_t>& widths, Last last) : last_(last) {
    for (size_t i = 1; i < widths.size(); ++i) {
      layers_.push_back(std::make_unique<layers::Linear>(init, widths[i - 1], widths[i]));
      add_child(fmt::format("{}", i - 1), *layers_.back());
    }
  }

  Tensor operator()(Tensor x) const {
    for (size_t i = 0; i < layers_.size(); ++i) {
      const layers::Linear& layer = *layers_[i];
      const bool relu = i + 1 < layers_.size() || last_ == Last::relu;
      x = relu ? ops::linear_relu(x, layer.weight(), layer.bias()) : layer(x);
    }
    return x;
  }

 private:
  Last last_;
  std::vector<std::unique_ptr<layers::Linear>> layers_;
};

Dlrm::Dlrm(const DlrmConfig& config, uint64_t seed, const std::vector<int64_t>& local_rows)
    : config_(checked(config)), seed_(seed) {
  const bool whole = local_rows.empty() || local_rows == config_.table_rows;
  check(whole || local_rows.size() == config_.table_rows.size(),
        "[dlrm.config] local rows; expected those of {} tables, got {}", tables_of(config_),
        local_rows.size());
  const layers::EmbeddingTablesOptions options{.mode = config_.mode};
  tables_ = std::make_unique<layers::EmbeddingTables>(whole ? config_.table_rows : local_rows,
                                                      config_.dim, options);
  if (whole)
    initial_rows(tables_->weight(), 0);
  else
    kernel::fill(tables_->weight(), 0);
  Initialiser init(seed, static_cast<uint32_t>(tables_of(config_)));  // after those of the tables
  bottom_ = std::make_unique<Tower>(
      init, widths(bottom_input(config_), config_.bottom, config_.dim), Tower::Last::relu);
  top_ = std::make_unique<Tower>(init, widths(top_input(config_), config_.top, 1),
                                 Tower::Last::linear);
  add_child("bottom", *bottom_);
  add_child("top", *top_);
}

Dlrm::~Dlrm() = default;

Tensor Dlrm::logits(const Tensor& dense, const Tensor& rows, const Tensor& offsets,
                    const Tensor& weights) const {
  const int64_t bags = offsets.defined() ? offsets.numel() - 1 : rows.numel();
  const int64_t samples = bags / tables_of(config_);
  check(config_.dense == 0 || (dense.defined() && dense.shape() == Shape{samples, config_.dense}),
        "[dlrm.logits] dense; expected [{}, {}] beside {} bags of {} tables, got {}", samples,
        config_.dense, bags, tables_of(config_),
        dense.defined() ? to_string(dense.shape()) : "none");
  const Tensor features = config_.dense > 0 ? dense : full({samples, 1}, 1);
  const Tensor vectors = (*tables_)(rows, offsets, weights, (*bottom_)(features));
  return ops::reshape((*top_)(ops::dot_interaction(vectors)), {samples});
}

Tensor Dlrm::loss_sum(const Tensor& dense, const Tensor& rows, const Tensor& offsets,
                      const Tensor& weights, const Tensor& labels) const {
  return ops::bce_with_logits_sum(logits(dense, rows, offsets, weights), labels);
}

// Table t draws from key t.
void Dlrm::initial_rows(const Tensor& out, int64_t first_row) const {
  check(out.rank() == 2 && out.size(1) == config_.dim && first_row >= 0,
        "[dlrm.initial_rows] out; expected [n, {}] from row 0 or later, got {} from row {}",
        config_.dim, out, first_row);
  const int64_t end = checked_add(first_row, out.size(0));
  int64_t begin_of_table = 0;
  for (size_t t = 0; t < config_.table_rows.size(); ++t) {
    const int64_t rows = config_.table_rows[t], end_of_table = begin_of_table + rows;
    const int64_t from = std::max(first_row, begin_of_table), to = std::min(end, end_of_table);
    if (from < to)
      Initialiser(seed_, static_cast<uint32_t>(t))
          .uniform(out.slice(from - first_row, to - first_row),
                   1 / std::sqrt(static_cast<double>(rows)), (from - begin_of_table) * config_.dim);
    begin_of_table = end_of_table;
  }
  check(end <= begin_of_table, "[dlrm.initial_rows] rows; expected at most {}, got {}",
        begin_of_table, end);
}

}  // namespace lockstep::apps
