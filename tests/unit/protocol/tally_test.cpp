// How much each site has contributed, as the status tells.
#include "core/protocol/coordinator/tally.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using H = CoordinatorHarness;
using testing::ElementsAre;

TEST(Tally, AddsUpByNameAndListsTheLargestFirst) {
  Tally tally;
  tally.add("paris", 10);
  tally.add("tokyo", 64);
  tally.add("paris", 22);
  tally.add("lima", 32);
  EXPECT_THAT(tally.top(10),
              ElementsAre(Contributed{"tokyo", 64, 1}, Contributed{"lima", 32, 1}, Contributed{"paris", 32, 2}));
  EXPECT_THAT(tally.top(1), ElementsAre(Contributed{"tokyo", 64, 1}));
}

TEST(Tally, DoesNotWrapAround) {
  Tally tally;
  tally.add("liar", std::numeric_limits<std::uint64_t>::max());
  tally.add("liar", 2);
  EXPECT_EQ(tally.top(1)[0].samples, std::numeric_limits<std::uint64_t>::max());
}

TEST(Tally, DropsTheNameWithTheLeastWhenThereAreTooMany) {
  Tally tally;
  for (std::size_t i = 0; i < Tally::kMaxNames; ++i) tally.add("site " + std::to_string(i), 5 + i);
  tally.add("late", 100);
  const std::vector<Contributed> all = tally.top(2 * Tally::kMaxNames);
  EXPECT_EQ(all.size(), Tally::kMaxNames);
  EXPECT_TRUE(std::ranges::find(all, "site 0", &Contributed::name) == all.end());
  EXPECT_FALSE(std::ranges::find(all, "late", &Contributed::name) == all.end());
}

TEST(TallyOfRounds, CountsWhatWasCommittedAndNothingElse) {
  H c;
  c.gather({"paris", "tokyo"});
  static_cast<void>(c.hear(1, H::ready(1, 32)));
  const auto starts = sent<wire::StartAttempt>(c.hear(2, H::ready(1, 64)));
  ASSERT_EQ(starts.size(), 2U);
  static_cast<void>(c.hear(1, H::done(starts[0].second)));
  EXPECT_TRUE(c.coordinator.status(c.now).contributed.empty());
  static_cast<void>(c.hear(2, H::done(starts[0].second)));
  EXPECT_THAT(c.coordinator.status(c.now).contributed,
              ElementsAre(Contributed{"tokyo", 64, 1}, Contributed{"paris", 32, 1}));
}

// lima cannot be dialled, so it owns nothing, and its contribution outlives it.
TEST(TallyOfRounds, CountsASiteThatContributedAndWasLostBeforeTheCommit) {
  H c;
  for (const std::uint32_t i : {0U, 1U, 2U}) {
    wire::Join join = join_of(std::array{"paris", "tokyo", "lima"}.at(i), 3);
    if (i == 2) join.address.clear();
    static_cast<void>(c.hear(i + 1, join));
  }
  for (const std::uint64_t link : {1U, 2U, 3U})
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  for (const std::uint64_t link : {1U, 2U, 3U}) static_cast<void>(c.hear(link, H::ready(1, 8)));
  const auto again = sent<wire::StartAttempt>(c.close(3));
  ASSERT_EQ(again.size(), 2U);
  for (const std::uint64_t link : {1U, 2U}) static_cast<void>(c.hear(link, H::done(again[0].second)));
  EXPECT_THAT(c.coordinator.status(c.now).contributed,
              ElementsAre(Contributed{"lima", 8, 1}, Contributed{"paris", 8, 1}, Contributed{"tokyo", 8, 1}));
}

TEST(LossInStatus, KeepsTheLastFiniteLoss) {
  H c;
  c.gather({"paris", "tokyo"});
  EXPECT_FALSE(c.coordinator.status(c.now).members[0].loss);
  for (const float loss : {2.5F, std::numeric_limits<float>::infinity()}) {
    wire::Ready ready = H::ready(1, loss > 3 ? 16 : 8);
    ready.measured.loss = std::bit_cast<std::uint32_t>(loss);
    static_cast<void>(c.hear(1, ready));
    EXPECT_EQ(c.coordinator.status(c.now).members[0].loss, 2.5);
  }
}

TEST(LossInStatus, IsWhatTheSiteWasToldAtItsTrigger) {
  SiteHarness s;
  s.become(0, {"paris"});
  Trigger trigger{48, 3};
  trigger.measured.loss = std::bit_cast<std::uint32_t>(1.25F);
  EXPECT_EQ(sent<wire::Ready>(s.step(trigger))[0].second.measured.loss, trigger.measured.loss);
}

}  // namespace
}  // namespace collab::protocol
