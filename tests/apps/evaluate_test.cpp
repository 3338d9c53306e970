#include "apps/transformer/evaluate.h"

#include "apps/transformer/language_data.h"
#include "core/check.h"
#include "distributed/comm/launch.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::apps {
namespace {

constexpr GptConfig kConfig{
    .vocab = 256, .layers = 1, .heads = 2, .width = 16, .context = 8, .dropout = 0.5f};

LanguageData markov(double val_fraction, int64_t val_tokens) {
  return load_language_data({.text = "synthetic:order=1,letters=3,length=1000",
                             .vocab = "byte",
                             .context = 8,
                             .val_fraction = val_fraction,
                             .val_tokens = val_tokens});
}

TEST(Evaluate, CountsEveryTokenOnceForAnyNumberOfRanksAndRows) {
  const LanguageData data = markov(0.3, 0);
  const int64_t windows = data.validation->disjoint();
  ASSERT_EQ(windows, 37);  // 300 tokens: 37 windows of 8 and their last target
  Evaluation first;
  for (const auto& [ranks, rows] : {std::pair{1, 37}, {1, 5}, {2, 4}, {5, 100}, {40, 3}}) {
    distributed::run_ranks(ranks, [&, rows = rows](distributed::Communicator& comm) {
      Gpt model(kConfig, 1);
      const Evaluation seen = evaluate(model, *data.validation, rows, &comm);
      EXPECT_EQ(seen.tokens, windows * 8);
      EXPECT_EQ(model.mode(), layers::Module::Mode::train);
      if (comm.size() == 1 && rows == 37) first = seen;
      EXPECT_NEAR(seen.loss, first.loss, 1e-5);  // dropout is off
      EXPECT_EQ(seen.accuracy, first.accuracy);
    });
  }
  EXPECT_NEAR(first.loss, std::log(256), 0.3);
}

TEST(LanguageData, KeepsAFixedTailFromTraining) {
  const LanguageData data = markov(0.1, 0);
  EXPECT_EQ(data.training->tokens().size(), 900u);
  EXPECT_EQ(data.validation->tokens().size(), 97u);  // whole windows at the end of the tail
  const LanguageData less = markov(0.1, 40);
  EXPECT_EQ(less.training->tokens(), data.training->tokens());
  EXPECT_EQ(less.validation->tokens(), std::vector<int32_t>(data.validation->tokens().end() - 33,
                                                            data.validation->tokens().end()));
  EXPECT_EQ(markov(0, 0).validation, nullptr);
  EXPECT_EQ(markov(0, 0).training->tokens().size(), 1000u);
  EXPECT_GT(*data.best_loss, 0);
  EXPECT_LT(*data.best_loss, std::log(3));
}

TEST(LanguageData, TheTailIsAtLeastAWindow) {
  test::TempFolder folder;
  test::spill(folder / "t", std::string(18, 'a'));
  const LanguageDataOptions options{
      .text = folder / "t", .vocab = "char", .context = 8, .val_fraction = 0.1};
  EXPECT_EQ(load_language_data(options).validation->disjoint(), 1);
  EXPECT_EQ(load_language_data(options).training->count(), 1);
  test::spill(folder / "t", std::string(17, 'a'));
  EXPECT_THROW(load_language_data(options), SystemError);
}

}  // namespace
}  // namespace lockstep::apps
