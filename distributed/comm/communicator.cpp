#include "distributed/comm/communicator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/profile.h"
#include "distributed/comm/meter.h"

namespace lockstep::distributed {
namespace {

bool is_power_of_two(float factor) {
  int exponent;
  return factor > 0 && std::isfinite(factor) && std::frexp(factor, &exponent) == 0.5f;
}

void check_reduce(Verb verb, DType dtype, const ReduceSpec& spec) {
  check(is_power_of_two(spec.pre) && is_power_of_two(spec.post),
        "[comm.{}] factors; expected powers of two, got pre {} and post {}", name_of(verb),
        spec.pre, spec.post);
  check(is_floating(dtype) || (spec.pre == 1 && spec.post == 1),
        "[comm.{}] factors are for floating dtypes, got {}", name_of(verb), name_of(dtype));
  check(dtype != DType::u8 || spec.op == ReduceOp::max || spec.op == ReduceOp::min,
        "[comm.{}] of u8; expected max or min (a sum would wrap), got {}", name_of(verb),
        name_of(spec.op));
}

void check_same_dtype(Verb verb, const Tensor& out, const Tensor& in) {
  check(out.dtype() == in.dtype(), "[comm.{}] dtypes; expected equal ones, got out {} and in {}",
        name_of(verb), name_of(out.dtype()), name_of(in.dtype()));
}

int64_t total_of(Verb verb, std::span<const int64_t> counts, int size) {
  check(static_cast<int>(counts.size()) == size,
        "[comm.{}] counts; expected one for each of {} ranks, got {}", name_of(verb), size,
        counts.size());
  int64_t total = 0;
  for (int64_t count : counts) {
    check(count >= 0, "[comm.{}] counts; expected >= 0, got {}", name_of(verb), count);
    total = checked_add(total, count);
  }
  return total;
}

// Counts that were given, or equal parts, for a total that must fit.
std::span<const int64_t> resolve_counts(Verb verb, std::span<const int64_t> given, int64_t total,
                                        int64_t part, int rank, int size,
                                        std::vector<int64_t>& equal) {
  if (given.empty()) {
    check(checked_mul(part, size) == total, "[comm.{}] {} ranks times {} elements are not {}",
          name_of(verb), size, part, total);
    equal.assign(static_cast<size_t>(size), part);
    return equal;
  }
  const int64_t sum = total_of(verb, given, size);
  check(sum == total, "[comm.{}] counts; expected a sum of {}, got {}", name_of(verb), total, sum);
  check(given[rank] == part, "[comm.{}] counts[{}]; expected {}, the elements of this rank, got {}",
        name_of(verb), rank, part, given[rank]);
  return given;
}

void check_rank(Verb verb, std::string_view what, int rank, int size) {
  check(rank >= 0 && rank < size, "[comm.{}] {}; expected a rank below {}, got {}", name_of(verb),
        what, size, rank);
}

// Counts calls and their time.
class MeteredPort final : public ServicePort {
 public:
  MeteredPort(std::unique_ptr<ServicePort> port, std::shared_ptr<Meter> meter)
      : port_(std::move(port)), meter_(std::move(meter)) {}

  void call(ServiceCall& call) override {
    const Meter::Exposed exposed(*meter_);
    const Meter::Busy busy(*meter_);
    const ProfileSpan span(Profile::Kind::collective, "service",
                           {.bytes = static_cast<double>(call.bytes())});
    port_->call(call);
    VerbStats& stats = meter_->stats.service;
    ++stats.calls;
    stats.payload_bytes += call.bytes();
    stats.wire_bytes += static_cast<double>(call.bytes());
  }

 private:
  std::unique_ptr<ServicePort> port_;
  std::shared_ptr<Meter> meter_;
};

}  // namespace

VerbStats& VerbStats::operator+=(const VerbStats& other) {
  calls += other.calls;
  payload_bytes += other.payload_bytes;
  wire_bytes += other.wire_bytes;
  return *this;
}

VerbStats CommStats::total() const {
  VerbStats sum = service;
  for (const VerbStats& verb : verbs) sum += verb;
  return sum;
}

CommStats& CommStats::operator+=(const CommStats& other) {
  for (int verb = 0; verb < kVerbs; ++verb) verbs[verb] += other.verbs[verb];
  service += other.service;
  comm_s += other.comm_s;
  exposed_s += other.exposed_s;
  return *this;
}

Communicator::Communicator(std::unique_ptr<CommBackend> backend)
    : backend_(std::move(backend)),
      rank_(backend_->rank()),
      size_(backend_->size()),
      meter_(std::make_shared<Meter>()) {}

Communicator::~Communicator() = default;

WorkPtr Communicator::post(Operation operation, int64_t payload, double wire) {
  const Meter::Exposed exposed(*meter_);
  const ProfileSpan span(Profile::Kind::collective, name_of(operation.verb),
                         {.bytes = static_cast<double>(payload)});
  const Profile* profile = Profile::here();
  const int64_t begin_ns = profile != nullptr ? profile->now() : -1;
  VerbStats& verb = meter_->stats.verbs[static_cast<int>(operation.verb)];
  ++verb.calls;
  verb.payload_bytes += payload;
  verb.wire_bytes += wire;
  operation.phase = phase_;
  operation.untimed = untimed_;
  operation.sequence = meter_->begin(operation.verb, payload, operation.tag, phase_);
  WorkPtr work;
  try {
    work = backend_->post(operation);
  } catch (...) {
    meter_->end(operation.sequence, FlightRecorder::Entry::State::failed);
    throw;
  }
  work->meter_ = meter_;
  work->sequence_ = operation.sequence;
  work->profiled_ = {operation.verb, payload, begin_ns};
  return work;
}

WorkPtr Communicator::all_reduce(const Tensor& x, const ReduceSpec& spec) {
  check_reduce(Verb::all_reduce, x.dtype(), spec);
  const double wire = 2.0 * (size_ - 1) / size_ * static_cast<double>(x.bytes());
  return post({.verb = Verb::all_reduce, .out = x, .in = x, .reduce = spec, .tag = spec.tag},
              x.bytes(), wire);
}

WorkPtr Communicator::reduce_scatter(const Tensor& out, const Tensor& in,
                                     std::span<const int64_t> counts, const ReduceSpec& spec) {
  constexpr Verb verb = Verb::reduce_scatter;
  check_same_dtype(verb, out, in);
  check_reduce(verb, in.dtype(), spec);
  counts = resolve_counts(verb, counts, in.numel(), out.numel(), rank_, size_, equal_counts_);
  const double wire = static_cast<double>(size_ - 1) * static_cast<double>(out.bytes());
  return post(
      {.verb = verb, .out = out, .in = in, .reduce = spec, .counts = counts, .tag = spec.tag},
      in.bytes(), wire);
}

WorkPtr Communicator::all_gather_v(const Tensor& out, const Tensor& in,
                                   std::span<const int64_t> counts, OpTag tag) {
  constexpr Verb verb = Verb::all_gather;
  check_same_dtype(verb, out, in);
  counts = resolve_counts(verb, counts, out.numel(), in.numel(), rank_, size_, equal_counts_);
  return post({.verb = verb, .out = out, .in = in, .counts = counts, .tag = tag}, in.bytes(),
              static_cast<double>(out.bytes() - in.bytes()));
}

WorkPtr Communicator::all_to_all_v(const Tensor& out, std::span<const int64_t> receive_counts,
                                   const Tensor& in, std::span<const int64_t> send_counts,
                                   OpTag tag) {
  constexpr Verb verb = Verb::all_to_all;
  check_same_dtype(verb, out, in);
  const int64_t sent = total_of(verb, send_counts, size_);
  const int64_t received = total_of(verb, receive_counts, size_);
  check(sent == in.numel(), "[comm.all_to_all] send counts; expected a sum of {}, got {}",
        in.numel(), sent);
  check(received == out.numel(), "[comm.all_to_all] receive counts; expected a sum of {}, got {}",
        out.numel(), received);
  check(send_counts[rank_] == receive_counts[rank_],
        "[comm.all_to_all] rank {} sends itself {} elements and expects {}", rank_,
        send_counts[rank_], receive_counts[rank_]);
  const int64_t wire = (received - receive_counts[rank_]) * size_of(out.dtype());
  return post({.verb = verb,
               .out = out,
               .in = in,
               .send_counts = send_counts,
               .receive_counts = receive_counts,
               .tag = tag},
              in.bytes(), static_cast<double>(wire));
}

WorkPtr Communicator::broadcast(const Tensor& x, int root, OpTag tag) {
  check_rank(Verb::broadcast, "root", root, size_);
  const double wire = static_cast<double>(x.bytes()) * (size_ - 1) / size_;
  return post({.verb = Verb::broadcast, .out = x, .in = x, .root = root, .tag = tag}, x.bytes(),
              wire);
}

WorkPtr Communicator::send_recv(const Tensor& out, int from, const Tensor& in, int to, OpTag tag) {
  constexpr Verb verb = Verb::send_recv;
  if (from != kNobody) check_rank(verb, "from", from, size_);
  if (to != kNobody) check_rank(verb, "to", to, size_);
  check(from == kNobody || out.defined(), "[comm.send_recv] a tensor to receive into is missing");
  check(to == kNobody || in.defined(), "[comm.send_recv] a tensor to send is missing");
  check((from == rank_) == (to == rank_) && (to != rank_ || out.bytes() == in.bytes()),
        "[comm.send_recv] rank {} sends to itself as much as it receives from itself", rank_);
  const double wire = from == kNobody || from == rank_ ? 0 : static_cast<double>(out.bytes());
  return post({.verb = verb,
               .out = from == kNobody ? Tensor() : out,
               .in = to == kNobody ? Tensor() : in,
               .to = to,
               .from = from,
               .tag = tag},
              to == kNobody ? 0 : in.bytes(), wire);
}

void Communicator::barrier() { post({.verb = Verb::barrier}, 0, 0)->wait(); }

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  check(color >= kNobody, "[comm.split] colour; expected >= 0 or kNobody, got {}", color);
  std::unique_ptr<CommBackend> part;
  {
    const Meter::Exposed exposed(*meter_);
    ++meter_->stats.verbs[static_cast<int>(Verb::split)].calls;
    Operation operation{.verb = Verb::split};
    operation.phase = phase_;
    operation.sequence = meter_->begin(Verb::split, 0, {}, phase_);
    try {
      part = backend_->split(operation, color, key);
    } catch (...) {
      meter_->end(operation.sequence, FlightRecorder::Entry::State::failed);
      throw;
    }
    meter_->end(operation.sequence, FlightRecorder::Entry::State::finished);
  }
  barrier();  // nobody goes on before all have taken their part
  if (!part) return nullptr;
  auto made = std::make_unique<Communicator>(std::move(part));
  parts_.push_back(made->meter_);
  return made;
}

std::unique_ptr<ServicePort> Communicator::open_service(const MakeServiceLogic& make) {
  std::unique_ptr<ServicePort> port = backend_->open_service(services_++, make);
  barrier();  // a failure of the one that makes it is everybody's
  return std::make_unique<MeteredPort>(std::move(port), meter_);
}

void Communicator::progress() {
  if (!meter_->anything_in_flight()) return backend_->progress();
  const Meter::Exposed exposed(*meter_);
  const ProfileSpan span(Profile::Kind::collective, "move collectives");
  backend_->progress();
}

void Communicator::abort(const std::string& cause) noexcept { backend_->abort(cause); }

CommStats Communicator::stats() const {
  CommStats all = meter_->so_far();
  for (const auto& part : parts_) all += part->so_far();
  return all;
}
void Communicator::reset_stats() {
  meter_->reset();
  for (const auto& part : parts_) part->reset();
}
const FlightRecorder& Communicator::recorder() const { return meter_->recorder; }

}  // namespace lockstep::distributed
