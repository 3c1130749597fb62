// Which sites may own slices if some pairs of sites cannot exchange.
#include "core/protocol/coordinator/reachability.h"

#include <gmock/gmock.h>

namespace collab::protocol {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using Address = Reachability::Address;

constexpr Duration kLate = seconds(10);
const SiteId kParis{0}, kRome{1}, kOslo{2}, kLima{3};

Reachability::Sites all(Address address = Address::kVerified) {
  return {{kParis, address}, {kRome, address}, {kOslo, address}, {kLima, address}};
}

// What keeps a pair apart for some rounds.
void part(Reachability& reachability, SiteId a, SiteId b, RoundId round = RoundId{1}) {
  EXPECT_FALSE(reachability.failed(a, b, round, kLate));
  EXPECT_TRUE(reachability.failed(b, a, round, kLate));
}

TEST(Reachability, NeitherOfAPairThatIsApartOwnsASlice) {
  Reachability reachability;
  EXPECT_THAT(reachability.owners(all(), RoundId{1}), ElementsAre(kParis, kRome, kOslo, kLima));
  part(reachability, kRome, kOslo);
  EXPECT_THAT(reachability.owners(all(), RoundId{1}), ElementsAre(kParis, kLima));
  EXPECT_THAT(reachability.owners(all(), RoundId{9}), ElementsAre(kParis, kLima)) << "for eight rounds more";
  EXPECT_THAT(reachability.owners(all(), RoundId{10}), ElementsAre(kParis, kRome, kOslo, kLima));
}

TEST(Reachability, AFailureWithinMomentsCountsHalf) {
  Reachability reachability;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(reachability.failed(kRome, kOslo, RoundId{1}, seconds(1)));
  EXPECT_TRUE(reachability.failed(kRome, kOslo, RoundId{1}, seconds(1)));
}

TEST(Reachability, FailuresOfAnotherRoundDoNotCount) {
  Reachability reachability;
  EXPECT_FALSE(reachability.failed(kRome, kOslo, RoundId{1}, kLate));
  reachability.begin_round();
  EXPECT_FALSE(reachability.failed(kRome, kOslo, RoundId{2}, kLate));
}

TEST(Reachability, SitesThatLeaveAreForgotten) {
  Reachability reachability;
  part(reachability, kRome, kOslo);
  reachability.forget(kOslo);
  EXPECT_THAT(reachability.owners(all(), RoundId{1}), ElementsAre(kParis, kRome, kOslo, kLima));
}

TEST(Reachability, ASiteThatCannotBeDialledOwnsNothingIfOthersCan) {
  const Reachability reachability;
  Reachability::Sites sites = all(Address::kNone);
  EXPECT_THAT(reachability.owners(sites, RoundId{1}), ElementsAre(kParis, kRome, kOslo, kLima)) << "nobody can";
  sites[kRome] = sites[kLima] = Address::kUnverified;
  EXPECT_THAT(reachability.owners(sites, RoundId{1}), ElementsAre(kRome, kLima));
  sites[kLima] = Address::kVerified;
  EXPECT_THAT(reachability.owners(sites, RoundId{1}), ElementsAre(kLima));
}

TEST(Reachability, ASiteThatFailsItsOwnPartOwnsNothing) {
  Reachability reachability;
  part(reachability, kLima, kLima);
  EXPECT_TRUE(reachability.fails_itself(kLima, RoundId{1}));
  EXPECT_FALSE(reachability.fails_itself(kRome, RoundId{1}));
  Reachability::Sites sites = all(Address::kNone);
  sites[kLima] = Address::kVerified;
  EXPECT_THAT(reachability.owners(sites, RoundId{1}), ElementsAre(kParis, kRome, kOslo))
      << "its address is no reason to keep the others out";
}

TEST(Reachability, TheWorstIsLeftOutIfNoSiteReachesAll) {
  Reachability reachability;
  part(reachability, kParis, kRome);
  part(reachability, kOslo, kLima);
  EXPECT_THAT(reachability.owners(all(), RoundId{1}), IsEmpty());
  EXPECT_THAT(reachability.to_leave_out(all(), RoundId{1}), ElementsAre(kLima)) << "of equals the highest";
  part(reachability, kParis, kOslo);
  EXPECT_THAT(reachability.to_leave_out(all(), RoundId{1}), ElementsAre(kOslo)) << "it is cut off from two";
}

}  // namespace
}  // namespace collab::protocol
