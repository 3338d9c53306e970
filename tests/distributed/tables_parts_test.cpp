// What table strategies are made of: places of rows, their owners, and what travels.
#include <gtest/gtest.h>

#include "distributed/comm/scalars.h"
#include "distributed/control.h"
#include "distributed/tables/row_routes.h"
#include "distributed/tables/row_slots.h"
#include "tables.h"
#include "tests/support/error_of.h"

namespace lockstep::distributed {
namespace {

using test::error_of;
using Ids = std::vector<int32_t>;
using Rows = std::vector<int64_t>;

Rows copy(std::span<const int64_t> rows) { return {rows.begin(), rows.end()}; }

TEST(RowSlots, RowsOfAMicroBatchGetPlacesInTheirOrderAndKeepThem) {
  RowSlots slots(Rows{100, 10}, Rows{4, 3});
  // Two samples; bags of 2 and 1 in table 0, 1 and 1 in table 1.
  const Tensor offsets = from_values(Ids{0, 2, 3, 4, 5});
  EXPECT_EQ(values<int32_t>(slots.place(from_values(Ids{70, 9, 70, 5, 5}), offsets)),
            (Ids{1, 0, 1, 0, 0}));
  EXPECT_EQ(copy(slots.fresh()), (Rows{9, 70, 105}));
  EXPECT_EQ(copy(slots.fresh_places()), (Rows{0, 1, 4}));
  // A later micro-batch appends.
  EXPECT_EQ(values<int32_t>(slots.place(from_values(Ids{8, 70, 99, 5, 0}), offsets)),
            (Ids{2, 1, 3, 0, 1}));
  EXPECT_EQ(copy(slots.fresh()), (Rows{8, 99, 100}));
  const Tensor places = from_values(Rows{0, 2, 5});
  slots.to_rows(places);
  EXPECT_EQ(values<int64_t>(places), (Rows{9, 8, 100}));
  Rows found;
  slots.add_places_of(Rows{8, 9, 99, 105}, found);
  EXPECT_EQ(found, (Rows{2, 0, 3, 4}));

  const std::string error = error_of([&] {
    slots.place(from_values(Ids{1, 2, 3, 4, 5}), offsets);
  });
  EXPECT_NE(error.find("table 0"), std::string::npos) << error;
  slots.clear();
  EXPECT_EQ(values<int32_t>(slots.place(from_values(Ids{1, 2, 3, 4, 5}), offsets)),
            (Ids{0, 1, 2, 0, 1}));
  EXPECT_FALSE(slots.place({}, {}).defined());
  EXPECT_TRUE(slots.fresh().empty());
}

TEST(RowSlots, PlacesAreThoseOfAMapOverManyWindows) {
  RowSlots slots(Rows{1'000'000'000, 50}, Rows{600, 50});
  const Random random(3, RandomStream::tests);
  for (uint64_t window = 0; window < 50; ++window) {
    std::map<int64_t, int64_t> places;
    for (uint64_t micro = 0; micro < 3; ++micro) {
      Ids rows;
      for (uint64_t i = 0; i < 400; ++i) {
        const uint64_t at = (window * 3 + micro) * 400 + i;
        const uint64_t row = random.below(i < 200 && at % 2 == 0 ? 1'000'000'000 : 50, at);
        rows.push_back(static_cast<int32_t>(row));
      }
      const Tensor found = slots.place(from_values(rows), {});
      for (size_t i = 0; i < rows.size(); ++i) {
        const int64_t row = rows[i] + (i < 200 ? 0 : 1'000'000'000);
        const int64_t place = found.data<int32_t>()[i] + (i < 200 ? 0 : 600);
        ASSERT_EQ(places.try_emplace(row, place).first->second, place);
      }
      EXPECT_TRUE(std::ranges::is_sorted(slots.fresh()));
    }
    Rows rows, expected, got;
    for (const auto& [row, place] : places) rows.push_back(row), expected.push_back(place);
    slots.add_places_of(rows, got);
    EXPECT_EQ(got, expected);
    const Tensor back = from_values(expected);
    slots.to_rows(back);
    EXPECT_EQ(values<int64_t>(back), rows);
    std::ranges::sort(expected);
    EXPECT_EQ(std::ranges::adjacent_find(expected), expected.end());  // no place is given twice
    slots.clear();
  }
}

TEST(RowRoutes, RowsGoToTheirOwnersAndAnswersComeBack) {
  run_ranks(3, {}, [](Communicator& comm) {
    RowRoutes routes(comm, 7);  // 3, 3 and 1
    EXPECT_EQ(routes.first_owned(1), 3);
    EXPECT_EQ(routes.first_owned(3), 7);
    // Rank r asks for rows r, r + 2, r + 4; rank 2 for nothing in the middle.
    const Rows mine =
        comm.rank() == 2 ? Rows{2, 6} : Rows{comm.rank(), comm.rank() + 2, comm.rank() + 4};
    routes.plan(mine);
    const Rows came = values<int64_t>(routes.to_owners(from_values(mine), 1, {}));
    const std::vector<Rows> expected = {{0, 2, 1, 2}, {4, 3, 5}, {6}};
    EXPECT_EQ(came, expected[comm.rank()]);
    std::vector<float> answers;
    for (const int64_t row : came) answers.insert(answers.end(), {1.0f * row, 0.5f * row});
    const Tensor back = routes.to_askers(from_values(answers), 2, {});
    std::vector<float> wanted;
    for (const int64_t row : mine) wanted.insert(wanted.end(), {1.0f * row, 0.5f * row});
    EXPECT_EQ(values(back), wanted);
  });
}

TEST(RowRoutes, MoreRanksThanRows) {
  run_ranks(4, {}, [](Communicator& comm) {
    RowRoutes routes(comm, 2);
    routes.plan(Rows{0, 1});
    EXPECT_EQ(routes.received_rows(), comm.rank() < 2 ? 4 : 0);
  });
}

// promise 5: what a report calls unique_row_bytes is what the communicator counted and moved,
// without the numbers of rows.
TEST(TableTraffic, BytesOfRowsAreThoseThatWereMoved) {
  for (const std::string spec : {"gathered", "sharded"})
    run_ranks(3, {}, [&](Communicator& comm) {
      TableTrainer trainer(comm, "allreduce", spec);
      comm.reset_stats();
      const int64_t moved = comm.moved_bytes();
      trainer.step(0, 2);
      comm.barrier();
      const CommStats stats = comm.stats();
      const auto really = static_cast<double>(comm.moved_bytes() - moved);
      const double counted = sum_over_ranks(comm, stats.total().wire_bytes);
      EXPECT_NEAR(counted, sum_over_ranks(comm, really), 1e-6 * counted);
      const double control =
          2 * static_cast<double>(sizeof(Control) + trainer.params.slices().size());
      const double counts = 2 * 8;
      EXPECT_EQ(trainer.number("unique_row_bytes"),
                spec == "gathered" ? stats[Verb::all_gather].wire_bytes - control - counts
                                   : stats[Verb::all_to_all].wire_bytes - 3 * counts)
          << spec;
      const double before = trainer.number("unique_row_bytes");
      (void)trainer.evaluate(2);
      EXPECT_EQ(trainer.number("unique_row_bytes"), before);
    });
}

// The larger part of the tables is nowhere on a rank that owns a part of them.
TEST(TableTraffic, ARankOfShardedTablesKeepsItsPartAndAWindow) {
  const auto sync = make_table_sync("sharded");
  const TableContext context{.rows = {3, 1'000'000}, .width = 4, .lookups = 50};
  EXPECT_EQ(sync->local_rows(context), (Rows{3, 50}));
  EXPECT_EQ(make_table_sync("gathered")->local_rows(context), context.rows);
}

}  // namespace
}  // namespace lockstep::distributed
