#include "apps/cli/console.h"
#include "apps/cli/exit_code.h"
#include "apps/commands.h"
#include "apps/transformer/model_file.h"
#include "apps/transformer/sampling.h"
#include "autograd/no_grad.h"
#include "core/check.h"
#include "core/parallel.h"

namespace lockstep::apps {
namespace {

class Sample final : public Command {
 public:
  Sample() : Command("sample", "let a trained model go on with a text") {
    options_.group("text");
    options_.positional(directories_, "DIR", "a run's directory, or its model.safetensors");
    options_.text("--prompt", prompt_, "TEXT", "what to go on with; without one, a new line");
    options_.integer("--tokens", tokens_, {0, 1'000'000}, "how many to add");
    options_.number("--temperature", choice_.temperature, {0, 1000, ""},
                    "0: always the likeliest; 1: as learnt");
    options_.integer("--top-k", choice_.top_k, {0, 1'000'000},
                     "choose among the k likeliest, 0: among all");
    options_.integer("--seed", seed_, {0, INT64_MAX}, "of the choices");
    options_.integer("--threads", threads_, {0, 4096}, "0: all cores");
  }
  std::vector<std::string> examples() const override {
    return {"sample runs/a --prompt \"In the beginning\" --tokens 200 --temperature 0.8",
            "sample runs/a --temperature 0", "sample runs/a/model.safetensors --top-k 10 --seed 7"};
  }

  int run() override {
    check(directories_.size() == 1, "sample: expected one run directory, got {}",
          directories_.size());
    const ThreadBudget budget(threads_ == 0 ? available_cores() : static_cast<int>(threads_));
    const LoadedModel loaded = load_model(directories_[0]);
    const autograd::NoGrad no_grad;
    const Random random(static_cast<uint64_t>(seed_), RandomStream::sampling);
    std::vector<int32_t> text = loaded.tokenizer->encode(prompt_);
    bool heard = print(prompt_);
    if (text.empty()) text = first_token(*loaded.tokenizer);
    for (int64_t i = 0; i < tokens_ && heard; ++i) {
      text.push_back(
          next_token(*loaded.model, text, choice_, random.uniform53(static_cast<uint64_t>(i))));
      heard = print(loaded.tokenizer->decode({text.back()}));
    }
    print("\n");
    return kOk;
  }

 private:
  static std::vector<int32_t> first_token(const data::Tokenizer& tokenizer) {
    try {
      return tokenizer.encode("\n");
    } catch (const UsageError&) {  // a vocabulary without new lines
      return {0};
    }
  }

  std::vector<std::string> directories_;
  std::string prompt_;
  int64_t tokens_ = 200, seed_ = 1, threads_ = 0;
  TokenChoice choice_;
};

}  // namespace

std::unique_ptr<Command> sample_command() { return std::make_unique<Sample>(); }

}  // namespace lockstep::apps
