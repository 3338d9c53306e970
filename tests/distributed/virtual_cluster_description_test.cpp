// What --cluster says, what it means, and how it is written down again.
#include <gtest/gtest.h>

#include "distributed/comm/virtual_cluster/cluster.h"
#include "distributed/comm/virtual_cluster/units.h"
#include "tests/support/error_of.h"

namespace lockstep::distributed::virtual_cluster {
namespace {

/// Passes where `text` contains `part`; a failure shows both.
testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}

TEST(ClusterDescription, ReadsEveryKey) {
  const Cluster c = Cluster::parse(
      "compute=100ms,slow=7:1.3+3:2,jitter=lognormal:0.1+periodic:100:10:2+pause:0.01:500ms,"
      "latency=30us,bandwidth=25Gbit,links=per-link,oversubscription=4,algorithm=tree,"
      "server-latency=5us,server-bandwidth=10GB");
  EXPECT_EQ(c.compute, 0.1);
  EXPECT_EQ(c.slow, (std::vector<SlowRank>{{3, 2}, {7, 1.3}}));
  EXPECT_EQ(c.factor(3), 2);
  EXPECT_EQ(c.factor(7), 1.3);
  EXPECT_EQ(c.factor(0), 1);
  EXPECT_EQ(c.factor(8), 1);
  EXPECT_EQ(c.jitter.law, Jitter::Law::lognormal);
  EXPECT_EQ(c.jitter.spread, 0.1);
  EXPECT_EQ(c.jitter.periodic, (Jitter::Periodic{100, 10, 2}));
  EXPECT_EQ(c.jitter.pause, (Jitter::Pause{0.01, 0.5}));
  EXPECT_EQ(c.latency, 30e-6);
  EXPECT_EQ(c.bandwidth, 3.125e9);
  EXPECT_EQ(c.oversubscription, 4);
  EXPECT_EQ(c.algorithm, Algorithm::tree);
  EXPECT_EQ(c.server_latency, 5e-6);
  EXPECT_EQ(c.server_bandwidth, 10e9);
}

TEST(ClusterDescription, SayingNothingGivesTheDefaults) {
  const Cluster c = Cluster::parse("");
  EXPECT_EQ(c, Cluster{});
  EXPECT_FALSE(c.compute.has_value());
  EXPECT_EQ(c.to_string(),
            "compute=measure,slow=none,jitter=none,latency=20us,bandwidth=10Gbit,links=per-link,"
            "oversubscription=1,algorithm=ring,server-latency=20us,server-bandwidth=10Gbit");
}

TEST(ClusterDescription, TheServerHasTheNetworksLinkUnlessToldOtherwise) {
  const Cluster c = Cluster::parse("latency=1ms,bandwidth=1Gbit");
  EXPECT_EQ(c.server_latency, 1e-3);
  EXPECT_EQ(c.server_bandwidth, 1.25e8);
}

TEST(ClusterDescription, WhatIsWrittenParsesToTheSameBits) {
  for (const char* text :
       {"", "compute=100ms,slow=7:1.3,jitter=lognormal:0.1,latency=20us,bandwidth=10Gbit",
        "compute=measure,slow=none,jitter=none", "latency=0", "latency=0s,bandwidth=1B",
        "compute=0.123456789012345678s,latency=333.3333333333333ns,bandwidth=7.1MB/s",
        "jitter=pareto:2.5", "jitter=pareto:2.5:0.3", "jitter=exponential:0.00001",
        "jitter=periodic:10:0:1e6", "jitter=pause:0.001:1e-7s", "slow=0:0.001+12:1e6",
        "compute=1000000s,bandwidth=1000TB,links=shared,algorithm=tree"}) {
    const Cluster c = Cluster::parse(text);
    EXPECT_EQ(Cluster::parse(c.to_string()), c) << text << " became " << c.to_string();
    EXPECT_EQ(Cluster::parse(c.to_string()).to_string(), c.to_string());
  }
}

TEST(ClusterDescription, AMeasuredTimeOfAnyBitsSurvives) {
  Cluster c;
  for (double seconds = 1.1e-9; seconds < 1e6; seconds *= 1.7) {
    c.compute = seconds;
    EXPECT_EQ(Cluster::parse(c.to_string()).compute, seconds) << c.to_string();
  }
}

TEST(ClusterDescription, UnitsAreDecimalAndBitsAreNotBytes) {
  EXPECT_EQ(read_seconds("20us"), 2e-5);
  EXPECT_EQ(read_seconds("7ns"), 7e-9);
  EXPECT_EQ(read_seconds("1.5s"), 1.5);
  EXPECT_EQ(read_rate("10Gbit"), 1.25e9);
  EXPECT_EQ(read_rate("10Gbit/s"), 1.25e9);
  EXPECT_EQ(read_rate("10GB"), 1e10);
  EXPECT_EQ(read_rate("8bit"), 1);
  EXPECT_EQ(read_rate("3KB/s"), 3000);
  for (const char* text : {"", "s", "20", "20 us", "20uS", "20m", "infs", "nans", "1e400s", "+1s"})
    EXPECT_FALSE(read_seconds(text).has_value()) << text;
  for (const char* text :
       {"", "10", "10Gb", "10gbit", "10Gbps", "10GiB", "infGbit", "/s", "1e300TB"})
    EXPECT_FALSE(read_rate(text).has_value()) << text;
}

/// Descriptions `key` + value must each be refused with an error that says this.
void expect_refused(const std::string& key, const std::vector<const char*>& values,
                    const std::string& says) {
  for (const char* value : values) {
    const std::string text = test::error_of([&] { (void)Cluster::parse(key + value); });
    EXPECT_TRUE(has(text, says)) << "for " << key << value;
  }
}

TEST(ClusterDescription, WhatDoesNotFitIsRefusedByName) {
  expect_refused("latencey=", {"1ms"}, "got 'latencey'");
  expect_refused("latencey=", {"1ms"}, "expected compute, slow, jitter, latency, bandwidth");
  expect_refused("latency=1ms,latency=", {"1ms", "2ms"}, "latency is set twice");
  expect_refused("latency=", {"20"},
                 "[distributed.cluster] latency; expected a time like 100ms (ns, us, ms, s) in "
                 "0s..1000000s, got '20'");
  expect_refused("latency=", {"-1ms", "-0s", "nans", "infs", "1e9s", "fast", "on"},
                 "latency; expected a time");
  expect_refused("bandwidth=", {"10Gb"}, "Mbit, Gbit, Tbit, B, KB, MB, GB, TB, per second");
  expect_refused("bandwidth=", {"0Gbit", "-1Gbit", "infGbit", "nanGbit", "1e9TB", "0", "10Gb"},
                 "bandwidth; expected a rate");
  expect_refused("server-latency=", {"1"}, "server-latency; expected a time");
  expect_refused("server-bandwidth=", {"1"}, "server-bandwidth; expected a rate");
  expect_refused("compute=", {"0s", "0"}, "compute; expected a time above 0");
  expect_refused("compute=", {"-1s", "nans", "soon"}, "compute; expected a time like");
  expect_refused("oversubscription=", {"0.5", "nan", "inf"}, "expected a number in 1..1000000");
  expect_refused("links=", {"both"}, "expected per-link|shared, got 'both'");
  expect_refused("algorithm=", {"star"}, "expected ring|tree, got 'star'");
  expect_refused("links=shared,oversubscription=", {"2"}, "got 'links=shared'");
  expect_refused("compute=1ms,", {"", "slow", "=1"}, "expected");
}

TEST(ClusterDescription, SlowRanksAndLawsThatDoNotFitAreRefused) {
  expect_refused("slow=", {"7", "7:1.3:2", "7:1.3+", "on"}, "slow; expected RANK:FACTOR");
  expect_refused("slow=", {"7:0", "7:-1", "7:nan", "7:inf", "7:1e7", "7:x"},
                 "slow; expected a factor in 1e-06..1000000");
  expect_refused("slow=", {"-1:2", "x:2", "1.5:2", "99999999999:2"},
                 "slow; expected a rank in 0..");
  expect_refused("slow=", {"7:1.3+7:2"}, "one factor for rank 7");
  expect_refused("jitter=",
                 {"normal:0.1", "lognormal", "lognormal:0.1:2", "pareto", "pause:0.1",
                  "periodic:1:1", "periodic:2:1:2+periodic:3:1:2", "lognormal:0.1+none", "on"},
                 "jitter; expected none, or lognormal:SIGMA");
  expect_refused("jitter=", {"lognormal:0.1+exponential:0.1"}, "one random law");
  expect_refused("jitter=lognormal:", {"-0.1", "nan", "6"}, "a sigma in 0..5, got '");
  expect_refused("jitter=exponential:", {"1.1", "-0.1"}, "a fraction in 0..1, got '");
  expect_refused("jitter=pareto:", {"1", "nan", "inf"}, "an alpha in 1.01..1000000, got '");
  expect_refused("jitter=pareto:3:", {"1.1", "x"}, "a fraction in 0..1, got '");
  expect_refused("jitter=periodic:", {"10:11:2"}, "a length in 0..10, got '11'");
  expect_refused("jitter=periodic:", {"0:0:2", "1.5:1:2"}, "a period in 1..");
  expect_refused("jitter=pause:", {"2:1ms"}, "a probability in 0..1, got '2'");
  expect_refused("jitter=pause:", {"0.5:5"}, "a time like 100ms");
}

TEST(ClusterDescription, ASlowRankThatIsNotThereIsRefused) {
  const Cluster c = Cluster::parse("slow=7:1.3");
  EXPECT_NO_THROW(c.expect_ranks(8));
  EXPECT_EQ(test::error_of([&] { c.expect_ranks(7); }),
            "[distributed.cluster] slow; expected a rank in 0..6 of 7, got '7:1.3'");
}

TEST(ClusterDescription, HelpNamesEveryKeyAndItsExampleParses) {
  const std::string help = cluster_help();
  const std::string written = Cluster{}.to_string();
  for (size_t begin = 0; begin < written.size();) {
    const size_t equals = written.find('=', begin);
    EXPECT_TRUE(has(help, "\n  " + written.substr(begin, equals - begin) + " "));
    begin = std::min(written.find(',', equals), written.size() - 1) + 1;
  }
  const size_t example = help.rfind("--cluster ") + 10;
  EXPECT_NO_THROW(Cluster::parse(help.substr(example, help.find('\n', example) - example)));
}

}  // namespace
}  // namespace lockstep::distributed::virtual_cluster
