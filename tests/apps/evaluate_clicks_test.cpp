#include "apps/recommender/evaluate_clicks.h"

#include "autograd/no_grad.h"
#include "data/log_loss.h"
#include "data/synthetic_clicks.h"
#include "distributed/comm/launch.h"

#include <gtest/gtest.h>

namespace lockstep::apps {
namespace {

constexpr int64_t kSamples = 203;  // of 300 held-out ones the last
const data::SyntheticClicks kSource(
    {.tables = 3, .rows = 20, .dense = 2, .largest_bag = 3, .samples = 1000, .held_out = 300});

DlrmConfig shape() {
  return {
      .dense = 2, .table_rows = kSource.schema().table_rows, .dim = 4, .bottom = {8}, .top = {8}};
}

// On a rank of a run that has just begun.
ClickEvaluation evaluate_on(distributed::Communicator& comm, const std::string& tables,
                            int64_t count, int64_t rows) {
  const auto sync = distributed::make_table_sync(tables);
  distributed::TableContext context{.comm = &comm,
                                    .rows = kSource.schema().table_rows,
                                    .width = 4,
                                    .lookups = 3 * rows,
                                    .initial = {},
                                    .optimizer = [](const Tensor& all) {
                                      return optim::make_table_optimizer("sgd", all, {.lr = 1});
                                    }};
  Dlrm model(shape(), 1, sync->local_rows(context));
  context.initial = [&](const Tensor& out, int64_t row) { model.initial_rows(out, row); };
  sync->attach(context, model.tables().weight(), model.tables().gradient());
  sync->before_evaluation();
  const ClickEvaluation seen = evaluate_clicks(model, *sync, kSource, count, rows, &comm);
  sync->after_evaluation();
  return seen;
}

// From all pairs and all samples at once.
struct Naive {
  Naive() {
    const autograd::NoGrad no_grad;
    data::ClickBuffer buffer(kSource.schema(), kSamples);
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < kSamples; ++i) numbers.push_back(1000 + 300 - kSamples + i);
    kSource.fill(numbers, buffer);
    const data::ClickBatch& batch = buffer.batch();
    const Tensor logits = Dlrm(shape(), 1).logits(batch.dense, batch.rows, batch.offsets);
    const float *x = logits.data<float>(), *y = batch.labels.data<float>();
    double wins = 0, pairs = 0, clicks = 0, predicted = 0;
    for (int64_t i = 0; i < kSamples; ++i) {
      log_loss += data::log_loss(x[i], y[i]) / static_cast<double>(kSamples);
      clicks += y[i];
      predicted += data::sigmoid(x[i]);
      for (int64_t j = 0; j < kSamples; ++j)
        if (y[i] == 1 && y[j] == 0) {
          ++pairs;
          wins += x[i] > x[j] ? 1 : x[i] == x[j] ? 0.5 : 0;
        }
    }
    auc = wins / pairs;
    calibration = predicted / clicks;
  }
  double auc, log_loss = 0, calibration;
};

TEST(EvaluateClicks, FindsTheSameOnAnyRanksWhereverTablesAre) {
  const Naive naive;
  ClickEvaluation first;
  for (const char* tables : {"gathered", "sharded", "async"})
    for (const auto& [ranks, rows] : {std::pair{1, 203}, {1, 10}, {2, 50}, {5, 300}, {7, 3}})
      distributed::run_ranks(ranks, [&, rows = rows](distributed::Communicator& comm) {
        const ClickEvaluation seen = evaluate_on(comm, tables, kSamples, rows);
        if (comm.size() == 1 && rows == 203) first = seen;
        EXPECT_EQ(seen.samples, kSamples);
        ASSERT_TRUE(seen.auc && seen.calibration && seen.calibration_error);
        EXPECT_DOUBLE_EQ(*seen.auc, naive.auc);
        EXPECT_NEAR(seen.log_loss, naive.log_loss, 1e-12);
        EXPECT_NEAR(*seen.calibration, naive.calibration, 1e-6);
        EXPECT_EQ(*seen.calibration, *first.calibration) << tables;
        EXPECT_EQ(*seen.calibration_error, *first.calibration_error) << tables;
      });
}

TEST(EvaluateClicks, MoreRanksThanSamples) {
  for (const char* tables : {"gathered", "sharded"})
    distributed::run_ranks(5, [&](distributed::Communicator& comm) {
      EXPECT_EQ(evaluate_on(comm, tables, 2, 10).samples, 2);
    });
}

}  // namespace
}  // namespace lockstep::apps
