#include "apps/transformer/model_file.h"

#include "autograd/no_grad.h"
#include "core/check.h"
#include "core/safetensors.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::apps {
namespace {

const GptConfig kConfig{
    .vocab = 5, .layers = 2, .heads = 2, .width = 8, .context = 4, .bias = false};

class ModelFile : public testing::Test {
 protected:
  ModelFile() : tokenizer_(data::char_tokenizer("abcd\n")), model_(kConfig, 7), params_(model_) {
    save_model(path_, kConfig, *tokenizer_, params_, params_.all().param);
  }
  // What loading complains about after the tensors and metadata were changed.
  std::string complaint(const std::function<void(std::vector<NamedTensor>&, Metadata&)>& change) {
    const SafetensorsReader file(path_);
    std::vector<NamedTensor> tensors;
    for (const auto& entry : file.entries()) tensors.push_back({entry.name, file.read(entry.name)});
    Metadata metadata = file.metadata();
    change(tensors, metadata);
    write_safetensors(folder_ / "changed", tensors, metadata);
    try {
      load_model(folder_ / "changed");
    } catch (const SystemError& e) {
      EXPECT_EQ(e.fault(), Fault::file);
      return e.what();
    }
    return "";
  }

  test::TempFolder folder_;
  std::string path_ = folder_ / "model.safetensors";
  std::unique_ptr<data::Tokenizer> tokenizer_;
  Gpt model_;
  optim::FlatParams params_;
};

TEST_F(ModelFile, GivesTheSameModelBack) {
  const LoadedModel loaded = load_model(folder_.path());
  const autograd::NoGrad no_grad;
  const Tensor ids = from_values<int32_t>({0, 1, 2, 4}, {1, 4});
  model_.set_mode(layers::Module::Mode::evaluate);
  EXPECT_EQ(values(loaded.model->logits(ids)), values(model_.logits(ids)));
  EXPECT_EQ(loaded.tokenizer->encode("dab"), tokenizer_->encode("dab"));
}

TEST_F(ModelFile, HoldsAParameterForEachNameInOrderOfConstruction) {
  const SafetensorsReader file(path_);
  EXPECT_EQ(file.entries().front().name, "wte.weight");
  EXPECT_EQ(file.entries()[1].name, "wpe.weight");
  EXPECT_EQ(file.metadata().at("aliases"), R"({"lm_head.weight":"wte.weight"})");
  int64_t elements = 0;
  for (const auto& entry : file.entries()) elements += entry.shape.numel();
  EXPECT_EQ(elements, parameter_count(kConfig));
  GptConfig with_bias = kConfig;
  with_bias.bias = true;
  Gpt other(with_bias, 1);
  EXPECT_EQ(optim::FlatParams(other).all().numel(), parameter_count(with_bias));
}

TEST_F(ModelFile, WhatDoesNotFitIsAFileError) {
  using Tensors = std::vector<NamedTensor>;
  EXPECT_EQ(complaint([](Tensors&, Metadata&) {}), "");
  EXPECT_NE(complaint([](Tensors& t, Metadata&) { t.pop_back(); }), "");
  EXPECT_NE(complaint([](Tensors& t, Metadata&) { t[0].name = "other"; }), "");
  EXPECT_NE(complaint([](Tensors& t, Metadata&) {
              t[0].tensor = t[0].tensor.reshape({8, 5});
            }),
            "");
  EXPECT_NE(complaint([](Tensors& t, Metadata&) {
              t[1].tensor = full(t[1].tensor.shape(), std::numeric_limits<double>::quiet_NaN());
            }).find("wpe.weight; expected finite values"),
            std::string::npos);
  for (const char* key : {"kind", "config", "tokenizer"})
    EXPECT_NE(complaint([&](Tensors&, Metadata& m) { m.erase(key); }), "") << key;
  EXPECT_NE(complaint([](Tensors&, Metadata& m) { m["kind"] = "dlrm"; }), "");
  EXPECT_NE(
      complaint([](Tensors&, Metadata& m) { m["tokenizer"] = data::byte_tokenizer()->to_json(); }),
      "");
  for (
      const char* config :
      {"", "{", "[]", "{}", R"({"vocab":"x"})",
       R"({"vocab":5,"layers":2,"heads":3,"width":8,"context":4,"bias":false,"gelu":"tanh","dropout":0})",
       R"({"vocab":5,"layers":2.5,"heads":2,"width":8,"context":4,"bias":false,"gelu":"tanh","dropout":0})",
       R"({"vocab":18446744073709551615,"layers":2,"heads":2,"width":8,"context":4,"bias":false,"gelu":"tanh","dropout":0})",
       R"({"vocab":5,"layers":4000000000000000000,"heads":2,"width":8,"context":4,"bias":false,"gelu":"tanh","dropout":0})",
       R"({"vocab":5,"layers":2,"heads":2,"width":8,"context":4,"bias":false,"gelu":"soft","dropout":0})"})
    EXPECT_NE(complaint([&](Tensors&, Metadata& m) { m["config"] = config; }), "") << config;
}

}  // namespace
}  // namespace lockstep::apps
