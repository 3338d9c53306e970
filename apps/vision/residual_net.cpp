#include "apps/vision/residual_net.h"

#include "autograd/ops.h"
#include "layers/batch_norm.h"
#include "layers/conv2d.h"
#include "layers/group_norm.h"

namespace lockstep::apps {
namespace {

using layers::Initialiser;
using Norm = ResidualNetConfig::Norm;

constexpr int kStages = 3;
constexpr double kHeadSd = 0.01;  // so that all classes start about as likely

const ResidualNetConfig& checked(const ResidualNetConfig& config) {
  check_config(config);
  return config;
}

// One convolution of the net.
struct ConvolutionShape {
  int64_t in, out, window, stride;
  int64_t weights() const { return checked_mul(checked_mul(in, out), window * window); }
};

// f(shape) for every convolution, in order of construction.
template <class F>
void each_convolution(const ResidualNetConfig& c, F f) {
  f(ConvolutionShape{c.channels, c.width, 3, 1});
  int64_t in = c.width;
  for (int stage = 0; stage < kStages; ++stage)
    for (int64_t block = 0; block < c.blocks; ++block) {
      const int64_t out = checked_mul(c.width, int64_t{1} << stage), stride = out == in ? 1 : 2;
      f(ConvolutionShape{in, out, 3, stride});
      f(ConvolutionShape{out, out, 3, 1});
      if (out != in) f(ConvolutionShape{in, out, 1, stride});
      in = out;
    }
}
int64_t features_of(const ResidualNetConfig& c) { return c.width << (kStages - 1); }

}  // namespace

void check_config(const ResidualNetConfig& c) {
  const auto positive = [](const char* name, int64_t value) {
    check(value >= 1, "[residual_net.config] {}; expected at least 1, got {}", name, value);
  };
  positive("channels", c.channels);
  positive("classes", c.classes);
  positive("width", c.width);
  positive("blocks", c.blocks);
  if (c.norm != Norm::group) return;
  positive("groups", c.groups);
  check(c.width % c.groups == 0,
        "[residual_net.config] groups; expected a divisor of the width {}, got {}", c.width,
        c.groups);
}

int64_t parameter_count(const ResidualNetConfig& c) {
  const int64_t others = c.norm == Norm::none ? 1 : 2;  // a bias, or what a norm has
  int64_t sum = checked_mul(checked_add(checked_mul(c.width, 1 << (kStages - 1)), 1), c.classes);
  each_convolution(c, [&](const ConvolutionShape& s) {
    sum = checked_add(sum, checked_add(s.weights(), checked_mul(s.out, others)));
  });
  return sum;
}

double product_flops(const ResidualNetConfig& c, int64_t size, int64_t samples) {
  double sum = 6.0 * static_cast<double>(c.classes * features_of(c));
  int64_t side = size;
  bool first = true;
  each_convolution(c, [&](const ConvolutionShape& s) {
    if (s.window > 1 && s.stride > 1) side = (side + 1) / 2;  // its shortcut comes after it
    const double products = static_cast<double>(s.weights()) * static_cast<double>(side * side);
    sum += (first ? 4 : 6) * products;
    first = false;
  });
  return sum * static_cast<double>(samples);
}

// A convolution and what follows it.
class ResidualNet::Unit final : public layers::Module {
 public:
  Unit(Initialiser& init, const ResidualNetConfig& config, const ConvolutionShape& shape,
       const layers::WeightInit& weight = layers::Conv2dOptions().init)
      : conv_(init, shape.in, shape.out,
              {.window = square(shape.window),
               .convolution = {.stride = square(shape.stride), .padding = square(shape.window / 2)},
               .bias = config.norm == Norm::none,
               .init = weight}) {
    add_child("conv", conv_);
    if (config.norm == Norm::batch)
      add_child("norm", *(batch_ = std::make_unique<layers::BatchNorm>(init, shape.out)));
    if (config.norm == Norm::group)
      add_child("norm",
                *(group_ = std::make_unique<layers::GroupNorm>(init, config.groups, shape.out)));
  }

  Tensor operator()(const Tensor& x) const {
    const Tensor y = conv_(x);
    return batch_ ? (*batch_)(y) : group_ ? (*group_)(y) : y;
  }
  /// relu(unit + addend), of which the addend may be undefined.
  Tensor relu(const Tensor& x, const Tensor& addend = {}) const {
    if (batch_) return batch_->relu(conv_(x), addend);
    const Tensor y = (*this)(x);
    return ops::unary(addend.defined() ? ops::add(y, addend) : y, kernel::Unary::relu);
  }

 private:
  layers::Conv2d conv_;
  std::unique_ptr<layers::BatchNorm> batch_;
  std::unique_ptr<layers::GroupNorm> group_;
};

struct ResidualNet::Block final : layers::Module {
  Block(Initialiser& init, const ResidualNetConfig& config, int64_t in, int64_t out)
      : first(init, config, {in, out, 3, in == out ? 1 : 2}),
        second(init, config, {out, out, 3, 1},
               config.norm == Norm::none ? layers::normal(0) : layers::Conv2dOptions().init) {
    add_child("first", first);
    add_child("second", second);
    if (in == out) return;
    shortcut = std::make_unique<Unit>(init, config, ConvolutionShape{in, out, 1, 2});
    add_child("shortcut", *shortcut);
  }
  Tensor operator()(const Tensor& x) const {
    return second.relu(first.relu(x), shortcut ? (*shortcut)(x) : x);
  }

  Unit first, second;
  std::unique_ptr<Unit> shortcut;
};

ResidualNet::ResidualNet(const ResidualNetConfig& config, uint64_t seed)
    : config_(checked(config)), init_(seed) {
  stem_ = std::make_unique<Unit>(init_, config_,
                                 ConvolutionShape{config_.channels, config_.width, 3, 1});
  add_child("stem", *stem_);
  int64_t in = config_.width;
  for (int stage = 0; stage < kStages; ++stage)
    for (int64_t block = 0; block < config_.blocks; ++block) {
      const int64_t out = config_.width << stage;
      blocks_.push_back(std::make_unique<Block>(init_, config_, in, out));
      add_child(fmt::format("blocks.{}", blocks_.size() - 1), *blocks_.back());
      in = out;
    }
  head_ = std::make_unique<layers::Linear>(init_, features_of(config_), config_.classes,
                                           layers::LinearOptions{.init = layers::normal(kHeadSd)});
  add_child("head", *head_);
}

ResidualNet::~ResidualNet() = default;

Tensor ResidualNet::logits(const Tensor& images) const {
  check(images.rank() == 4 && images.size(1) == config_.channels &&
            images.size(2) == images.size(3) && images.size(2) >= 1,
        "[residual_net.logits] images; expected [batch, {}, size, size], got {}", config_.channels,
        images);
  Tensor x = stem_->relu(images);
  for (const auto& block : blocks_) x = (*block)(x);
  return (*head_)(ops::global_average_pool(x));
}

Tensor ResidualNet::loss_sum(const Tensor& images, const Tensor& labels) const {
  const Tensor of = logits(images);
  check(labels.shape() == Shape{images.size(0)},
        "[residual_net.loss_sum] labels; expected [{}], got {}", images.size(0), labels.shape());
  return ops::softmax_cross_entropy_sum(of, labels);
}

}  // namespace lockstep::apps
