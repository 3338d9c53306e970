#include "core/kernels/cpu/dnnl_convolution.h"

#include <unordered_map>

#include "core/kernels/cpu/dnnl_call.h"

namespace lockstep::cpu {

using dnnl::memory;
using Forward = dnnl::convolution_forward;
using ToInput = dnnl::convolution_backward_data;
using ToWeight = dnnl::convolution_backward_weights;
using Pass = ConvolutionKey::Pass;

namespace {

constexpr auto kFloat = memory::data_type::f32;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr a;
  a.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return a;
}

// Operands as we hold them, dense, and as oneDNN would like them.
struct Descriptions {
  explicit Descriptions(const ConvolutionKey& key) {
    const int64_t groups = key.options.groups;
    const memory::dims of_x = {key.images, key.in, key.x.rows, key.x.columns},
                       of_y = {key.images, key.out, key.y.rows, key.y.columns};
    memory::dims of_weight = {key.out / groups, key.in / groups, key.window.rows,
                              key.window.columns};
    if (groups > 1) of_weight.insert(of_weight.begin(), groups);
    x = {of_x, kFloat, memory::format_tag::nchw};
    y = {of_y, kFloat, memory::format_tag::nchw};
    weight = {of_weight, kFloat, groups > 1 ? memory::format_tag::goihw : memory::format_tag::oihw};
    any_x = {of_x, kFloat, memory::format_tag::any};
    any_y = {of_y, kFloat, memory::format_tag::any};
    any_weight = {of_weight, kFloat, memory::format_tag::any};
    if (key.bias) bias = {{key.out}, kFloat, memory::format_tag::x};
    const auto dims = [](Plane p) { return memory::dims{p.rows, p.columns}; };
    stride = dims(key.options.stride), padding = dims(key.options.padding);
    dilation = {key.options.dilation.rows - 1, key.options.dilation.columns - 1};
  }
  memory::desc x, y, weight, any_x, any_y, any_weight, bias;  // a zero desc: no bias
  memory::dims stride, padding, dilation;
};

#if DNNL_VERSION_MAJOR >= 3
Forward::primitive_desc plan_forward(const Descriptions& d) {
  return {dnnl_engine(), dnnl::prop_kind::forward_training,
          kDirect,       d.any_x,
          d.any_weight,  d.bias,
          d.any_y,       d.stride,
          d.dilation,    d.padding,
          d.padding,     attributes()};
}
ToInput::primitive_desc plan_to_input(const Descriptions& d) {
  return {dnnl_engine(), kDirect,   d.any_x,   d.any_weight,    d.any_y,     d.stride,
          d.dilation,    d.padding, d.padding, plan_forward(d), attributes()};
}
ToWeight::primitive_desc plan_to_weight(const Descriptions& d) {
  return {dnnl_engine(), kDirect,   d.any_x,   d.any_weight,    d.any_y,     d.stride,
          d.dilation,    d.padding, d.padding, plan_forward(d), attributes()};
}
#else
Forward::primitive_desc plan_forward(const Descriptions& d) {
  return {Forward::desc(dnnl::prop_kind::forward_training, kDirect, d.any_x, d.any_weight, d.bias,
                        d.any_y, d.stride, d.dilation, d.padding, d.padding),
          attributes(), dnnl_engine()};
}
ToInput::primitive_desc plan_to_input(const Descriptions& d) {
  return {ToInput::desc(kDirect, d.any_x, d.any_weight, d.any_y, d.stride, d.dilation, d.padding,
                        d.padding),
          attributes(), dnnl_engine(), plan_forward(d)};
}
ToWeight::primitive_desc plan_to_weight(const Descriptions& d) {
  return {ToWeight::desc(kDirect, d.any_x, d.any_weight, d.any_y, d.stride, d.dilation, d.padding,
                         d.padding),
          attributes(), dnnl_engine(), plan_forward(d)};
}
#endif

// One operand between our storage and oneDNN's.
struct Turn {
  DnnlCall call;       // none where the two are the same
  int64_t floats = 0;  // of the turned one; 0 where there is none
  Turn() = default;
  Turn(const memory::desc& from, const memory::desc& to, const memory::desc& theirs) {
    if (from == to) return;
    const dnnl::reorder::primitive_desc made(dnnl_engine(), from, dnnl_engine(), to, attributes());
    call = DnnlCall(dnnl::reorder(made), made.scratchpad_desc());
    call.add(DNNL_ARG_FROM, from);
    call.add(DNNL_ARG_TO, to);
    floats = static_cast<int64_t>(theirs.get_size() / sizeof(float));
  }
  /// An operand where oneDNN takes it: `x` itself, or turned into `room`.
  const float* in(const float* x, const Scratch<float>& room) {
    if (floats == 0) return x;
    call({x, room.data()});
    return room.data();
  }
};

template <class F>
decltype(auto) guarded(F f) {
  try {
    return f();
  } catch (const dnnl::error& e) {
    throw SystemError(Fault::device, fmt::format("[kernel.conv2d] oneDNN: {} (status {})", e.what(),
                                                 static_cast<int>(e.status)));
  }
}

struct Hash {
  size_t operator()(const ConvolutionKey& key) const {
    size_t hash = 0;
    const auto& o = key.options;
    for (int64_t part :
         {static_cast<int64_t>(key.pass), key.images, key.in, key.out, key.x.rows, key.x.columns,
          key.y.rows, key.y.columns, key.window.rows, key.window.columns, o.stride.rows,
          o.stride.columns, o.padding.rows, o.padding.columns, o.dilation.rows, o.dilation.columns,
          o.groups, int64_t{key.bias}})
      hash = (hash ^ static_cast<size_t>(part)) * 0x9E3779B97F4A7C15u + (hash >> 29);
    return hash;
  }
};

}  // namespace

// A primitive and what turns its operands: first and second are x and weight, dy and weight, or x
// and dy; the result is y, dx or dweight.
class ConvolutionPlan {
 public:
  explicit ConvolutionPlan(const ConvolutionKey& key) {
    const Descriptions d(key);
    if (key.pass == Pass::forward) {
      const auto made = plan_forward(d);
      call = DnnlCall(Forward(made), made.scratchpad_desc());
      take(DNNL_ARG_SRC, first, d.x, made.src_desc());
      take(DNNL_ARG_WEIGHTS, second, d.weight, made.weights_desc());
      give(DNNL_ARG_DST, d.y, made.dst_desc());
      if (key.bias) call.add(DNNL_ARG_BIAS, made.bias_desc());
    } else if (key.pass == Pass::to_input) {
      const auto made = plan_to_input(d);
      call = DnnlCall(ToInput(made), made.scratchpad_desc());
      take(DNNL_ARG_DIFF_DST, first, d.y, made.diff_dst_desc());
      take(DNNL_ARG_WEIGHTS, second, d.weight, made.weights_desc());
      give(DNNL_ARG_DIFF_SRC, d.x, made.diff_src_desc());
    } else {
      const auto made = plan_to_weight(d);
      call = DnnlCall(ToWeight(made), made.scratchpad_desc());
      take(DNNL_ARG_SRC, first, d.x, made.src_desc());
      take(DNNL_ARG_DIFF_DST, second, d.y, made.diff_dst_desc());
      give(DNNL_ARG_DIFF_WEIGHTS, d.weight, made.diff_weights_desc());
    }
  }

  DnnlCall call;
  Turn first, second, result;
  int64_t result_floats = 0;  // as oneDNN stores it

 private:
  void take(int argument, Turn& turn, const memory::desc& ours, const memory::desc& theirs) {
    turn = Turn(ours, theirs, theirs);
    call.add(argument, theirs);
  }
  void give(int argument, const memory::desc& ours, const memory::desc& theirs) {
    result = Turn(theirs, ours, theirs);
    result_floats = static_cast<int64_t>(theirs.get_size() / sizeof(float));
    call.add(argument, theirs);
  }
};

namespace {

constexpr size_t kMostPlans = 1024;  // shapes that keep changing must not pile up

ConvolutionPlan& plan_for(const ConvolutionKey& key) {
  keep_dnnl_on_this_thread();
  thread_local std::unordered_map<ConvolutionKey, ConvolutionPlan, Hash> plans;
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  if (plans.size() >= kMostPlans) plans.clear();
  return guarded([&]() -> ConvolutionPlan& { return plans.try_emplace(key, key).first->second; });
}

void add_to(float* sum, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

}  // namespace

int64_t ConvolutionRun::images_together(const ConvolutionKey& key) {
  constexpr int64_t kTogether = 1 << 17;  // floats
  return std::max<int64_t>(1, kTogether / (key.in * key.x.size() + key.out * key.y.size()));
}

ConvolutionRun::ConvolutionRun(const ConvolutionKey& key, const float* weight, const float* bias)
    : key_(key),
      plan_(plan_for(key)),
      bias_(bias),
      first_(plan_.first.floats),
      second_(plan_.second.floats),
      result_(key.pass == Pass::to_weight ? plan_.result_floats : plan_.result.floats),
      sum_(key.pass == Pass::to_weight ? plan_.result_floats : 0) {
  if (key.pass != Pass::to_weight)
    weight_ = guarded([&] { return plan_.second.in(weight, second_); });
}

void ConvolutionRun::operator()(float* result, const float* operand) {
  guarded([&] {
    const float* first = plan_.first.in(operand, first_);
    const bool turned = plan_.result.floats > 0;
    float* to = turned ? result_.data() : result;
    if (key_.pass == Pass::forward && key_.bias)
      plan_.call({first, weight_, to, bias_});
    else
      plan_.call({first, weight_, to});
    if (turned) plan_.result.call({to, result});
  });
}

void ConvolutionRun::add(const float* dy, const float* x) {
  guarded([&] {
    float* to = any_ ? result_.data() : sum_.data();
    const float *first = plan_.first.in(x, first_), *second = plan_.second.in(dy, second_);
    plan_.call({first, second, to});
    if (any_) add_to(sum_.data(), to, plan_.result_floats);
    any_ = true;
  });
}

void ConvolutionRun::take(float* dweight) {
  if (!any_) return;
  const int64_t n = key_.out * key_.in / key_.options.groups * key_.window.size();
  const Scratch<float> dense(plan_.result.floats > 0 ? n : 0);
  if (dense.data() != nullptr) guarded([&] { plan_.result.call({sum_.data(), dense.data()}); });
  add_to(dweight, dense.data() != nullptr ? dense.data() : sum_.data(), n);
  any_ = false;
}

}  // namespace lockstep::cpu
