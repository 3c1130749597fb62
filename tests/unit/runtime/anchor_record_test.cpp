// An anchor and the membership it was agreed on with.
#include "core/runtime/storage/anchor_record.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

const SealedAnchor kAnchor{RunId(3), RoundId(7), Digest{1, 2}, {}};
const wire::Voter kParis{SiteId(0), "paris", AcceptorId(11), false};

TEST(AnchorRecord, CarriesTheMembershipAndThePromise) {
  const SealedAnchor sealed = with_membership(kAnchor, {TermId(5), {kParis}});
  wire::Record known;
  known.promised = TermId(2);
  take_membership(known, sealed);
  EXPECT_EQ(known.promised, TermId(5));
  EXPECT_EQ(known.voters, std::vector{kParis});
  EXPECT_EQ(known.anchor, (wire::Offer{RunId(3), RoundId(7), Digest{1, 2}}));
}

TEST(AnchorRecord, AMissingOrDamagedRecordTeachesNothing) {
  wire::Record known;
  take_membership(known, kAnchor);
  SealedAnchor damaged = with_membership(kAnchor, {TermId(5), {kParis}});
  damaged.attached.pop_back();
  take_membership(known, damaged);
  EXPECT_EQ(known, wire::Record{});
}

TEST(AnchorRecord, AnOlderAnchorDoesNotReplaceWhatIsKnown) {
  wire::Record known;
  take_membership(known, with_membership({RunId(3), RoundId(8), Digest{3, 4}, {}}, {TermId(6), {kParis}}));
  const wire::Record before = known;
  take_membership(known, with_membership(kAnchor, {TermId(9), {}}));
  take_membership(known, with_membership(kAnchor, {TermId(9), {{SiteId(1), "rome", AcceptorId(12), false}}}));
  EXPECT_EQ(known, before);
}

}  // namespace
}  // namespace collab
