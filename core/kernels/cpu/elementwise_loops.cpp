#include "core/kernels/cpu/elementwise_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

// f(i, io) does the work of one vector at i; io reads and writes it, whole or the tail at the end.
struct Whole {
  Vec get(const float* p) const { return load(p); }
  void put(float* p, Vec v) const { store(p, v); }
};
struct Tail {
  int64_t n;
  Vec get(const float* p) const { return load_n(p, n); }
  void put(float* p, Vec v) const { store_n(p, v, n); }
};

template <class F>
inline void for_vectors(int64_t n, F f) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) f(i, Whole{});
  if (i < n) f(i, Tail{n - i});
}

void fill(float* out, float value, int64_t n) {
  for_vectors(n, [=](int64_t i, auto io) { io.put(out + i, set(value)); });
}

template <class F>
inline void binary_with(float* out, const float* a, int64_t step_a, const float* b, int64_t step_b,
                        int64_t n, F f) {
  if (n == 0) return;
  if (step_a != 0 && step_b != 0)
    return for_vectors(
        n, [=](int64_t i, auto io) { io.put(out + i, f(io.get(a + i), io.get(b + i))); });
  if (step_a != 0) {
    const Vec y = set(*b);
    return for_vectors(n, [=](int64_t i, auto io) { io.put(out + i, f(io.get(a + i), y)); });
  }
  const Vec x = set(*a);
  if (step_b != 0)
    return for_vectors(n, [=](int64_t i, auto io) { io.put(out + i, f(x, io.get(b + i))); });
  const Vec z = f(x, set(*b));
  for_vectors(n, [=](int64_t i, auto io) { io.put(out + i, z); });
}

void binary(float* out, const float* a, int64_t step_a, const float* b, int64_t step_b, int64_t n,
            BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return binary_with(out, a, step_a, b, step_b, n, [](Vec x, Vec y) { return x + y; });
    case BinaryOp::subtract:
      return binary_with(out, a, step_a, b, step_b, n, [](Vec x, Vec y) { return x - y; });
    case BinaryOp::multiply:
      return binary_with(out, a, step_a, b, step_b, n, [](Vec x, Vec y) { return x * y; });
    case BinaryOp::divide:
      return binary_with(out, a, step_a, b, step_b, n, [](Vec x, Vec y) { return x / y; });
  }
}

template <class F>
inline void map(float* out, const float* x, int64_t n, F f) {
  for_vectors(n, [=](int64_t i, auto io) { io.put(out + i, f(io.get(x + i))); });
}

void unary(float* out, const float* x, int64_t n, UnaryOp op) {
  switch (op) {
    case UnaryOp::exp:
      return map(out, x, n, [](Vec v) { return exp(v); });
    case UnaryOp::log:
      return map(out, x, n, [](Vec v) { return log(v); });
    case UnaryOp::sqrt:
      return map(out, x, n, [](Vec v) { return sqrt(v); });
    case UnaryOp::tanh:
      return map(out, x, n, [](Vec v) { return tanh(v); });
    case UnaryOp::relu:
      return map(out, x, n, [](Vec v) { return select(v < Vec{}, Vec{}, v); });
    case UnaryOp::square:
      return map(out, x, n, [](Vec v) { return v * v; });
    case UnaryOp::reciprocal:
      return map(out, x, n, [](Vec v) { return set(1.0f) / v; });
  }
}

template <class F>
inline void map_backward(float* dx, const float* dy, const float* v, int64_t n, F f) {
  for_vectors(n, [=](int64_t i, auto io) { io.put(dx + i, f(io.get(dy + i), io.get(v + i))); });
}

void unary_backward(float* dx, const float* dy, const float* x, const float* y, int64_t n,
                    UnaryOp op) {
  switch (op) {
    case UnaryOp::exp:
      return map_backward(dx, dy, y, n, [](Vec d, Vec v) { return d * v; });
    case UnaryOp::log:
      return map_backward(dx, dy, x, n, [](Vec d, Vec v) { return d / v; });
    case UnaryOp::sqrt:
      return map_backward(dx, dy, y, n, [](Vec d, Vec v) { return set(0.5f) * d / v; });
    case UnaryOp::tanh:
      return map_backward(dx, dy, y, n, [](Vec d, Vec v) { return d * fnma(v, v, set(1.0f)); });
    case UnaryOp::relu:
      return map_backward(dx, dy, x, n, [](Vec d, Vec v) { return select(v > Vec{}, d, Vec{}); });
    case UnaryOp::square:
      return map_backward(dx, dy, x, n, [](Vec d, Vec v) { return d * (v + v); });
    case UnaryOp::reciprocal:
      return map_backward(dx, dy, y, n, [](Vec d, Vec v) { return -d * v * v; });
  }
}

void scale(float* out, const float* x, float factor, int64_t n) {
  map(out, x, n, [=](Vec v) { return v * set(factor); });
}

void add_scaled(float* out, const float* x, float factor, int64_t n) {
  // Two roundings on every instruction set: with a factor of 1 these are the bits of additions.
  for_vectors(n, [=](int64_t i, auto io) {
    io.put(out + i, io.get(out + i) + io.get(x + i) * set(factor));
  });
}

constexpr float kTanhScale = 0.797884561f, kTanhCubic = 0.044715f;  // sqrt(2 / pi)

struct ExactGelu {
  static Vec value(Vec x) { return x * normal(x).cumulative; }
  static Vec slope(Vec x) {
    const Normal n = normal(x);
    return fma(max(min(x, set(20.0f)), set(-20.0f)), n.density, n.cumulative);
  }
};

struct TanhGelu {
  static Vec half_one_plus_tanh(Vec x) {
    // (1 + tanh u) / 2 = 1 / (1 + e^(-2u)), which keeps its digits where tanh is close to -1.
    const Vec cube = x * x * x;
    const Vec u = set(kTanhScale) * fma(set(kTanhCubic), cube, x);
    return set(1.0f) / (set(1.0f) + exp(set(-2.0f) * u));
  }
  static Vec value(Vec x) { return x * half_one_plus_tanh(x); }
  static Vec slope(Vec x) {
    const Vec s = half_one_plus_tanh(x), v = max(min(x, set(20.0f)), set(-20.0f));
    const Vec du = set(kTanhScale) * fma(set(3.0f * kTanhCubic), v * v, set(1.0f));
    return select(x == x, fma(set(2.0f) * v * s * (set(1.0f) - s), du, s), x);
  }
};

template <class Form>
inline void gelu_with(float* out, const float* x, int64_t n) {
  map(out, x, n, [](Vec v) { return Form::value(v); });
}
void gelu(float* out, const float* x, int64_t n, GeluForm form) {
  form == GeluForm::exact ? gelu_with<ExactGelu>(out, x, n) : gelu_with<TanhGelu>(out, x, n);
}

template <class Form>
inline void gelu_backward_with(float* dx, const float* dy, const float* x, int64_t n) {
  map_backward(dx, dy, x, n, [](Vec d, Vec v) { return d * Form::slope(v); });
}
void gelu_backward(float* dx, const float* dy, const float* x, int64_t n, GeluForm form) {
  form == GeluForm::exact ? gelu_backward_with<ExactGelu>(dx, dy, x, n)
                          : gelu_backward_with<TanhGelu>(dx, dy, x, n);
}

template <class Form>
inline void bias_gelu_with(float* out, const float* x, const float* bias, int64_t n) {
  for_vectors(n, [=](int64_t i, auto io) {
    io.put(out + i, Form::value(io.get(x + i) + io.get(bias + i)));
  });
}
void bias_gelu(float* out, const float* x, const float* bias, int64_t n, GeluForm form) {
  form == GeluForm::exact ? bias_gelu_with<ExactGelu>(out, x, bias, n)
                          : bias_gelu_with<TanhGelu>(out, x, bias, n);
}

template <class Form>
inline void bias_gelu_backward_with(float* dx, float* dbias, const float* dy, const float* x,
                                    const float* bias, int64_t n) {
  for_vectors(n, [=](int64_t i, auto io) {
    const Vec d = io.get(dy + i) * Form::slope(io.get(x + i) + io.get(bias + i));
    io.put(dx + i, d);
    io.put(dbias + i, io.get(dbias + i) + d);
  });
}
void bias_gelu_backward(float* dx, float* dbias, const float* dy, const float* x, const float* bias,
                        int64_t n, GeluForm form) {
  form == GeluForm::exact ? bias_gelu_backward_with<ExactGelu>(dx, dbias, dy, x, bias, n)
                          : bias_gelu_backward_with<TanhGelu>(dx, dbias, dy, x, bias, n);
}

}  // namespace

const ElementwiseLoops LOCKSTEP_LOOPS_TABLE(Elementwise) = {
    fill,       binary, unary,         unary_backward, scale,
    add_scaled, gelu,   gelu_backward, bias_gelu,      bias_gelu_backward};

}  // namespace lockstep::cpu
