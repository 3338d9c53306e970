// Tables in a service (parameter server: Li et al. 2014, "Scaling Distributed Machine Learning with
// the Parameter Server"; for recommenders Lian et al. 2021, "Persia", arXiv:2111.05897): one copy,
// from which ranks fetch the rows of a micro-batch, and where they push the coalesced gradients of
// a window, which make a step at once:
//     w_i ← w_i - η·g(w_i then)      for the rows i of the push only
// A row's staleness is how many updates of it others have made in between; it counts per row, so
// that tables much larger than what ranks look up are hardly ever stale. Nobody waits for anybody.
// Bytes, for R unique rows of a window: 8·R out and R·(4·D + 4) back for the fetch, R·(4·D + 12)
// out for the push: row, version and values.
#include "distributed/tables/apart_tables.h"
#include "distributed/tables/row_copies.h"
#include "distributed/tables/row_parcel.h"
#include "distributed/tables/table_store.h"

namespace lockstep::distributed {
namespace {

ServiceCall call_of(TableStore::Kind kind) {
  ServiceCall call;
  call.kind = kind;
  return call;
}
// One that a cluster would not wait for: it takes no modelled time.
ServiceCall books_call_of(TableStore::Kind kind) {
  ServiceCall call = call_of(kind);
  call.untimed = true;
  return call;
}

class AsyncTables final : public ApartTables {
 public:
  explicit AsyncTables(const Spec&) {}

  void set_lr(double lr) override { lr_ = lr; }

  void report(StrategyReport& report) override {
    ServiceCall call = books_call_of(TableStore::statistics);
    call.out = TableStore::statistics_room();
    port_->call(call);
    traffic_.report(report);
    TableStore::read_statistics(call.out).report(report);
  }

  // The service's is shown as one piece, of which every rank holds a copy meanwhile.
  void state(StateIo& io) override {
    const Untimed untimed(comm());
    comm().barrier();  // all ranks are between steps
    ServiceCall call = books_call_of(TableStore::state_bytes);
    port_->call(call);
    Tensor bytes = zeros({call.version}, DType::u8);
    call = books_call_of(TableStore::read_state);
    call.out = bytes;
    port_->call(call);
    io.flat("tables.service", bytes, Fold::replicated);
    io.value("tables.lr", lr_, Fold::replicated);
    comm().barrier();  // all have read
    if (comm().rank() == 0) {
      call = books_call_of(TableStore::write_state);
      call.in = bytes;
      port_->call(call);
    }
    comm().barrier();  // what was loaded is there
  }

 private:
  void start() override {
    ApartTables::start();
    lr_ = context_.optimizer(zeros({1, width()}))->lr();
    const Untimed untimed(comm());
    port_ = comm().open_service([this] {
      const Tensor tables = Tensor::empty({flat_rows(), width()});
      context_.initial(tables, 0);
      return std::make_unique<TableStore>(tables, context_.optimizer(tables));
    });
  }

  void bring(std::span<const int64_t> rows, std::span<const int64_t> places) override {
    if (rows.empty()) return;
    const auto count = static_cast<int64_t>(rows.size());
    ServiceCall call = looking_ ? books_call_of(TableStore::peek) : call_of(TableStore::pull);
    call.in = tensor_of(rows);
    call.out = RowParcel::room(count, width(), RowParcel::Rows::left_out);
    port_->call(call);
    const RowParcel parcel(call.out, count, width(), RowParcel::Rows::left_out);
    scatter_rows(weight_.mutable_data<float>(), parcel.values().data<float>(), places, width());
    if (looking_) return;
    traffic_.bytes += static_cast<double>(call.bytes());
    pulled_.resize(rows.size());
    parcel.read_versions(pulled_);
    for (size_t i = 0; i < places.size(); ++i) remember(places[i], pulled_[i]);
  }

  void push(const SparseGrad& gradient, float factor) override {
    const int64_t count = gradient.count();
    ServiceCall call = call_of(TableStore::push);
    call.in = RowParcel::room(count, width(), RowParcel::Rows::sent);
    const RowParcel parcel(call.in, count, width(), RowParcel::Rows::sent);
    std::copy_n(gradient.values.data<float>(), count * width(),
                parcel.values().mutable_data<float>());
    parcel.write_versions(versions());
    parcel.write_rows(gradient.rows);
    call.weight = static_cast<double>(count);
    call.numbers = {double{factor}, lr_};
    port_->call(call);
    traffic_.bytes += static_cast<double>(call.bytes());
  }

  std::unique_ptr<ServicePort> port_;
  std::vector<uint32_t> pulled_;  // versions, on their way
  double lr_ = 0;
};

const Register<TableSync, AsyncTables> registered{
    "async", "one copy in a service; rows are fetched from it and gradients stepped as they come"};

}  // namespace
}  // namespace lockstep::distributed
