#include "core/runtime/pending_joins.h"

#include <gmock/gmock.h>

namespace collab {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kLarge = std::size_t{8} << 20;
constexpr std::uint64_t kMuchMemory = std::uint64_t{1} << 36;
constexpr auto kAll = [](LinkId) { return true; };

TEST(PendingJoinsTest, TheLargestGoIfTheyHaveTooManyBytes) {
  PendingJoins joins(kMuchMemory);
  for (std::uint64_t link = 1; link <= 32; ++link) EXPECT_THAT(joins.on_join(LinkId{link}, kLarge, kAll), IsEmpty());
  EXPECT_THAT(joins.on_join(LinkId{40}, 100'000, kAll), ElementsAre(LinkId{1}));
  EXPECT_THAT(joins.on_join(LinkId{41}, kLarge + 1, kAll), ElementsAre(LinkId{41})) << "it is the largest itself";
}

TEST(PendingJoinsTest, InASmallContainerFewerAreKept) {
  PendingJoins joins(std::uint64_t{1} << 30);
  for (std::uint64_t link = 1; link <= 16; ++link) EXPECT_THAT(joins.on_join(LinkId{link}, kLarge, kAll), IsEmpty());
  EXPECT_THAT(joins.on_join(LinkId{17}, kLarge - 1, kAll), ElementsAre(LinkId{1}));
}

// A scalar of one letter takes a few bytes on the wire.
TEST(PendingJoinsTest, AJoinCountsAsWhatItTakesHere) {
  wire::Join join;
  join.model.resize(1000, {"a", "b", {1, 1}, TensorKind::kFrozen, {}});
  join.settings.resize(1000);
  join.report.record.voters.resize(1000);
  EXPECT_GE(held_bytes(join, 20'000), 20'000 + 1000 * (sizeof(wire::ModelEntry) + 16 + sizeof(wire::Setting)));
}

TEST(PendingJoinsTest, MemoryIsGivenBackOnceLittleIsKeptAfterMuch) {
  PendingJoins joins(kMuchMemory);
  for (std::uint64_t link = 1; link <= 9; ++link) static_cast<void>(joins.on_join(LinkId{link}, kLarge, kAll));
  for (std::uint64_t link = 1; link <= 7; ++link) joins.closed(LinkId{link});
  EXPECT_FALSE(joins.may_trim()) << "two are kept, a quarter of what is much";
  joins.closed(LinkId{8});
  EXPECT_TRUE(joins.may_trim());
  EXPECT_FALSE(joins.may_trim());
}

TEST(PendingJoinsTest, DroppedJoinsDoNotCount) {
  PendingJoins joins(kMuchMemory);
  for (std::uint64_t link = 1; link <= 32; ++link) static_cast<void>(joins.on_join(LinkId{link}, kLarge, kAll));
  joins.closed(LinkId{7});
  EXPECT_THAT(joins.on_join(LinkId{40}, kLarge, kAll), IsEmpty());
  EXPECT_THAT(joins.on_join(LinkId{40}, kLarge, kAll), IsEmpty()) << "said again it is one";
  EXPECT_THAT(joins.on_join(LinkId{41}, kLarge, [](LinkId link) { return link != LinkId{3}; }), IsEmpty());
}

}  // namespace
}  // namespace collab
