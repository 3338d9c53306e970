#include "core/kernels/cpu/table_loops.h"

#include "core/kernels/cpu/vec.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kAhead = 32;                 // rows
constexpr int64_t kLine = 16, kMostLines = 4;  // of cache, in floats; the lines fetched of a row

inline Vec get(const float* p, int64_t left) { return left >= kWidth ? load(p) : load_n(p, left); }
inline void put(float* p, Vec v, int64_t left) {
  left >= kWidth ? store(p, v) : store_n(p, v, left);
}

inline void fetch(const float* row, int64_t width) {
  const int64_t end = width < kLine * kMostLines ? width : kLine * kMostLines;
  for (int64_t i = 0; i < end; i += kLine) __builtin_prefetch(row + i, 1);
}

// step(number of a row, its gradient) for each row, while `fetch_row` is
// called for rows to come.
template <class Fetch, class Step>
inline void over_rows(const RowTask& task, const Fetch& fetch_row, const Step& step) {
  const int64_t fetched = task.fetched ? 0 : task.n - kAhead;
  int64_t i = 0;
  for (; i < fetched; ++i) {
    fetch_row(task.rows[i + kAhead]);
    step(task.rows[i], task.gradients + i * task.width);
  }
  for (; i < task.n; ++i) step(task.rows[i], task.gradients + i * task.width);
}

void sgd(const RowTask& task, const RowConstants& c) {
  const int64_t width = task.width;
  over_rows(
      task, [&](int64_t row) { fetch(task.table + row * width, width); },
      [&](int64_t row, const float* gradient) {
        float* w = task.table + row * width;
        for (int64_t i = 0; i < width; i += kWidth) {
          const Vec g = get(gradient + i, width - i) * set(c.factor);
          put(w + i, get(w + i, width - i) * set(c.keep) - g * set(c.lr), width - i);
        }
      });
}

void adagrad(const RowTask& task, float* squares, const RowConstants& c) {
  const int64_t width = task.width;
  over_rows(
      task,
      [&](int64_t row) {
        fetch(task.table + row * width, width);
        fetch(squares + row * width, width);
      },
      [&](int64_t row, const float* gradient) {
        float *w = task.table + row * width, *s = squares + row * width;
        for (int64_t i = 0; i < width; i += kWidth) {
          const int64_t left = width - i;
          const Vec g = get(gradient + i, left) * set(c.factor);
          const Vec sum = get(s + i, left) + g * g;
          put(s + i, sum, left);
          put(w + i, get(w + i, left) * set(c.keep) - set(c.lr) * g / (sqrt(sum) + set(c.eps)),
              left);
        }
      });
}

void rowwise_adagrad(const RowTask& task, float* squares, const RowConstants& c) {
  const int64_t width = task.width;
  over_rows(
      task,
      [&](int64_t row) {
        fetch(task.table + row * width, width);
        __builtin_prefetch(squares + row, 1);
      },
      [&](int64_t row, const float* gradient) {
        Vec sum = {};
        for (int64_t i = 0; i < width; i += kWidth) {
          const Vec g = get(gradient + i, width - i) * set(c.factor);
          sum += g * g;
        }
        squares[row] += reduce_add(sum) / static_cast<float>(width);
        const float rate = c.lr / (__builtin_sqrtf(squares[row]) + c.eps);
        float* w = task.table + row * width;
        for (int64_t i = 0; i < width; i += kWidth) {
          const Vec g = get(gradient + i, width - i) * set(c.factor);
          put(w + i, get(w + i, width - i) * set(c.keep) - g * set(rate), width - i);
        }
      });
}

void adam(const RowTask& task, float* m, float* v, const RowConstants& c) {
  const int64_t width = task.width;
  over_rows(
      task,
      [&](int64_t row) {
        fetch(task.table + row * width, width);
        fetch(m + row * width, width);
        fetch(v + row * width, width);
      },
      [&](int64_t row, const float* gradient) {
        float *w = task.table + row * width, *first = m + row * width, *second = v + row * width;
        for (int64_t i = 0; i < width; i += kWidth) {
          const int64_t left = width - i;
          const Vec g = get(gradient + i, left) * set(c.factor);
          const Vec m0 = get(first + i, left);
          const Vec m1 = m0 + (g - m0) * set(c.fresh1);
          const Vec v1 = get(second + i, left) * set(c.beta2) + g * g * set(c.fresh2);
          put(first + i, m1, left);
          put(second + i, v1, left);
          put(w + i,
              get(w + i, left) * set(c.keep) -
                  set(c.step_size) * m1 / (sqrt(v1) * set(c.scale2) + set(c.eps)),
              left);
        }
      });
}

}  // namespace

const TableLoops LOCKSTEP_LOOPS_TABLE(Table) = {sgd, adagrad, rowwise_adagrad, adam};

}  // namespace lockstep::cpu
