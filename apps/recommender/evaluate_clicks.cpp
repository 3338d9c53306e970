#include "apps/recommender/evaluate_clicks.h"

#include "apps/cli/interrupt.h"
#include "autograd/no_grad.h"
#include "core/kernels/elementwise.h"
#include "data/auc.h"
#include "data/calibration.h"
#include "data/log_loss.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace lockstep::apps {
namespace {

using data::ClickBatch;

// Rounds after which ranks ask each other whether to go on: those that fetch rows together must
// end together.
constexpr int64_t kAgree = 16;

// What ranks add up: everything but the scores, which they send each other.
struct Sums {
  data::Auc auc;
  data::Calibration calibration;
  double log_loss = 0;

  void add(std::span<const float> logits, std::span<const float> labels) {
    for (size_t i = 0; i < logits.size(); ++i) log_loss += data::log_loss(logits[i], labels[i]);
    auc.add(logits, labels);
    if (!std::isnan(log_loss)) calibration.add(logits, labels);
  }
};

Tensor logits_of(const Dlrm& model, distributed::TableSync& tables, const ClickBatch& batch) {
  const Tensor rows = tables.fetch(batch.rows, batch.offsets);
  const bool weighted = model.config().mode == BagMode::weighted;
  const Tensor logits =
      model.logits(batch.dense, rows, batch.offsets, weighted ? batch.weights : Tensor());
  const Tensor wide = Tensor::empty(logits.shape(), DType::f32);
  kernel::cast(wide, logits);
  return wide;
}

std::span<const float> floats(const Tensor& x) {
  return {x.data<float>(), static_cast<size_t>(x.numel())};
}

// The first signal that any rank got; 0: none did.
int agreed_signal(distributed::Communicator* comm) {
  const int own = interrupt_signal();
  if (comm == nullptr) return own;
  const distributed::Untimed books(*comm);
  const Tensor all = Tensor::empty({comm->size()}, DType::i64);
  comm->all_gather_v(all, from_values<int64_t>({own}), {}, {"evaluation goes on"})->wait();
  for (int rank = 0; rank < comm->size(); ++rank)
    if (all.data<int64_t>()[rank] != 0) return static_cast<int>(all.data<int64_t>()[rank]);
  return 0;
}

// Every rank's sums, merged in rank order.
Sums merged(const Sums& mine, distributed::Communicator& comm) {
  const distributed::Untimed books(comm);
  const auto positives = mine.auc.positives(), negatives = mine.auc.negatives();
  std::vector<int64_t> numbers{std::bit_cast<int64_t>(mine.log_loss),
                               static_cast<int64_t>(positives.size()),
                               static_cast<int64_t>(negatives.size())};
  const size_t first_sum = numbers.size();
  const auto sums = mine.calibration.sums();
  numbers.insert(numbers.end(), sums.begin(), sums.end());
  const auto width = static_cast<int64_t>(numbers.size());
  const Tensor all = Tensor::empty({width * comm.size()}, DType::i64);
  comm.all_gather_v(all, from_values(numbers), {}, {"evaluation"})->wait();

  std::vector<int64_t> counts;
  const auto of_rank = [&](int rank) { return all.data<int64_t>() + width * rank; };
  for (int rank = 0; rank < comm.size(); ++rank)
    counts.push_back(of_rank(rank)[1] + of_rank(rank)[2]);
  std::vector<float> own(positives.begin(), positives.end());
  own.insert(own.end(), negatives.begin(), negatives.end());
  const Tensor scores = Tensor::empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})});
  comm.all_gather_v(scores, from_values(own), counts, {"evaluation scores"})->wait();

  Sums total;
  const float* at = scores.data<float>();
  for (int rank = 0; rank < comm.size(); ++rank) {
    const int64_t* n = of_rank(rank);
    total.log_loss += std::bit_cast<double>(n[0]);
    const auto clicks = static_cast<size_t>(n[1]), others = static_cast<size_t>(n[2]);
    total.auc.merge({at, clicks}, {at + clicks, others});
    total.calibration.merge({n + first_sum, sums.size()});
    at += clicks + others;
  }
  return total;
}

}  // namespace

ClickEvaluation evaluate_clicks(Dlrm& model, distributed::TableSync& tables,
                                const data::ClickSource& source, int64_t count, int64_t rows,
                                distributed::Communicator* comm) {
  const int ranks = comm ? comm->size() : 1, self = comm ? comm->rank() : 0;
  const autograd::NoGrad no_grad;
  const int64_t first = source.samples() + source.held_out() - count;
  const data::Shard mine = data::shard(count, ranks, self, data::Sharding::exact);
  // Tables may be fetched together, so all ranks do it as often as the one with most samples.
  const int64_t rounds = ((count + ranks - 1) / ranks + rows - 1) / rows;
  data::ClickBuffer buffer(source.schema(), rows);
  std::vector<int64_t> samples;
  Sums sums;
  for (int64_t round = 0; round < rounds; ++round) {
    if (comm == nullptr || round % kAgree == 0)
      if (const int signal = agreed_signal(comm)) return {.signal = signal};
    samples.clear();
    const int64_t end = std::min((round + 1) * rows, mine.count());
    for (int64_t i = round * rows; i < end; ++i) samples.push_back(first + mine.sample(i));
    if (!samples.empty()) source.fill(samples, buffer);
    if (samples.empty() || buffer.batch().samples() == 0) {
      tables.fetch({}, {});
    } else {
      const Tensor logits = logits_of(model, tables, buffer.batch());
      sums.add(floats(logits), floats(buffer.batch().labels));
    }
    if (comm) comm->progress();
  }
  if (comm) sums = merged(sums, *comm);
  ClickEvaluation result{.auc = sums.auc.value()};
  result.samples = static_cast<int64_t>(sums.auc.positives().size() + sums.auc.negatives().size());
  result.log_loss = sums.log_loss / static_cast<double>(result.samples);
  if (std::isnan(sums.log_loss)) return result;  // of those probabilities there is no more to tell
  result.calibration = sums.calibration.ratio();
  result.calibration_error = sums.calibration.error();
  return result;
}

}  // namespace lockstep::apps
