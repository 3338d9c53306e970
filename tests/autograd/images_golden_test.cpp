// Convolution and pooling against PyTorch, forward and backward (made by
// tests/golden/make_images.py).
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "autograd/graph.h"
#include "autograd/leaf.h"
#include "autograd/ops.h"
#include "core/safetensors.h"
#include "test_paths.h"
#include "tests/support/tensors.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::near;

// "stride 2 1 ceil 1"
std::map<std::string, std::vector<int64_t>> options_of(const std::string& text) {
  std::map<std::string, std::vector<int64_t>> all;
  std::istringstream words(text);
  std::string key;
  for (std::string word; words >> word;) {
    if (std::isalpha(static_cast<unsigned char>(word[0])))
      key = word;
    else
      all[key].push_back(std::stoll(word));
  }
  return all;
}

TEST(GoldenImages, ConvolutionsAndPoolingsGiveWhatPyTorchGives) {
  const SafetensorsReader file(LOCKSTEP_SOURCE_DIR "/tests/golden/images.safetensors");
  int cases = 0;
  for (const auto& [name, text] : file.metadata()) {
    if (name.find('/') == std::string::npos) continue;
    SCOPED_TRACE(name + ": " + text);
    const auto options = options_of(text);
    const auto plane = [&](const std::string& key) {
      return Plane{options.at(key).at(0), options.at(key).at(1)};
    };
    std::vector<std::string> inputs = {"x"};
    if (name.starts_with("conv/")) inputs.insert(inputs.end(), {"weight", "bias"});
    std::vector<Tensor> in;
    for (const std::string& input : inputs) {
      in.push_back(file.read(name + "/" + input));
      autograd::require_grad(in.back());
    }
    Tensor y;
    if (name.starts_with("conv/")) {
      y = conv2d(in[0], in[1], in[2],
                 {.stride = plane("stride"),
                  .padding = plane("padding"),
                  .dilation = plane("dilation"),
                  .groups = options.at("groups").at(0)});
    } else {
      const kernel::Pooling pooling{
          plane("window"), plane("stride"), plane("padding"),
          options.at("ceil").at(0) ? kernel::LastWindow::overhanging : kernel::LastWindow::inside};
      if (name.starts_with("max/"))
        y = max_pool(in[0], pooling);
      else
        y = average_pool(in[0], pooling,
                         options.at("count_include_pad").at(0) ? kernel::Divisor::padded
                                                               : kernel::Divisor::image);
    }
    EXPECT_TRUE(near(y, file.read(name + "/y"), 1e-5));
    autograd::backward(y, file.read(name + "/dy"));
    for (size_t i = 0; i < in.size(); ++i)
      EXPECT_TRUE(near(autograd::grad(in[i]), file.read(name + "/d" + inputs[i]), 1e-5))
          << inputs[i];
    ++cases;
  }
  EXPECT_EQ(cases, 15);
}

}  // namespace
}  // namespace lockstep::ops
