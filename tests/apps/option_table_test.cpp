#include "apps/cli/option_table.h"

#include "core/check.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

namespace lockstep::apps {
namespace {

struct Example {
  int64_t steps = 10;
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  std::vector<int64_t> hidden{64, 32};
  std::string sync = "allreduce", kind = "byte";
  bool bias = true, json = false;
  std::vector<std::string> rest;
  OptionTable table;

  Example() {
    table.group("all");
    table.integer("--steps", steps, {1, 1000}, "steps");
    table.number("--lr", lr, {0, 1, ""}, "rate");
    table.pair("--betas", betas, {0, 1, ""}, "betas");
    table.integers("--hidden", hidden, {1, 100}, "widths");
    table.text("--sync", sync, "SPEC", "strategy");
    table.choice("--kind", kind, {"byte", "char"}, "kind");
    table.on_off("--bias", bias, "bias");
    table.flag("--json", json, "json");
    table.config_file();
  }
  std::string error(const std::vector<std::string>& words) {
    try {
      table.parse(words);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  }
};

TEST(OptionTable, FillsVariablesFromBothSpellings) {
  Example e;
  EXPECT_TRUE(e.table.parse({"--steps", "20", "--lr=0.5", "--betas", "0.8,0.9", "--sync",
                             "a:b=c,d=e", "--kind", "char", "--bias", "off", "--json"}));
  EXPECT_EQ(e.steps, 20);
  EXPECT_EQ(e.lr, 0.5);
  EXPECT_EQ(e.betas, (std::array<double, 2>{0.8, 0.9}));
  EXPECT_EQ(e.sync, "a:b=c,d=e");
  EXPECT_EQ(e.kind, "char");
  EXPECT_FALSE(e.bias);
  EXPECT_TRUE(e.json);
  EXPECT_TRUE(e.table.given("--lr"));
  EXPECT_EQ(e.hidden, (std::vector<int64_t>{64, 32}));
  EXPECT_TRUE(e.table.parse({"--hidden", "3, 2,1"}));
  EXPECT_EQ(e.hidden, (std::vector<int64_t>{3, 2, 1}));
  for (const std::string word : {"", "{}", "[a,b]", "-x", "a b", "\"q\""}) {  // any word is a text
    Example other;
    EXPECT_TRUE(other.table.parse({"--sync", word}));
    EXPECT_EQ(other.sync, word);
  }
  EXPECT_FALSE(Example().table.given("--lr"));
}

TEST(OptionTable, ErrorsSayExpectedAndGot) {
  EXPECT_EQ(Example().error({"--steps", "0"}), "--steps: expected an integer 1..1000, got '0'");
  EXPECT_EQ(Example().error({"--steps", "-5"}), "--steps: expected an integer 1..1000, got '-5'");
  EXPECT_EQ(Example().error({"--steps", "1000000000000000000"}),
            "--steps: expected an integer 1..1000, got '1000000000000000000'");
  EXPECT_EQ(Example().error({"--lr", "fast"}), "--lr: expected a number 0..1, got 'fast'");
  EXPECT_EQ(Example().error({"--betas", "0.9"}),
            "--betas: expected two numbers with a comma between, got '0.9'");
  for (const std::string word : {"", "1,", "1,101", "one"})
    EXPECT_EQ(Example().error({"--hidden", word}),
              "--hidden: expected integers 1..100 with commas between, got '" + word + "'");
  EXPECT_EQ(Example().error({"--kind", "chars"}),
            "--kind: expected byte, char, got 'chars'; did you mean char?");
  EXPECT_EQ(Example().error({"--bias", "maybe"}), "--bias: expected on or off, got 'maybe'");
  EXPECT_EQ(Example().error({"--stepz", "3"}), "unknown option '--stepz'; did you mean --steps?");
  EXPECT_EQ(Example().error({"--compress", "topk"}), "unknown option '--compress'");
  EXPECT_EQ(Example().error({"word"}), "unexpected argument 'word'; expected options");
  EXPECT_EQ(Example().error({"--lr", "1", "--lr", "0.5"}), "--lr was given 2 times; expected once");
  EXPECT_EQ(Example().error({"--lr"}), "--lr: expected a value, got nothing");
}

TEST(OptionTable, ConfigFilesFillInWhatTheLineLeavesOut) {
  test::TempFolder folder;
  test::spill(
      folder / "c.toml",
      "# comment\nlr = 0.25\nsteps = 7\nbetas = [0.5, 0.75]\nkind = \"char\"\njson = true\n");
  Example e;
  EXPECT_TRUE(e.table.parse({"--config", folder / "c.toml", "--steps", "9"}));
  EXPECT_EQ(e.lr, 0.25);
  EXPECT_EQ(e.steps, 9);
  EXPECT_EQ(e.betas, (std::array<double, 2>{0.5, 0.75}));
  EXPECT_EQ(e.kind, "char");
  EXPECT_TRUE(e.json);

  // A value with commas is one value, and a line stands once.
  for (const std::string sync : {"a:b=c,d=e", "\"a:b=c,d=e\""}) {
    test::spill(folder / "c.toml", "sync = " + sync + "\nbetas = 0.5, 0.75\nhidden = [8, 4]\n");
    Example specs;
    EXPECT_TRUE(specs.table.parse({"--config", folder / "c.toml"}));
    EXPECT_EQ(specs.hidden, (std::vector<int64_t>{8, 4}));
    EXPECT_EQ(specs.sync, "a:b=c,d=e");
    EXPECT_EQ(specs.betas, (std::array<double, 2>{0.5, 0.75}));
  }
  test::spill(folder / "c.toml", "lr = 0.25\nsteps = 7\nlr = 0.5\n");
  EXPECT_EQ(Example().error({"--config", folder / "c.toml"}),
            "--lr was given twice in the --config file; expected once");

  test::spill(folder / "c.toml", "learning = 1\n");
  EXPECT_EQ(Example().error({"--config", folder / "c.toml"}),
            "unknown option '--learning' in the --config file");
  test::spill(folder / "c.toml", "lr = fast\n");
  EXPECT_EQ(Example().error({"--config", folder / "c.toml"}),
            "--lr: expected a number 0..1, got 'fast'");
  try {
    Example().table.parse({"--config", folder / "none.toml"});
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.fault(), Fault::file);
  }
}

TEST(OptionTable, ValuesAreTheWholeConfiguration) {
  Example e;
  e.table.parse({"--lr", "0.1"});
  EXPECT_EQ(
      e.table.values().dump(),
      R"({"steps":10,"lr":0.1,"betas":[0.9,0.999],"hidden":[64,32],"sync":"allreduce","kind":"byte","bias":"on"})");
}

TEST(OptionTable, HelpShowsDefaultsAndRanges) {
  const std::string help = Example().table.help();
  EXPECT_NE(help.find("--steps N               steps (10; 1..1000)"), std::string::npos) << help;
  EXPECT_NE(help.find("--betas A,B             betas (0.9,0.999; 0..1)"), std::string::npos)
      << help;
  EXPECT_NE(help.find("--kind byte|char        kind (byte)"), std::string::npos) << help;
}

}  // namespace
}  // namespace lockstep::apps
