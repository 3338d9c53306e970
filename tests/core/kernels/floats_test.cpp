#include <cstring>
#include <iterator>

#include "core/kernels/attention.h"
#include "core/kernels/batch_norm.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/embedding.h"
#include "core/kernels/norm.h"
#include "core/kernels/reduce.h"
#include "core/kernels/softmax_xent.h"
#include "tests/support/kernel_test.h"

// Operands of every floating type, each its own: a call equals the f32 call on the same numbers,
// its results rounded, bit for bit. A new kernel is one more line of the table.
namespace lockstep::test {
namespace {

struct Size {
  int64_t rows, columns;
};
using Tensors = std::vector<Tensor>;

Shape matrix(Size s) { return {s.rows, s.columns}; }
Shape vector(Size s) { return {s.columns}; }
Shape column(Size s) { return {s.rows, 1}; }
Shape each_row(Size s) { return {s.rows}; }
Shape one(Size) { return {1}; }
// For kernels of several dimensions and for tables of seven rows.
Shape stack(Size s) { return {2, s.rows, 3, s.columns}; }
Shape across(Size s) { return {s.rows, 1, s.columns}; }
Shape table(Size s) { return {7, s.columns}; }
// Normalisation by channel: of [N, C] and of [N, 3, L].
Shape planes(Size s) { return {s.rows, 3, s.columns}; }
Shape three(Size) { return {3}; }
Shape three_each(Size s) { return {3, s.columns}; }
Shape three_by_three(Size) { return {3, 3}; }
Shape two_each(Size s) { return {2, s.columns}; }
Shape two_by_three(Size) { return {2, 3}; }
// Attention: a batch of 2, `rows` positions, as many heads as divide the columns.
Shape packed(Size s) { return {2, s.rows, 3 * s.columns}; }
Shape attended(Size s) { return {2, s.rows, s.columns}; }
int heads(Size s) { return s.columns % 2 == 0 ? 2 : 1; }
Shape log_sums(Size s) { return {2, heads(s), s.rows}; }

enum class Use { in, out, both };
struct Operand {
  Use use;
  Shape (*shape)(Size);
  bool statistic = false;  // f32 whatever the others are
};
Operand in(Shape (*shape)(Size)) { return {Use::in, shape}; }
Operand out(Shape (*shape)(Size)) { return {Use::out, shape}; }
Operand both(Shape (*shape)(Size)) { return {Use::both, shape}; }
Operand statistic_in(Shape (*shape)(Size)) { return {Use::in, shape, true}; }
Operand statistic_out(Shape (*shape)(Size)) { return {Use::out, shape, true}; }

Tensor integers(int64_t n, int64_t below) {
  std::vector<int64_t> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = i % 5 == 3 ? 0 : i * 37 % std::max<int64_t>(below, 1);
  return from_values(v);
}

const std::vector<Size> kSizes = {{0, 5},    {1, 1},    {3, 17},   {70, 33},
                                  {5, 1023}, {2, 2050}, {300, 384}};
const std::vector<Size> kSequences = {{0, 4}, {1, 1}, {9, 3}, {33, 32}, {70, 34}};

// The second sequence is shorter than the first where attention is not causal.
kernel::AttentionOptions options_for(const Tensor& attended, bool causal) {
  const int64_t positions = attended.size(1);
  kernel::AttentionOptions options{.heads = heads({positions, attended.size(2)}), .causal = causal};
  if (!causal)
    options.lengths = from_values<int32_t>(
        {static_cast<int32_t>(positions), static_cast<int32_t>(positions / 3)});
  return options;
}

struct Case {
  const char* name;
  std::vector<Operand> operands;
  void (*call)(const Tensors&);
  const std::vector<Size>* sizes = &kSizes;
};

using kernel::Binary, kernel::Gelu, kernel::Unary;

const Case kCases[] = {
    {"add",
     {out(matrix), in(matrix), in(matrix)},
     [](const Tensors& t) { kernel::binary(t[0], t[1], t[2], Binary::add); }},
    {"multiply_by_vector",
     {out(matrix), in(matrix), in(vector)},
     [](const Tensors& t) { kernel::binary(t[0], t[1], t[2], Binary::multiply); }},
    {"subtract_column",
     {out(matrix), in(column), in(matrix)},
     [](const Tensors& t) { kernel::binary(t[0], t[1], t[2], Binary::subtract); }},
    {"divide_by_one",
     {out(matrix), in(matrix), in(one)},
     [](const Tensors& t) { kernel::binary(t[0], t[1], t[2], Binary::divide); }},
    {"add_across",
     {out(stack), in(stack), in(across)},
     [](const Tensors& t) { kernel::binary(t[0], t[1], t[2], Binary::add); }},
    {"sum_to_same",
     {out(matrix), in(matrix)},
     [](const Tensors& t) { kernel::sum_to(t[0], t[1]); }},
    {"sum_to_vector",
     {out(vector), in(matrix)},
     [](const Tensors& t) { kernel::sum_to(t[0], t[1]); }},
    {"sum_to_column",
     {out(column), in(matrix)},
     [](const Tensors& t) { kernel::sum_to(t[0], t[1]); }},
    {"sum_to_one", {out(one), in(matrix)}, [](const Tensors& t) { kernel::sum_to(t[0], t[1]); }},
    {"sum_across", {out(across), in(stack)}, [](const Tensors& t) { kernel::sum_to(t[0], t[1]); }},
    {"exp",
     {out(matrix), in(matrix)},
     [](const Tensors& t) { kernel::unary(t[0], t[1], Unary::exp); }},
    {"sqrt",
     {out(matrix), in(matrix)},
     [](const Tensors& t) { kernel::unary(t[0], t[1], Unary::sqrt); }},
    {"tanh_backward",
     {out(matrix), in(matrix), in(matrix), in(matrix)},
     [](const Tensors& t) { kernel::unary_backward(t[0], t[1], t[2], t[3], Unary::tanh); }},
    {"scale", {out(matrix), in(matrix)}, [](const Tensors& t) { kernel::scale(t[0], t[1], 0.3f); }},
    {"scale_by_1",
     {out(matrix), in(matrix)},
     [](const Tensors& t) { kernel::scale(t[0], t[1], 1); }},
    {"add_scaled",
     {both(matrix), in(matrix)},
     [](const Tensors& t) { kernel::add_scaled(t[0], t[1], 0.3f); }},
    {"gelu",
     {out(matrix), in(matrix)},
     [](const Tensors& t) { kernel::gelu(t[0], t[1], Gelu::exact); }},
    {"gelu_backward",
     {out(matrix), in(matrix), in(matrix)},
     [](const Tensors& t) { kernel::gelu_backward(t[0], t[1], t[2], Gelu::tanh); }},
    {"bias_gelu",
     {out(matrix), in(matrix), in(vector)},
     [](const Tensors& t) { kernel::bias_gelu(t[0], t[1], t[2], Gelu::tanh); }},
    {"bias_gelu_backward",
     {out(matrix), out(vector), in(matrix), in(matrix), in(vector)},
     [](const Tensors& t) {
       kernel::bias_gelu_backward(t[0], t[1], t[2], t[3], t[4], Gelu::exact);
     }},
    {"bias_relu_backward",
     {out(matrix), out(vector), in(matrix), in(matrix)},
     [](const Tensors& t) { kernel::bias_relu_backward(t[0], t[1], t[2], t[3]); }},
    {"sum", {out(one), in(matrix)}, [](const Tensors& t) { kernel::sum(t[0], t[1]); }},
    {"column_sum",
     {out(vector), in(matrix)},
     [](const Tensors& t) { kernel::column_sum(t[0], t[1]); }},
    {"dropout",
     {out(matrix), in(matrix)},
     [](const Tensors& t) {
       kernel::dropout(t[0], t[1], 0.4f, {1, 2, 3});
     }},
    {"layer_norm",
     {out(matrix), statistic_out(each_row), statistic_out(each_row), in(matrix), in(vector),
      in(vector)},
     [](const Tensors& t) { kernel::layer_norm(t[0], t[1], t[2], t[3], t[4], t[5], 1e-5f); }},
    {"layer_norm_without_beta",
     {out(matrix), statistic_out(each_row), statistic_out(each_row), in(matrix), in(vector)},
     [](const Tensors& t) { kernel::layer_norm(t[0], t[1], t[2], t[3], t[4], Tensor(), 1e-5f); }},
    {"residual_layer_norm",
     {out(matrix), out(matrix), statistic_out(each_row), statistic_out(each_row), in(matrix),
      in(matrix), in(vector), in(vector)},
     [](const Tensors& t) {
       kernel::residual_layer_norm(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], 1e-5f);
     }},
    {"layer_norm_backward",
     {out(matrix), out(vector), out(vector), in(matrix), in(matrix), in(matrix),
      statistic_in(each_row), statistic_in(each_row), in(vector)},
     [](const Tensors& t) {
       kernel::layer_norm_backward(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8]);
     }},
    {"layer_norm_backward_without_beta",
     {out(matrix), out(vector), in(matrix), in(matrix), statistic_in(each_row),
      statistic_in(each_row), in(vector)},
     [](const Tensors& t) {
       kernel::layer_norm_backward(t[0], t[1], Tensor(), t[2], Tensor(), t[3], t[4], t[5], t[6]);
     }},
    {"channel_moments",
     {statistic_out(three_each), in(matrix)},
     [](const Tensors& t) { kernel::channel_moments(t[0], t[1]); }},
    {"channel_moments_of_planes",
     {statistic_out(three_by_three), in(planes)},
     [](const Tensors& t) { kernel::channel_moments(t[0], t[1]); }},
    {"batch_norm",
     {out(matrix), in(matrix), statistic_in(three_each), in(vector), in(vector)},
     [](const Tensors& t) { kernel::batch_norm(t[0], t[1], t[2], t[3], t[4]); }},
    {"batch_norm_of_planes",
     {out(planes), in(planes), statistic_in(three_by_three), in(three), in(three)},
     [](const Tensors& t) { kernel::batch_norm(t[0], t[1], t[2], t[3], t[4]); }},
    {"batch_norm_backward_sums",
     {statistic_out(two_each), in(matrix), in(matrix), statistic_in(three_each)},
     [](const Tensors& t) { kernel::batch_norm_backward_sums(t[0], t[1], t[2], t[3]); }},
    {"batch_norm_backward_sums_of_planes",
     {statistic_out(two_by_three), in(planes), in(planes), statistic_in(three_by_three)},
     [](const Tensors& t) { kernel::batch_norm_backward_sums(t[0], t[1], t[2], t[3]); }},
    {"batch_norm_backward",
     {out(matrix), in(matrix), in(matrix), statistic_in(three_each), in(vector),
      statistic_in(two_each)},
     [](const Tensors& t) {
       kernel::batch_norm_backward(t[0], t[1], t[2], t[3], t[4], t[5], 1'000'000);
     }},
    {"batch_norm_backward_of_planes",
     {out(planes), in(planes), in(planes), statistic_in(three_by_three), in(three),
      statistic_in(two_by_three)},
     [](const Tensors& t) {
       kernel::batch_norm_backward(t[0], t[1], t[2], t[3], t[4], t[5], 1'000'000);
     }},
    {"softmax", {out(matrix), in(matrix)}, [](const Tensors& t) { kernel::softmax(t[0], t[1]); }},
    {"softmax_backward",
     {out(matrix), in(matrix), in(matrix)},
     [](const Tensors& t) { kernel::softmax_backward(t[0], t[1], t[2]); }},
    {"softmax_cross_entropy",
     {statistic_out(each_row), statistic_out(each_row), in(matrix)},
     [](const Tensors& t) {
       kernel::softmax_cross_entropy(t[0], t[1], t[2], integers(t[2].size(0), t[2].size(1)), 1);
     }},
    {"softmax_cross_entropy_backward",
     {out(matrix), in(one), in(matrix), statistic_in(each_row)},
     [](const Tensors& t) {
       kernel::softmax_cross_entropy_backward(t[0], t[1], t[2], t[3],
                                              integers(t[2].size(0), t[2].size(1)), 1);
     }},
    {"bce_with_logits",
     {statistic_out(matrix), in(matrix), in(matrix)},
     [](const Tensors& t) { kernel::bce_with_logits(t[0], t[1], t[2]); }},
    {"bce_with_logits_backward",
     {out(matrix), in(one), in(matrix), in(matrix)},
     [](const Tensors& t) { kernel::bce_with_logits_backward(t[0], t[1], t[2], t[3]); }},
    {"embedding",
     {out(matrix), in(table)},
     [](const Tensors& t) { kernel::embedding(t[0], t[1], integers(t[0].size(0), 7)); }},
    {"embedding_backward",
     {both(table), in(matrix)},
     [](const Tensors& t) {
       kernel::embedding_backward(t[0], t[1], integers(t[1].size(0), 7), 2);
     }},
    {"attention",
     {out(attended), statistic_out(log_sums), in(packed)},
     [](const Tensors& t) { kernel::attention(t[0], t[1], t[2], options_for(t[0], true)); },
     &kSequences},
    {"attention_backward",
     {out(packed), in(attended), in(packed), in(attended), statistic_in(log_sums)},
     [](const Tensors& t) {
       kernel::attention_backward(t[0], t[1], t[2], t[3], t[4], options_for(t[1], true));
     },
     &kSequences},
    {"full_attention",
     {out(attended), statistic_out(log_sums), in(packed)},
     [](const Tensors& t) { kernel::attention(t[0], t[1], t[2], options_for(t[0], false)); },
     &kSequences},
    {"full_attention_backward",
     {out(packed), in(attended), in(packed), in(attended), statistic_in(log_sums)},
     [](const Tensors& t) {
       kernel::attention_backward(t[0], t[1], t[2], t[3], t[4], options_for(t[1], false));
     },
     &kSequences},
};

// Types of the operands that may be narrow, in their order.
struct Types {
  const char* name;
  DType (*of)(Use use, size_t index);
};
const DType kRound[] = {DType::f32, DType::f16, DType::bf16};
const Types kTypes[] = {
    {"f16", [](Use, size_t) { return DType::f16; }},
    {"bf16", [](Use, size_t) { return DType::bf16; }},
    {"f16 to f32", [](Use u, size_t) { return u == Use::in ? DType::f16 : DType::f32; }},
    {"bf16 to f32", [](Use u, size_t) { return u == Use::in ? DType::bf16 : DType::f32; }},
    {"f32 to f16", [](Use u, size_t) { return u == Use::in ? DType::f32 : DType::f16; }},
    {"f32 to bf16", [](Use u, size_t) { return u == Use::in ? DType::f32 : DType::bf16; }},
    {"all three", [](Use, size_t i) { return kRound[i % 3]; }},
    {"all three, turned", [](Use, size_t i) { return kRound[(i + 1) % 3]; }},
    {"all three, turned twice", [](Use, size_t i) { return kRound[(i + 2) % 3]; }},
};

// Normal numbers, with some that overflow or vanish in f16.
Tensor numbers(const Shape& shape, uint32_t key) {
  static const std::vector<float> normal = values(random_tensor({4099}, 1));
  const Tensor x = Tensor::empty(shape);
  float* p = x.mutable_data<float>();
  for (int64_t i = 0; i < x.numel(); ++i)
    p[i] = i % 37 != 11 ? normal[(i + key * 1009) % 4099] : i % 2 ? 60000.0f : 1e-7f;
  return x;
}

// A tensor with one element before and one after it that nobody may touch.
struct Guarded {
  Guarded(const Shape& shape, DType dtype)
      : around(full({shape.numel() + 2}, 7, dtype)), x(around.slice_as_root(1, shape)) {}
  bool intact() const {
    const int64_t n = around.numel();
    return around.slice(0, 1).item() == 7 && around.slice(n - 1, n).item() == 7;
  }
  Tensor around, x;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.numel() == b.numel() &&
         std::memcmp(a.bytes_data(), b.bytes_data(), static_cast<size_t>(a.bytes())) == 0;
}

void compare(const Case& c, const Types& types, Size size) {
  std::vector<Guarded> narrow;
  Tensors wide, call;
  std::vector<uint64_t> versions;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const Operand& o = c.operands[i];
    const DType dtype = o.statistic ? DType::f32 : types.of(o.use, i);
    narrow.emplace_back(o.shape(size), dtype);
    wide.push_back(Tensor::empty(o.shape(size)));
    const Tensor& x = narrow.back().x;
    if (o.use == Use::out)
      kernel::fill(x, NAN);
    else
      kernel::cast(x, numbers(x.shape(), static_cast<uint32_t>(i)));
    kernel::cast(wide.back(), x);
    call.push_back(x);
    versions.push_back(x.version());
  }
  c.call(call);
  c.call(wide);
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const Tensor& x = narrow[i].x;
    const Tensor expected = empty_like(x);
    kernel::cast(expected, wide[i]);
    EXPECT_TRUE(same_bits(x, expected)) << "operand " << i << ", " << describe(x);
    EXPECT_TRUE(narrow[i].intact()) << "around operand " << i;
    if (c.operands[i].use == Use::in) {
      EXPECT_EQ(x.version(), versions[i]) << "operand " << i;
    } else if (x.numel() > 0) {
      EXPECT_GT(x.version(), versions[i]) << "operand " << i;
    }
  }
}

class Floats : public testing::TestWithParam<std::tuple<cpu::Isa, int, const Case*>> {};

TEST_P(Floats, EqualTheF32CallRounded) {
  const auto& [isa, threads, c] = GetParam();
  const cpu::Isa before = cpu::isa();
  cpu::use_isa(isa);
  {
    const ThreadBudget budget(threads);
    for (const Types& types : kTypes)
      for (Size size : *c->sizes) {
        SCOPED_TRACE(std::string(types.name) + " " + std::to_string(size.rows) + " x " +
                     std::to_string(size.columns));
        compare(*c, types, size);
      }
  }
  cpu::use_isa(before);
}

std::vector<const Case*> all_cases() {
  std::vector<const Case*> all;
  for (const Case& c : kCases) all.push_back(&c);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Kernels, Floats,
                         testing::Combine(testing::ValuesIn(cpu::available_isas()),
                                          testing::Values(1, 2), testing::ValuesIn(all_cases())),
                         [](const auto& p) {
                           return std::string(std::get<2>(p.param)->name) + "_" +
                                  std::string(cpu::name_of(std::get<0>(p.param))) + "_" +
                                  std::to_string(std::get<1>(p.param)) + "_threads";
                         });

// Every floating operand of every kernel of the table, one at a time, as integers.
TEST(FloatsErrors, OtherTypesAreRefused) {
  for (const Case& c : kCases)
    for (size_t bad = 0; bad < c.operands.size(); ++bad) {
      Tensors t;
      for (size_t i = 0; i < c.operands.size(); ++i)
        t.push_back(zeros(c.operands[i].shape({3, 4}), i == bad ? DType::i32 : DType::f32));
      const std::string text = error_of<UsageError>([&] { c.call(t); });
      EXPECT_NE(text.find("got i32"), std::string::npos) << c.name << " " << bad << ": " << text;
      EXPECT_EQ(text.rfind("[kernel.", 0), 0) << c.name << " " << bad << ": " << text;
    }
}

}  // namespace
}  // namespace lockstep::test
