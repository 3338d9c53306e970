#include "core/registry.h"
#include "tests/support/error_of.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::error_of;

struct Animal {
  static constexpr std::string_view kKind = "animal";
  virtual ~Animal() = default;
  virtual int64_t legs() const = 0;
};
struct Beetle final : Animal {
  explicit Beetle(const Spec& spec) : lost(spec.integer("lost", 0, {.min = 0, .max = 6})) {}
  int64_t legs() const override { return 6 - lost; }
  int64_t lost;
};
struct Snake final : Animal {
  explicit Snake(const Spec&) {}
  int64_t legs() const override { return 0; }
};
const Register<Animal, Snake> snake{"snake", "none"};
const Register<Animal, Beetle> beetle{"beetle", "six", {{"lost", "legs that are gone (0)"}}};

TEST(Registry, MakesWhatTheSpecNames) {
  auto& registry = Registry<Animal>::instance();
  EXPECT_EQ(registry.make("snake")->legs(), 0);
  EXPECT_EQ(registry.make("beetle:lost=2")->legs(), 4);
}

TEST(Registry, ListsItselfSortedWithTheSettings) {
  EXPECT_EQ(Registry<Animal>::instance().help(),
            "beetle          six\n"
            "  lost            legs that are gone (0)\n"
            "snake           none\n");
}

TEST(Registry, UnknownNamesAndSettingsNameTheKnownOnes) {
  auto& registry = Registry<Animal>::instance();
  EXPECT_EQ(error_of([&] { registry.make("ant"); }),
            "[core.registry] unknown animal; expected beetle, snake, got 'ant'");
  EXPECT_EQ(error_of([&] { registry.make("beetle:last=1"); }),
            "[core.spec] 'beetle:last=1': unknown setting; expected lost, got 'last'");
  EXPECT_EQ(error_of([&] { registry.make("snake:lost=1"); }),
            "[core.spec] 'snake:lost=1': snake has no settings, got 'lost'");
}

TEST(Registry, ANumberAloneIsTheFirstSetting) {
  auto& registry = Registry<Animal>::instance();
  EXPECT_EQ(registry.make("beetle:2")->legs(), 4);
  EXPECT_EQ(registry.make("beetle:0")->legs(), 6);
  EXPECT_EQ(error_of([&] { registry.make("beetle:2,lost=1"); }),
            "[core.spec] 'beetle:2,lost=1': lost is set twice");
  EXPECT_EQ(error_of([&] { registry.make("beetle:7"); }),
            "[core.spec] 'beetle:7': lost; expected an integer in 0..6, got '7'");
  EXPECT_EQ(error_of([&] { registry.make("snake:2"); }),
            "[core.spec] 'snake:2': snake has no settings, got '2'");
}

TEST(Registry, ANameIsRegisteredOnce) {
  EXPECT_EQ(error_of([] {
              Register<Animal, Snake>{"snake", "again"};
            }),
            "[core.registry] animal snake is registered twice");
}

struct Sum {
  static constexpr std::string_view kKind = "sum";
  Sum(const Spec&, std::unique_ptr<int> a, const int& b) : value(*a + b) {}
  int value;
};
const Register<Sum, Sum, std::unique_ptr<int>, const int&> sum{"sum", "of two"};

TEST(Registry, PassesFurtherArgumentsOn) {
  const auto made = Registry<Sum, std::unique_ptr<int>, const int&>::instance().make(
      "sum", std::make_unique<int>(2), 3);
  EXPECT_EQ(made->value, 5);
}

TEST(Spec, ReadsTypedSettings) {
  const Spec spec("topk:ratio=1e-2,values=fp16+ef,every=8,exact,ties=off");
  EXPECT_EQ(spec.name(), "topk");
  EXPECT_EQ(spec.number("ratio", 0.5), 0.01);
  EXPECT_EQ(spec.text("values", "f32"), "fp16+ef");
  EXPECT_EQ(spec.integer("every", 1), 8);
  EXPECT_TRUE(spec.flag("exact", false));
  EXPECT_FALSE(spec.flag("ties", true));
  EXPECT_EQ(spec.integer("absent", 7, {.min = 1}), 7);
  EXPECT_EQ(spec.text("absent", "a", {"a", "b"}), "a");
}

TEST(Spec, RefusesMalformedText) {
  for (const char* text :
       {"", ":a=1", "x:", "x:a=1,", "x:,a=1", "x:=1", "x:a=", "x:a=1,a=2", "x:1,2"})
    EXPECT_NE(error_of([&] { Spec spec(text); }), "") << "'" << text << "'";
}

TEST(Spec, ANumberAloneHasNoNameUntilItIsGivenOne) {
  Spec spec("topk:0.01,exact");
  EXPECT_EQ(error_of([&] {
              spec.expect_keys({"ratio", "exact"});
            }),
            "[core.spec] 'topk:0.01,exact': unknown setting; expected ratio, exact, got '0.01'");
  spec.name_number("ratio");
  spec.expect_keys({"ratio", "exact"});
  EXPECT_EQ(spec.number("ratio", 0.5), 0.01);
  EXPECT_TRUE(spec.flag("exact", false));
}

TEST(Spec, RefusesValuesOfTheWrongTypeOrOutOfBounds) {
  const Spec spec("s:i=8x,n=nan,b=maybe,t=c,low=0,huge=99999999999999999999,many=1e999");
  EXPECT_EQ(
      error_of([&] { spec.integer("low", 1, {.min = 1}); }),
      fmt::format("[core.spec] '{}': low; expected an integer >= 1, got '0'", spec.written()));
  EXPECT_EQ(
      error_of([&] { spec.number("low", 1, {.min = 0.5, .max = 1}); }),
      fmt::format("[core.spec] '{}': low; expected a number in 0.5..1, got '0'", spec.written()));
  EXPECT_EQ(error_of([&] {
              spec.text("t", "a", {"a", "b"});
            }),
            fmt::format("[core.spec] '{}': t; expected a|b, got 'c'", spec.written()));
  EXPECT_NE(error_of([&] { spec.integer("i", 1); }), "");
  EXPECT_NE(error_of([&] { spec.integer("huge", 1); }), "");
  EXPECT_NE(error_of([&] { spec.number("n", 1); }), "");
  EXPECT_NE(error_of([&] { spec.number("many", 1); }), "");
  EXPECT_NE(error_of([&] { spec.flag("b", true); }), "");
}

}  // namespace
}  // namespace lockstep
