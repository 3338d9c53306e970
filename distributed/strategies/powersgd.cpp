// PowerSGD (Vogels, Karimireddy & Jaggi 2019, arXiv:1905.13727, algorithms 1 and 2): gradients of
// matrices travel as two factors of rank r, found by one step of a power iteration that starts
// where the window before ended. With what a rank has not sent yet, its residual e_i,
//     M_i ← g_i + e_i      P ← Σ M_i·Q      P̂ ← orthonormal columns of P
//     Q ← Σ M_iᵀ·P̂         the step uses P̂·Qᵀ      e_i ← M_i - P̂·(M_iᵀ·P̂)ᵀ
// so that Σ sent + Σ residuals = Σ gradients. A residual is what this rank sent subtracted from
// what it had, not the mean of all. Moves 2·(n-1)/n f32 of the factors, r·(rows + columns) a
// matrix, and of what is dense, in two all-reduces a bucket: P and the dense rest leave while
// backward goes on, Q when it is over.
//
// A parameter of d dimensions is a matrix of its first against the others. Vectors, and matrices
// whose factors would not be `min_ratio` times smaller, travel as they are, in f32, and come out
// as under `allreduce` on an f32 wire. The first `warmup` windows that are applied are `allreduce`.
//
// CONTRACT: residuals are f32, unscaled and in flat coordinates, so that neither a loss scale that
// moves nor another bucket size changes anything; they and the start of the power iteration are
// state. A window that is skipped leaves both as they were. So does one in which no rank used the
// parameter: nothing is sent for it. Products that overflow f32 skip the step on all ranks. Factors
// that came out as zero (a matrix of lower rank) start anew from random numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/kernels/elementwise.h"
#include "core/kernels/matmul.h"
#include "core/kernels/reduce.h"
#include "distributed/compress/low_rank.h"
#include "distributed/sync_strategy.h"

namespace lockstep::distributed {
namespace {

class PowerSgd final : public SyncStrategy {
 public:
  explicit PowerSgd(const Spec& spec)
      : rank_(spec.integer("rank", 2, {.min = 1, .max = 4096})),
        warmup_(spec.integer("warmup", 0, {.min = 0})),
        min_ratio_(spec.number("min_ratio", 2, {.min = 0})) {}

  void attach(SyncContext& context) override {
    SyncStrategy::attach(context);
    const optim::FlatView& all = context.params->all();
    for (Tensor& residual : residual_) residual = zeros({all.numel()}, DType::f32);
    plan(context);
    const auto buffer = [](int64_t numel) { return Tensor::empty({numel}, DType::f32); };
    first_ = buffer(first_numel_);
    second_ = buffer(second_numel_);
    mine_ = buffer(second_numel_);
    basis_ = zeros({second_numel_}, DType::f32);
    make_views(context);
    for (const Matrix& m : matrices_) next_basis(m.basis, m.basis, start_of(m));
  }

  void on_bucket(GradientBucket& bucket) override {
    if (warming_up()) {
      bucket.work = context_->exchange->sum(bucket.view, {"bucket", bucket.index});
      return;
    }
    const Bucket& b = buckets_[static_cast<size_t>(bucket.index)];
    if (bucket.index == 0) begin_window();
    for (const Dense& dense : b.dense) kernel::cast(dense.sent, dense.grad);
    for (size_t i = b.begin; i < b.end; ++i) {
      const Matrix& m = matrices_[i];
      const Tensor& x = m.residual[1 - current_];  // M: becomes the next residual
      kernel::scale(x, m.grad, static_cast<float>(1 / scale_));
      kernel::add_scaled(x, m.residual[current_], 1);
      kernel::matmul(m.left, m.basis, x, {.trans_b = true});
    }
    if (b.first.numel() > 0)
      bucket.work =
          context_->comm->all_reduce(b.first, {.tag = {"factors of bucket", bucket.index}});
  }

  void before_step() override {
    if (warming_up()) return;
    for (Bucket& b : buckets_) {
      finite_ &= kernel::first_non_finite(b.first) < 0;
      send_second(b);
    }
    const auto factor = static_cast<float>(context_->exchange->factor());
    const bool narrow = size_of(context_->params->all().grad.dtype()) == 2;
    for (Bucket& b : buckets_) {
      for (size_t i = b.begin; i < b.end; ++i)
        kernel::matmul(matrices_[i].residual[1 - current_], matrices_[i].left, matrices_[i].mine,
                       {.trans_a = true, .accumulate = true});
      for (const Dense& dense : b.dense) kernel::scale(dense.grad, dense.sent, factor);
    }
    for (Bucket& b : buckets_) {
      if (b.work) b.work->wait();
      b.work.reset();
      kernel::scale(b.second, b.second, static_cast<float>(scale_ * double{factor}));
      for (size_t i = b.begin; i < b.end; ++i)
        kernel::matmul(matrices_[i].grad, matrices_[i].left, matrices_[i].right, {.trans_a = true});
      finite_ &= kernel::first_non_finite(narrow ? b.view.grad : b.second) < 0;
    }
  }

  // Nothing is sent for what nobody used, as nothing is stepped there. All ranks have the same
  // sums, hence the same opinion.
  StepVerdict judge(const StepVerdict& fresh) override {
    if (warming_up()) return fresh;
    StepVerdict verdict = fresh;
    verdict.finite &= finite_;
    verdict.apply &= finite_;
    for (Matrix& m : matrices_) {
      m.used = fresh.used.empty() || fresh.used[static_cast<size_t>(m.slice)] != 0;
      if (!m.used) kernel::fill(m.grad, 0);
    }
    return verdict;
  }

  void resolve(bool applied) override {
    SyncStrategy::resolve(applied);
    if (!applied) return;
    if (!warming_up()) {
      for (const Matrix& m : matrices_)
        if (m.used)
          next_basis(m.basis, m.right, start_of(m));
        else
          kernel::copy(m.residual[1 - current_], m.residual[current_]);
      current_ = 1 - current_;
    }
    ++windows_;
  }

  std::string_view tables() const override { return "gathered"; }
  bool synchronous() const override { return false; }  // it loses what is not of rank r
  bool sends_gradients() const override { return false; }
  bool keeps_residuals() const override { return true; }
  double bytes_per_step() const override {
    if (warming_up()) return all_reduce_bytes(*context_);
    return all_reduce_bytes(*context_, first_.bytes() + second_.bytes());
  }

  void report(StrategyReport& report) override {
    if (warming_up()) return;
    report.add("compression", static_cast<double>(context_->params->all().numel()) /
                                  static_cast<double>(first_numel_ + second_numel_));
    const double weight = context_->exchange->terms().weight;  // of this rank's last window
    if (weight > 0)                                            // as that of a mean gradient
      report.add("residual_norm", std::sqrt(kernel::sum_of_squares(residual_[current_])) / weight);
  }

  void state(StateIo& io) override {
    SyncStrategy::state(io);
    io.value("powersgd.windows", windows_, Fold::replicated);
    io.flat("powersgd.basis", basis_, Fold::replicated);
    io.flat("powersgd.residual", residual_[current_], Fold::sum_over_ranks);
  }

 private:
  // Factors are stored with their columns as rows, one after the other.
  struct Matrix {
    int slice = 0;
    int64_t rows = 0, columns = 0, rank = 0;
    int64_t first = 0, second = 0;  // where its factors begin in the buffers
    Tensor grad;                    // [rows, columns]
    Tensor residual[2];
    Tensor left;                // P, its sum, P̂: [rank, rows]
    Tensor right, mine, basis;  // the sum over ranks, minus this rank's, the start: [rank, columns]
    bool used = true;
  };
  struct Dense {
    int slice = 0;
    int64_t first = 0;
    Tensor grad, sent;
  };
  struct Bucket {
    optim::FlatView view;
    size_t begin = 0, end = 0;  // of its matrices
    std::vector<Dense> dense;
    Tensor first, second;
    WorkPtr work;  // of `second`
  };

  bool warming_up() const { return windows_ < warmup_; }
  NextBasis start_of(const Matrix& m) const {
    return {.key = static_cast<uint32_t>(m.slice), .first = windows_ * m.rank * m.columns};
  }

  // Where everything goes. What belongs to a bucket lies together.
  void plan(const SyncContext& context) {
    for (const GradientBucket& bucket : context.buckets) {
      Bucket b;
      b.view = bucket.view;
      b.begin = matrices_.size();
      for (int i = bucket.first_slice; i < bucket.last_slice; ++i) {
        const Shape& shape = context.params->slices()[i].shape;
        const int64_t numel = shape.numel();
        const int64_t rows = shape.rank() > 0 && numel > 0 ? shape[0] : 1;
        const int64_t columns = numel / rows, rank = std::min({rank_, rows, columns});
        const int64_t factors = rank * (rows + columns);
        if (rows > 1 && columns > 1 &&
            static_cast<double>(factors) * min_ratio_ <= static_cast<double>(numel)) {
          Matrix m;
          m.slice = i;
          m.rows = rows, m.columns = columns, m.rank = rank;
          m.first = first_numel_, m.second = second_numel_;
          first_numel_ += rank * rows;
          second_numel_ += rank * columns;
          matrices_.push_back(std::move(m));
        } else {
          b.dense.push_back({.slice = i, .first = first_numel_, .grad = {}, .sent = {}});
          first_numel_ += numel;
        }
      }
      b.end = matrices_.size();
      buckets_.push_back(std::move(b));
    }
  }

  void make_views(const SyncContext& context) {
    const Tensor& grads = context.params->all().grad;
    const auto slices = context.params->slices();
    for (Matrix& m : matrices_) {
      const optim::ParamSlice& slice = slices[m.slice];
      const auto whole = [&](const Tensor& flat) {
        return flat.slice(slice.begin, slice.end).reshape({m.rows, m.columns});
      };
      const auto factor = [&](const Tensor& flat, int64_t begin, int64_t length) {
        return flat.slice(begin, begin + m.rank * length).reshape({m.rank, length});
      };
      m.grad = whole(grads);
      for (int i = 0; i < 2; ++i) m.residual[i] = whole(residual_[i]);
      m.left = factor(first_, m.first, m.rows);
      m.right = factor(second_, m.second, m.columns);
      m.mine = factor(mine_, m.second, m.columns);
      m.basis = factor(basis_, m.second, m.columns);
    }
    int64_t first = 0, second = 0;
    for (Bucket& b : buckets_) {
      const int64_t first_begin = first, second_begin = second;
      for (Dense& dense : b.dense) {
        const optim::ParamSlice& slice = slices[dense.slice];
        dense.grad = grads.slice(slice.begin, slice.end);
        dense.sent = first_.slice(dense.first, dense.first + dense.grad.numel());
        first += dense.grad.numel();
      }
      for (size_t i = b.begin; i < b.end; ++i) {
        first += matrices_[i].left.numel();
        second += matrices_[i].right.numel();
      }
      b.first = first_.slice(first_begin, first);
      b.second = second_.slice(second_begin, second);
    }
  }

  void begin_window() {
    scale_ = context_->exchange->terms().scale;
    finite_ = true;
  }

  void send_second(Bucket& b) {
    if (b.begin == b.end) return;
    for (size_t i = b.begin; i < b.end; ++i) {
      const Matrix& m = matrices_[i];
      orthonormalise(m.left);
      kernel::matmul(m.right, m.left, m.residual[1 - current_], {});
      kernel::scale(m.mine, m.right, -1);
    }
    const auto index = static_cast<int64_t>(&b - buckets_.data());
    b.work = context_->comm->all_reduce(b.second, {.tag = {"second factors of bucket", index}});
  }

  int64_t rank_, warmup_;
  double min_ratio_;
  std::vector<Matrix> matrices_;
  std::vector<Bucket> buckets_;
  int64_t first_numel_ = 0, second_numel_ = 0;
  Tensor residual_[2];            // as long as all parameters: this window's and the next one's
  int current_ = 0;               // the residual that counts
  Tensor first_, second_, mine_;  // P and what is dense; Q; minus this rank's share of it
  Tensor basis_;                  // Q of the last window that was applied, rows of length 1
  int64_t windows_ = 0;           // applied
  // The window
  double scale_ = 1;
  bool finite_ = true;  // no sum of factors overflowed
};

const Register<SyncStrategy, PowerSgd> registered{
    "powersgd",
    "gradients of matrices as factors of low rank, with error feedback",
    {{"rank", "r, of the factors (2)"},
     {"warmup", "windows that are summed as they are before (0)"},
     {"min_ratio",
      "matrices whose factors are not so many times smaller are summed as they are, "
      "as vectors are (2)"}}};

}  // namespace
}  // namespace lockstep::distributed
