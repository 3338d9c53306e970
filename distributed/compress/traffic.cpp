#include "distributed/compress/traffic.h"

#include <algorithm>

namespace lockstep::distributed {

Traffic& Traffic::operator+=(const Traffic& other) {
  begin = std::min(begin, other.begin);
  numel += other.numel;
  sums += other.sums;
  elements += other.elements;
  codes += other.codes;
  sum_codes += other.sum_codes;
  framing += other.framing;
  wire += other.wire;
  raw += other.raw;
  encode_s += other.encode_s;
  decode_s += other.decode_s;
  saturated += other.saturated;
  underflowed += other.underflowed;
  residual_squares += other.residual_squares;
  return *this;
}

double Traffic::nominal_ratio() const {
  return codes.payload > 0 ? elements_bytes() / static_cast<double>(codes.payload) : 0;
}

double Traffic::effective_ratio() const {
  if (wire > 0) return raw / wire;
  const auto made = static_cast<double>(codes.total() + sum_codes.total() + framing);
  return made > 0 ? elements_bytes() / made : 0;
}

double Traffic::break_even() const {
  const double seconds = encode_s + decode_s;
  return raw > wire && seconds > 0 ? (raw - wire) / seconds : 0;
}

Traffic CompressionReport::total() const {
  Traffic sum;
  if (!buckets.empty()) sum.begin = buckets.front().begin;
  for (const Traffic& bucket : buckets) sum += bucket;
  return sum;
}

}  // namespace lockstep::distributed
