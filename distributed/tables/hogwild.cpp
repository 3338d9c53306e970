// Tables in memory that all ranks share, stepped by all of them at once without a lock (Niu, Recht,
// Ré & Wright 2011, "Hogwild!", arXiv:1106.5730): a rank reads the rows of its micro-batch, and
// later reads, steps and writes back those that have a gradient, a few at a time. Two ranks that do
// that to a row at once lose one of their updates; that is rare where tables are large beside what
// is looked up, and harmless then. What happens depends on the moment: no two runs are alike, on
// several ranks. Ranks must be threads of one process.
// Optimisers: those whose state of a row is a sum of squares, or that have none: sgd, adagrad,
// rowwise_adagrad. What a push is divided by is as under `async`; gradients of tables are not
// clipped.
// Moves R·4·D bytes out of the shared memory for a fetch of R rows, and as many back into it by a
// step.
#include <numeric>
#include <string>

#include "core/check.h"
#include "distributed/tables/apart_tables.h"
#include "distributed/tables/row_copies.h"
#include "distributed/tables/shared_rows.h"

namespace lockstep::distributed {
namespace {

// Rows between their reading and their writing; few, so that few updates are lost.
constexpr int64_t kBlock = 16;

// The tensors that a table optimiser keeps for rows.
class RowState final : public StateIo {
 public:
  void flat(const std::string& name, Tensor& value, Fold) override {
    check(name == "squares",
          "[tables.hogwild] what the table optimizer keeps of rows; expected sums of squares or "
          "nothing (sgd, adagrad, rowwise_adagrad), got '{}'",
          name);
    tensors.push_back(value);
  }
  void value(const std::string&, int64_t&, Fold) override {}
  void value(const std::string&, double&, Fold) override {}
  std::vector<Tensor> tensors;
};

// Hands every rank of this process the same rows.
class HandOut final : public ServiceLogic {
 public:
  explicit HandOut(std::shared_ptr<SharedRows> rows) : rows_(std::move(rows)) {}

  static std::shared_ptr<SharedRows> ask(ServicePort& port) {
    ServiceCall call;
    port.call(call);
    return std::static_pointer_cast<SharedRows>(call.shared);
  }
  bool handle(int, ServiceCall& call) override {
    call.shared = rows_;
    return true;
  }

 private:
  std::shared_ptr<SharedRows> rows_;
};

class Hogwild final : public ApartTables {
 public:
  explicit Hogwild(const Spec&) {}

  void set_lr(double lr) override { optimizer_->set_lr(lr); }

  void report(StrategyReport& report) override {
    traffic_.report(report);
    shared_->updates().report(report);
  }

  // Of which every rank holds a copy meanwhile.
  void state(StateIo& io) override {
    comm().barrier();  // all ranks are between steps
    double lr = optimizer_->lr();
    io.value("tables.lr", lr, Fold::replicated);
    optimizer_->set_lr(lr);
    std::vector<Tensor> copies;
    for (size_t n = 0; n < block_.size(); ++n) {
      copies.push_back(Tensor::empty({flat_rows(), shared_->row_size(n)}));
      float* to = copies.back().mutable_data<float>();
      for (int64_t row = 0; row < flat_rows(); ++row, to += shared_->row_size(n))
        shared_->read(n, row, to);
      io.flat("tables." + std::to_string(n), copies.back(), Fold::replicated);
    }
    Tensor versions = Tensor::empty({flat_rows()}, DType::i64);
    for (int64_t row = 0; row < flat_rows(); ++row)
      versions.mutable_data<int64_t>()[row] = shared_->version(row);
    io.flat("tables.versions", versions, Fold::replicated);
    RowUpdates updates = shared_->updates();
    io.value("tables.pushes", updates.pushes, Fold::replicated);
    Tensor bins = from_values(updates.staleness);
    io.flat("tables.staleness", bins, Fold::replicated);
    updates.staleness = values<int64_t>(bins);
    comm().barrier();  // all have read
    if (comm().rank() == 0) load(copies, versions, updates);
    comm().barrier();  // what was loaded is there
  }

 private:
  void start() override {
    ApartTables::start();
    check(comm().size() == 1 || comm().backend_name() == "threads",
          "[tables.hogwild] ranks that share memory and step it at once; expected --backend "
          "threads, got {}",
          comm().backend_name());
    block_ = {zeros({kBlock, width()})};
    optimizer_ = context_.optimizer(block_[0]);
    RowState state;
    optimizer_->state(state);
    block_.insert(block_.end(), state.tensors.begin(), state.tensors.end());
    numbers_ = Tensor::empty({kBlock}, DType::i64);
    std::iota(numbers_.mutable_data<int64_t>(), numbers_.mutable_data<int64_t>() + kBlock, 0);
    const auto port = comm().open_service([this] { return std::make_unique<HandOut>(make()); });
    shared_ = HandOut::ask(*port);
    comm().barrier();  // the service lives until all have asked
  }

  std::shared_ptr<SharedRows> make() const {
    std::vector<Tensor> arrays;
    for (const Tensor& x : block_)
      arrays.push_back(zeros(x.rank() == 1 ? Shape{flat_rows()} : Shape{flat_rows(), x.size(1)}));
    context_.initial(arrays[0], 0);
    return std::make_shared<SharedRows>(arrays);
  }

  void load(const std::vector<Tensor>& arrays, const Tensor& versions, const RowUpdates& updates) {
    for (size_t n = 0; n < arrays.size(); ++n)
      for (int64_t row = 0; row < flat_rows(); ++row)
        shared_->write(n, row, arrays[n].data<float>() + row * shared_->row_size(n));
    for (int64_t row = 0; row < flat_rows(); ++row)
      shared_->set_version(row, static_cast<uint32_t>(versions.data<int64_t>()[row]));
    shared_->set_updates(updates);
  }

  void bring(std::span<const int64_t> rows, std::span<const int64_t> places) override {
    float* to = weight_.mutable_data<float>();
    for (size_t i = 0; i < rows.size(); ++i) {
      remember(places[i], shared_->version(rows[i]));
      shared_->read(0, rows[i], to + places[i] * width());
    }
    if (!looking_)
      traffic_.bytes += static_cast<double>(4 * width()) * static_cast<double>(rows.size());
  }

  void push(const SparseGrad& gradient, float factor) override {
    optim::StepVerdict verdict;
    verdict.factor = factor;
    const auto rows = rows_in(gradient.rows);
    const int64_t count = gradient.count();
    for (int64_t at = 0; at < count; at += kBlock) {
      const int64_t n = std::min(kBlock, count - at);
      copy_block(rows.subspan(at, n), [&](size_t array, int64_t row, float* block) {
        shared_->read(array, row, block);
      });
      optimizer_->step({numbers_.slice(0, n), gradient.values.slice(at, at + n)}, verdict);
      copy_block(rows.subspan(at, n), [&](size_t array, int64_t row, const float* block) {
        shared_->write(array, row, block);
      });
      for (int64_t i = at; i < at + n; ++i) mine_.add(shared_->count(rows[i]) - versions()[i]);
    }
    // At once, so that ranks do not fight for the counters row by row.
    mine_.pushes = 1;
    shared_->add(mine_);
    std::ranges::fill(mine_.staleness, 0);
    traffic_.bytes += static_cast<double>(4 * width()) * static_cast<double>(count);
  }

  // copy(number of the array, row, its place in the block) for all arrays and rows.
  template <class Copy>
  void copy_block(std::span<const int64_t> rows, const Copy& copy) {
    for (size_t array = 0; array < block_.size(); ++array) {
      float* block = block_[array].mutable_data<float>();
      for (const int64_t row : rows) {
        copy(array, row, block);
        block += shared_->row_size(array);
      }
    }
  }

  std::shared_ptr<SharedRows> shared_;
  // Rows are stepped here by an ordinary optimiser, whose state is of these rows, too: tables
  // [kBlock, D] and state, as in the shared arrays.
  std::vector<Tensor> block_;
  std::unique_ptr<optim::TableOptimizer> optimizer_;
  Tensor numbers_;   // i64: 0 … kBlock - 1
  RowUpdates mine_;  // of a push
};

const Register<TableSync, Hogwild> registered{
    "hogwild", "memory that ranks share, read and stepped without a lock; threads only"};

}  // namespace
}  // namespace lockstep::distributed
