// A2a: "7B parameters have 28 GB of gradients; 8 cards exchanging them move 224 GB". Arithmetic, by
// the formulas that the modelled cluster goes by, which are held against bytes counted at a small
// scale.
#include "apps/compare/claims/gradient_traffic.h"

#include "apps/compare/claims/models.h"
#include "apps/compare/verdict_rules.h"
#include "distributed/comm/virtual_cluster/network.h"

#include <fmt/format.h>

#include <vector>

namespace lockstep::apps {
namespace {

using distributed::virtual_cluster::Cluster, distributed::virtual_cluster::Network;

constexpr int kCards = 8;
constexpr double kParameters = 7e9, kGiga = 1e9, kClaimedGradients = 28, kClaimedTraffic = 224;

PerStep counted() { return PerStep(tiny_gpt(kCards, 1)); }

Needs ask(const Setting&) { return {{counted().shorter, counted().longer}, {}}; }

Outcome judge(const Setting&, Results& results) {
  const double elements = results.result(counted().longer).figure("parameters");
  const double model =
      Network(Cluster{}, kCards).all_reduce(static_cast<int64_t>(4 * elements)).bytes;
  const double bytes = counted().of(results, "wire_bytes");
  const GradientTraffic t = traffic_of_7b(bytes / model);
  Outcome outcome{.verdict = judge_traffic(t)};
  outcome.figures = {{"gradients of a card", "GB", t.gradients},
                     {"ring all-reduce, sent by a card", "GB", t.ring_card},
                     {"ring all-reduce, sent by all", "GB", t.ring_all},
                     {"everybody to everybody, sent by a card", "GB", t.direct_card},
                     {"everybody to everybody, sent by all", "GB", t.direct_all},
                     {"every card's gradients once", "GB", t.once},
                     {"counted bytes of a small ring over the model's", "", t.counted_over_model}};
  outcome.charts = {
      {.title = "What 8 cards send for one step of 7 billion parameters",
       .kind = ChartKind::bar,
       .y = {"bytes sent by all cards", "GB"},
       .categories = {"each gradient once", "ring all-reduce", "everybody to everybody"},
       .series = {{.name = "this model", .y = {t.once, t.ring_all, t.direct_all}},
                  {.name = "the document", .y = {224, 224, 224}}}}};
  outcome.takeaway =
      "A ring all-reduce makes each card send 2·(n-1)/n times its gradients, however many cards "
      "there are: reckon 49 GB a card for 28 GB of gradients. 224 GB is what one direction of a "
      "parameter server carries.";
  return outcome;
}

const RegisterClaim registered{
    {.id = "A2a",
     .source = "document A, compression",
     .statement =
         "7B parameters have 28 GB of fp32 gradients; 8 cards exchanging them move 224 GB.",
     .done =
         "The bytes of a ring all-reduce and of everybody sending to everybody, by the formulas "
         "of the modelled cluster; these are held against the bytes that 8 ranks of a small "
         "model count.",
     .rule = "Direction: reproduced where the gradients are 28 GB and the counted bytes of a ring "
             "are within 1 % of the formula's. Size: reproduced where a ring's total or everybody "
             "to everybody's is 224 GB within 5 %; in part where 224 GB is what the cards hold, "
             "sent once; else not.",
     .ask = ask,
     .judge = judge}};

}  // namespace

GradientTraffic traffic_of_7b(double counted_over_model) {
  const Network network(Cluster{}, kCards);
  GradientTraffic t{.gradients = 4 * kParameters / kGiga, .counted_over_model = counted_over_model};
  const auto bytes = static_cast<int64_t>(t.gradients * kGiga);
  t.ring_card = network.all_reduce(bytes).bytes / kGiga;
  t.ring_all = kCards * t.ring_card;
  t.direct_card = network.all_gather(std::vector<int64_t>(kCards, bytes)).bytes / kGiga;
  t.direct_all = kCards * t.direct_card;
  t.once = kCards * t.gradients;
  return t;
}

Verdict judge_traffic(const GradientTraffic& t) {
  const auto near = [](double value, double claimed, double share) {
    return within({"GB", "", value}, {claimed * (1 - share), claimed * (1 + share)},
                  {claimed * (1 - share), claimed * (1 + share)}, Provenance::arithmetic);
  };
  Verdict verdict;
  const Judgement gradients =
      within({"gradients of a card", "GB", t.gradients},
             {kClaimedGradients * 0.99, kClaimedGradients * 1.01},
             {kClaimedGradients * 0.9, kClaimedGradients * 1.1}, Provenance::arithmetic);
  Judgement model = within({"counted bytes over the formula's", "", t.counted_over_model},
                           {0.99, 1.01}, {0.99, 1.01}, Provenance::arithmetic);
  if (model.finding != Finding::reproduced) model.finding = Finding::inconclusive;
  verdict.direction = all_of(std::vector{gradients, model});
  const bool moved = near(t.ring_all, kClaimedTraffic, 0.05).finding == Finding::reproduced ||
                     near(t.direct_all, kClaimedTraffic, 0.05).finding == Finding::reproduced;
  const bool held = near(t.once, kClaimedTraffic, 0.05).finding == Finding::reproduced;
  verdict.size = Judgement{
      moved  ? Finding::reproduced
      : held ? Finding::in_part
             : Finding::not_reproduced,
      Provenance::arithmetic,
      fmt::format("a ring moves {:.0f} GB, everybody to everybody {:.0f} GB; the gradients of all "
                  "cards, each sent once, are {:.0f} GB",
                  t.ring_all, t.direct_all, t.once)};
  if (model.finding == Finding::inconclusive) verdict.size->finding = Finding::inconclusive;
  return verdict;
}

}  // namespace lockstep::apps
