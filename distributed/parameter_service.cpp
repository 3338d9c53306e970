#include "distributed/parameter_service.h"

namespace lockstep::distributed {
namespace {

ServiceCall call_of(ParameterStore::Kind kind) {
  ServiceCall call;
  call.kind = kind;
  return call;
}
// One that a cluster would not wait for: it takes no modelled time.
ServiceCall books_call_of(ParameterStore::Kind kind) {
  ServiceCall call = call_of(kind);
  call.untimed = true;
  return call;
}

}  // namespace

ParameterService::ParameterService(Communicator& comm, const ServiceSetup& setup)
    : comm_(comm), workers_(setup.workers) {
  const Untimed untimed(comm);
  port_ = comm.open_service([&] { return std::make_unique<ParameterStore>(setup); });
}

ParameterService::~ParameterService() {
  try {
    leave();
  } catch (...) {  // the group has failed, or the service was stopped: nobody waits for this rank
  }
}

PushReply ParameterService::push(const Push& push) {
  ServiceCall call = call_of(ParameterStore::push);
  call.clock = push.clock;
  call.weight = push.weight;
  call.numbers = {push.scale, push.max_norm, push.factor, push.lr};
  call.in = push.grad;
  call.flags = push.used;
  port_->call(call);
  return {static_cast<PushOutcome>(call.outcome), call.version, call.staleness};
}

Snapshot ParameterService::pull(int64_t clock, const Tensor& out) {
  ServiceCall call = call_of(ParameterStore::pull);
  call.clock = clock;
  call.out = out;
  port_->call(call);
  return {call.version, call.clock, call.outcome != 0};
}

Snapshot ParameterService::peek(const Tensor& out) {
  ServiceCall call = books_call_of(ParameterStore::peek);
  call.out = out;
  port_->call(call);
  return {call.version, 0};
}

void ParameterService::leave() {
  if (left_) return;
  left_ = true;
  ServiceCall call = call_of(ParameterStore::leave);
  port_->call(call);
}

void ParameterService::await_all_left() {
  ServiceCall call = books_call_of(ParameterStore::await_all_left);
  port_->call(call);
}

void ParameterService::stop() {
  ServiceCall call = call_of(ParameterStore::stop);
  port_->call(call);
}

ServiceStatistics ParameterService::statistics() {
  ServiceCall call = books_call_of(ParameterStore::statistics);
  call.out = statistics_tensor(workers_);
  port_->call(call);
  return read_statistics(call.out);
}

void ParameterService::state(StateIo& io) {
  const Untimed untimed(comm_);
  comm_.barrier();  // all workers are between steps
  ServiceCall call = books_call_of(ParameterStore::state_bytes);
  port_->call(call);
  Tensor bytes = zeros({call.version}, DType::u8);
  call = books_call_of(ParameterStore::read_state);
  call.out = bytes;
  port_->call(call);
  io.flat("service", bytes, Fold::replicated);
  comm_.barrier();  // all have read
  if (comm_.rank() == 0) {
    call = books_call_of(ParameterStore::write_state);
    call.in = bytes;
    port_->call(call);
  }
  comm_.barrier();  // what was loaded is there
}

}  // namespace lockstep::distributed
