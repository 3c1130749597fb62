// What a site begins with, from what is left of its record, its shared memory and its state file.
#include "core/runtime/storage/beginning.h"

#include <gtest/gtest.h>

#include "core/runtime/storage/anchor_record.h"

namespace collab {
namespace {

using Voters = std::vector<wire::Voter>;

const AcceptorId kFresh{99};
const wire::Voter kParis{SiteId(0), "paris", AcceptorId(11), false};
const wire::Voter kOslo{SiteId(1), "oslo", AcceptorId(12), false};

wire::Offer anchor(std::uint64_t run, std::uint64_t round) { return {RunId(run), RoundId(round), Digest{run, round}}; }

wire::Record membership(const wire::Offer& of, Voters voters) {
  wire::Record record;
  record.promised = TermId(5);
  record.anchor = of;
  record.voters = std::move(voters);
  return record;
}

SealedAnchor sealed(const wire::Offer& of, const Voters& voters) {
  return with_membership({of.run, of.round, of.digest, {}}, {TermId(5), voters});
}

Remains::State state(const wire::Offer& of, const Voters& voters) { return {of, membership(of, voters), false}; }

TEST(Beginning, StartsWithANewAcceptorIfNothingWasSaved) {
  const Beginning site = begin_with({}, kFresh);
  EXPECT_EQ(site.record.acceptor, kFresh);
  EXPECT_EQ(site.record.anchor, wire::Offer{});
  EXPECT_FALSE(site.anchor);
}

TEST(Beginning, TakesTheMembershipFromTheAnchorIfThereIsNoRecord) {
  const wire::Offer at = anchor(3, 7);
  const Beginning of_arena = begin_with({{}, sealed(at, {kParis, kOslo}), {}}, kFresh);
  const Beginning of_state = begin_with({{}, {}, state(at, {kParis, kOslo})}, kFresh);
  for (const Beginning& site : {of_arena, of_state}) {
    EXPECT_EQ(site.record.acceptor, kFresh) << "its memory is not the one that the membership names";
    EXPECT_EQ(site.record.promised, TermId(5));
    EXPECT_EQ(site.record.anchor, at);
    EXPECT_EQ(site.record.voters, (Voters{kParis, kOslo}));
    EXPECT_EQ(site.anchor, sealed(at, {kParis, kOslo}));
  }
  EXPECT_FALSE(of_arena.from_state);
  EXPECT_TRUE(of_state.from_state);
}

TEST(Beginning, WaitsForNoSiteAfterAnOrderlyEnd) {
  Remains remains{{}, {}, state(anchor(3, 7), {kParis, kOslo})};
  remains.state->ended = true;
  const Beginning site = begin_with(remains, kFresh);
  EXPECT_EQ(site.record.anchor, wire::Offer{});
  EXPECT_TRUE(site.record.voters.empty());
  ASSERT_TRUE(site.anchor);
  EXPECT_EQ(site.anchor->round, RoundId(7));
  EXPECT_TRUE(site.anchor->attached.empty());
  remains.record = membership(anchor(3, 6), {kParis, kOslo});
  remains.record->acceptor = AcceptorId(11);
  EXPECT_EQ(begin_with(remains, kFresh).record.anchor, anchor(3, 7)) << "whose record is here has not ended";
}

TEST(Beginning, TheNewestAnchorCountsAndTheOneInMemoryIfBothAreEqual) {
  const auto begin = [](const wire::Offer& arena, const wire::Offer& on_disk) {
    return begin_with({{}, sealed(arena, {kParis}), state(on_disk, {kOslo})}, kFresh);
  };
  EXPECT_FALSE(begin(anchor(3, 7), anchor(3, 7)).from_state);
  EXPECT_EQ(begin(anchor(3, 8), anchor(3, 7)).record.voters, Voters{kParis});
  EXPECT_EQ(begin(anchor(3, 7), anchor(3, 8)).record.voters, Voters{kOslo});
  EXPECT_EQ(begin(anchor(4, 1), anchor(3, 8)).record.voters, Voters{kParis}) << "a later run's";
}

TEST(Beginning, AStateOfARunThatTheSiteHadLeftIsNotTheNewest) {
  const wire::Offer left = anchor(4, 17);
  const wire::Offer last = anchor(3, 15);
  Remains remains{membership(last, {kParis}), sealed(last, {kParis}), state(left, {kParis, kOslo})};
  EXPECT_FALSE(begin_with(remains, kFresh).from_state);
  remains.record = membership(left, {kParis, kOslo});
  EXPECT_TRUE(begin_with(remains, kFresh).from_state);
}

// Why a state that was passed over is given its name back only once the record is away, too.
TEST(Beginning, ARecordOfALaterRunOverridesTheMembershipOfAState) {
  Remains remains{membership(anchor(8, 5), {kParis, kOslo}), {}, state(anchor(7, 24), {kParis})};
  const Beginning held = begin_with(remains, kFresh);
  EXPECT_TRUE(held.from_state);
  EXPECT_EQ(held.record.anchor, anchor(8, 5));
  EXPECT_EQ(held.record.voters, (Voters{kParis, kOslo}));
  remains.record.reset();
  const Beginning site = begin_with(remains, kFresh);
  EXPECT_EQ(site.record.anchor, anchor(7, 24));
  EXPECT_EQ(site.record.voters, Voters{kParis});
}

TEST(Beginning, KeepsWhatTheRecordKnowsOfALaterRound) {
  Remains remains{membership(anchor(3, 9), {kParis, kOslo}), sealed(anchor(3, 7), {kParis}), {}};
  remains.record->acceptor = AcceptorId(11);
  const Beginning site = begin_with(remains, kFresh);
  EXPECT_EQ(site.record, *remains.record);
  EXPECT_EQ(site.anchor->round, RoundId(7));
}

}  // namespace
}  // namespace collab
