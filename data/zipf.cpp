#include "data/zipf.h"

#include "core/check.h"

#include <algorithm>
#include <cmath>

namespace lockstep::data {
namespace {

constexpr int64_t kLongestHead = 4096;
constexpr int kGuideBits = 12;

uint64_t scaled(double fraction) {  // · 2^64, at most 2^64 - 1
  return fraction >= 1 ? UINT64_MAX : static_cast<uint64_t>(fraction * 0x1p64);
}

}  // namespace

Zipf::Zipf(int64_t n, double exponent)
    : n_(n),
      head_(std::min(n, kLongestHead)),
      exponent_(exponent),
      begin_(static_cast<double>(head_) + 0.5) {
  check(n >= 1, "[data.zipf] places; expected at least 1, got {}", n);
  check(exponent >= 0 && exponent <= 4, "[data.zipf] exponent; expected 0..4, got {}", exponent);
  std::vector<double> upto(head_);
  double sum = 0;
  for (int64_t k = 0; k < head_; ++k)
    upto[k] = sum += std::pow(static_cast<double>(k + 1), -exponent);
  if (n > head_) tail_ = tail_integral(static_cast<double>(n) + 0.5);
  total_ = sum + tail_;
  for (const double x : upto) upto_.push_back(scaled(x / total_));
  if (n == head_) upto_.back() = UINT64_MAX;
  int32_t place = 0;
  for (uint64_t bucket = 0; bucket < (uint64_t{1} << kGuideBits); ++bucket) {
    while (place < head_ && upto_[place] <= bucket << (64 - kGuideBits)) ++place;
    guide_.push_back(place);
  }
}

// (x^(1-s) - a^(1-s)) / (1-s) with a = begin_, in a form that also holds at s = 1.
double Zipf::tail_integral(double x) const {
  const double e = 1 - exponent_, log_ratio = std::log(x / begin_);
  const double shape = std::abs(e) < 1e-9 ? log_ratio : std::expm1(e * log_ratio) / e;
  return std::pow(begin_, e) * shape;
}

int64_t Zipf::draw_tail(double u) const {
  const double e = 1 - exponent_, shape = u * tail_ / std::pow(begin_, e);
  const double log_ratio = std::abs(e) < 1e-9 ? shape : std::log1p(e * shape) / e;
  const double rank = begin_ * std::exp(log_ratio) + 0.5;  // from 1 on, rounded
  if (!(rank < static_cast<double>(n_))) return n_ - 1;
  return std::max(static_cast<int64_t>(rank) - 1, head_);
}

int64_t Zipf::operator()(uint64_t uniform) const {
  int64_t place = guide_[uniform >> (64 - kGuideBits)];
  while (place < head_ && upto_[place] <= uniform) ++place;
  if (place < head_) return place;
  if (n_ == head_) return n_ - 1;
  const uint64_t before = upto_.back();
  return draw_tail(static_cast<double>(uniform - before) / (0x1p64 - static_cast<double>(before)));
}

double Zipf::probability(int64_t place) const {
  check(place >= 0 && place < n_, "[data.zipf] place; expected 0..{}, got {}", n_ - 1, place);
  return std::pow(static_cast<double>(place + 1), -exponent_) / total_;
}

}  // namespace lockstep::data
