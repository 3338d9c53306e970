#include "core/profile.h"

#include "distributed/comm/launch.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::distributed {
namespace {

using Kind = Profile::Kind;

// Three all-reduces in one step of each rank, with `what` done between posting and waiting.
template <class F>
void reduce_thrice(int ranks, std::span<Profile> profiles, F&& what) {
  run_ranks(ranks, [&](Communicator& comm) {
    const Profile::Attach attached(&profiles[static_cast<size_t>(comm.rank())]);
    const Tensor x = full({1024}, 1);
    const ProfileSpan step(Kind::step, "step");
    for (int i = 0; i < 3; ++i) {
      const WorkPtr work = comm.all_reduce(x);
      what(comm);
      work->wait();
    }
  });
}

Profile::Row row(const Profile& profile, Kind kind, std::string_view name) {
  for (const Profile::Row& r : profile.rows())
    if (r.kind == kind && r.name == name) return r;
  return {};
}

TEST(Profile, CollectivesCountTheirPostingTheirWaitAndTheirWay) {
  std::array<Profile, 2> profiles{Profile({.warm_up = 0}), Profile({.warm_up = 0})};
  reduce_thrice(2, profiles, [](Communicator&) {});
  for (const Profile& profile : profiles) {
    const auto posted = row(profile, Kind::collective, "all_reduce");
    EXPECT_EQ(posted.calls, 3);
    EXPECT_EQ(posted.cost.bytes, 3 * 4096.0);
    const auto waited = row(profile, Kind::collective, "wait for all_reduce");
    EXPECT_EQ(waited.calls, 3);
    const auto way = row(profile, Kind::transfer, "all_reduce");
    EXPECT_EQ(way.calls, 3);
    EXPECT_EQ(way.cost.bytes, 3 * 4096.0);
    const auto step = row(profile, Kind::step, "step");
    EXPECT_LE(way.total_ns, step.total_ns);
    EXPECT_EQ(posted.self_ns + waited.self_ns + step.self_ns, step.total_ns);
  }
}

TEST(Profile, MovingCollectivesAlongIsSeen) {
  std::array<Profile, 2> profiles{Profile({.warm_up = 0}), Profile({.warm_up = 0})};
  reduce_thrice(2, profiles, [](Communicator& comm) { comm.progress(); });
  for (const Profile& profile : profiles)
    EXPECT_EQ(row(profile, Kind::collective, "move collectives").calls, 3);
}

TEST(Profile, RanksWithoutOneAreNotDisturbed) {
  std::array<Profile, 1> profiles{Profile({.warm_up = 0})};
  run_ranks(2, [&](Communicator& comm) {
    const Profile::Attach attached(comm.rank() == 0 ? profiles.data() : nullptr);
    const ProfileSpan step(Kind::step, "step");
    const Tensor x = full({8}, 1);
    comm.all_reduce(x)->wait();
    EXPECT_EQ(values(x), std::vector<float>(8, 2.f));
  });
  EXPECT_EQ(row(profiles[0], Kind::transfer, "all_reduce").calls, 1);
}

}  // namespace
}  // namespace lockstep::distributed
