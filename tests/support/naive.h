#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

/// Kernels written the plain way, in double: what the fast ones are tested against.
namespace lockstep::naive {

using Values = std::vector<double>;

inline Values matmul(const Values& a, const Values& b, int64_t m, int64_t n, int64_t k,
                     bool trans_a, bool trans_b) {
  Values c(static_cast<size_t>(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        c[i * n + j] += a[trans_a ? l * m + i : i * k + l] * b[trans_b ? j * k + l : l * n + j];
  return c;
}

inline double cumulative(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
inline double density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI); }
inline double gelu(double x) { return x * cumulative(x); }
inline double gelu_slope(double x) { return cumulative(x) + x * density(x); }
inline double gelu_tanh(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
inline double gelu_tanh_slope(double x) {
  const double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

inline Values column_sum(const Values& x, int64_t rows, int64_t columns) {
  Values sum(static_cast<size_t>(columns), 0.0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) sum[c] += x[r * columns + c];
  return sum;
}

struct Norm {
  Values out, mean, rstd;
};
inline Norm layer_norm(const Values& x, const Values& gamma, const Values& beta, int64_t rows,
                       int64_t width, double eps) {
  Norm n{x, Values(rows), Values(rows)};
  for (int64_t r = 0; r < rows; ++r) {
    const double* row = &x[r * width];
    double mean = 0, square = 0;
    for (int64_t c = 0; c < width; ++c) mean += row[c] / width;
    for (int64_t c = 0; c < width; ++c) square += (row[c] - mean) * (row[c] - mean) / width;
    n.mean[r] = mean;
    n.rstd[r] = 1 / std::sqrt(square + eps);
    for (int64_t c = 0; c < width; ++c)
      n.out[r * width + c] = (row[c] - mean) * n.rstd[r] * gamma[c] + (beta.empty() ? 0 : beta[c]);
  }
  return n;
}

struct NormGradient {
  Values dx, dgamma, dbeta;
};
inline NormGradient layer_norm_backward(const Values& dy, const Values& x, const Values& gamma,
                                        int64_t rows, int64_t width, double eps) {
  const Norm n = layer_norm(x, gamma, {}, rows, width, eps);
  NormGradient g{x, Values(width, 0.0), Values(width, 0.0)};
  for (int64_t r = 0; r < rows; ++r) {
    double plain = 0, weighted = 0;
    for (int64_t c = 0; c < width; ++c) {
      const int64_t i = r * width + c;
      const double xhat = (x[i] - n.mean[r]) * n.rstd[r];
      plain += dy[i] * gamma[c] / width;
      weighted += dy[i] * gamma[c] * xhat / width;
      g.dgamma[c] += dy[i] * xhat;
      g.dbeta[c] += dy[i];
    }
    for (int64_t c = 0; c < width; ++c) {
      const int64_t i = r * width + c;
      g.dx[i] = n.rstd[r] * (dy[i] * gamma[c] - plain - (x[i] - n.mean[r]) * n.rstd[r] * weighted);
    }
  }
  return g;
}

inline double log_sum_exp(const double* x, int64_t n) {
  double top = x[0], sum = 0;
  for (int64_t i = 1; i < n; ++i) top = std::max(top, x[i]);
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  return top + std::log(sum);
}
inline Values softmax(const Values& x, int64_t rows, int64_t width) {
  Values y = x;
  for (int64_t r = 0; r < rows; ++r) {
    const double lse = log_sum_exp(&x[r * width], width);
    for (int64_t c = 0; c < width; ++c) y[r * width + c] = std::exp(x[r * width + c] - lse);
  }
  return y;
}

struct Attention {
  Values out, dqkv;
};
/// Packed qkv[B, T, 3C]; sequence b has lengths[b] positions; dout may be empty.
inline Attention attention(const Values& qkv, const Values& dout,
                           const std::vector<int64_t>& lengths, int64_t positions, int64_t heads,
                           int64_t width, bool causal) {
  const int64_t batch = static_cast<int64_t>(lengths.size()), channels = heads * width;
  Attention a{Values(batch * positions * channels, 0.0), Values(qkv.size(), 0.0)};
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < lengths[b]; ++i) {
        const auto at = [&](int64_t t, int part, int64_t d) {
          return ((b * positions + t) * 3 + part) * channels + h * width + d;
        };
        const int64_t seen = causal ? i + 1 : lengths[b],
                      o = (b * positions + i) * channels + h * width;
        Values p(seen, 0.0), dp(seen, 0.0);
        for (int64_t j = 0; j < seen; ++j)
          for (int64_t d = 0; d < width; ++d) p[j] += scale * qkv[at(i, 0, d)] * qkv[at(j, 1, d)];
        p = softmax(p, 1, seen);
        double delta = 0;
        for (int64_t j = 0; j < seen; ++j)
          for (int64_t d = 0; d < width; ++d) {
            a.out[o + d] += p[j] * qkv[at(j, 2, d)];
            if (dout.empty()) continue;
            dp[j] += dout[o + d] * qkv[at(j, 2, d)];
            a.dqkv[at(j, 2, d)] += p[j] * dout[o + d];
          }
        if (dout.empty()) continue;
        for (int64_t j = 0; j < seen; ++j) delta += p[j] * dp[j];
        for (int64_t j = 0; j < seen; ++j)
          for (int64_t d = 0; d < width; ++d) {
            a.dqkv[at(i, 0, d)] += scale * p[j] * (dp[j] - delta) * qkv[at(j, 1, d)];
            a.dqkv[at(j, 1, d)] += scale * p[j] * (dp[j] - delta) * qkv[at(i, 0, d)];
          }
      }
  return a;
}

/// PyTorch's Adam and AdamW on one number.
struct Adam {
  double w, m = 0, v = 0;
  void step(double g, int t, double lr, double beta1, double beta2, double eps, double decay,
            bool decoupled) {
    if (decoupled)
      w *= 1 - lr * decay;
    else
      g += decay * w;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double mhat = m / (1 - std::pow(beta1, t)), vhat = v / (1 - std::pow(beta2, t));
    w -= lr * mhat / (std::sqrt(vhat) + eps);
  }
};

/// PyTorch's SGD on one number.
struct Sgd {
  double w, velocity = 0;
  bool first = true;
  void step(double g, double lr, double momentum, double dampening, double decay, bool nesterov) {
    g += decay * w;
    if (momentum != 0) {
      velocity = first ? g : momentum * velocity + (1 - dampening) * g;
      first = false;
      g = nesterov ? g + momentum * velocity : velocity;
    }
    w -= lr * g;
  }
};

}  // namespace lockstep::naive
