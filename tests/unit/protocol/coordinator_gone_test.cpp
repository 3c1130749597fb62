// Sites that contributed and were lost before the commit.
#include <gmock/gmock.h>

#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using H = CoordinatorHarness;

// lima cannot be dialled, so it owns nothing, and may be lost without the loss of its contribution.
class RoundWithoutAnAddress : public testing::Test {
 protected:
  RoundWithoutAnAddress() {
    const std::vector<std::string> names{"paris", "tokyo", "lima"};
    for (std::uint32_t i = 0; i < 3; ++i) {
      wire::Join join = join_of(names[i], 3);
      if (i == 2) join.address.clear();
      static_cast<void>(c.hear(i + 1, join));
    }
    for (std::uint64_t link = 1; link <= 3; ++link)
      static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
    first = c.start(1, 3);
    const auto starts = sent<wire::StartAttempt>(c.close(3));
    EXPECT_EQ(starts.size(), 2U);
    if (!starts.empty()) again = starts[0].second;
  }
  H c;
  wire::StartAttempt first;
  wire::StartAttempt again;
};

TEST_F(RoundWithoutAnAddress, ALostSiteStaysAContributor) {
  EXPECT_EQ(again.slices, first.slices);
  ASSERT_EQ(again.participants.size(), 3U);
  EXPECT_EQ(again.participants[2], (wire::Participant{SiteId{2}, "lima", 1, AttemptId{1}, false}));
  EXPECT_EQ(again.voters.size(), 2U);
  static_cast<void>(c.hear(1, H::done(again)));
  const auto actions = c.hear(2, H::done(again));
  const auto commits = sent<wire::Commit>(actions);
  ASSERT_EQ(commits.size(), 2U);
  EXPECT_EQ(commits[0].second.contributors, (std::vector<SiteId>{SiteId{0}, SiteId{1}, SiteId{2}}));
  EXPECT_THAT(notes(actions), HasSubstr("round 1: paris, tokyo, lima"));
}

TEST_F(RoundWithoutAnAddress, ALostSiteIsLeftOutIfAnOwnerLacksPartOfItsContribution) {
  const auto actions = c.hear(2, wire::PeerUnreachable{RoundId{1}, again.attempt, SiteId{2}, "not here whole"});
  EXPECT_THAT(notes(actions), HasSubstr("tokyo has received only part of what lima contributed before it was lost"));
  const auto starts = sent<wire::StartAttempt>(actions);
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].second.participants.size(), 2U);
  EXPECT_EQ(starts[0].second.participants[1].since, AttemptId{1}) << "what the others sent each other stands";
}

TEST_F(RoundWithoutAnAddress, ASiteBackAfterTheCommitIsToldThatItCounted) {
  wire::Join back = join_of("lima", 3);
  back.index = 2;
  back.address.clear();
  back.offer = {RunId{7}, RoundId{0}, kRight};
  static_cast<void>(c.hear(9, back));
  static_cast<void>(c.hear(1, H::done(again)));
  const auto committed = c.hear(2, H::done(again));
  EXPECT_EQ(sent<wire::Commit>(committed).size(), 2U) << "who came back takes no part";
  const auto installs = sent<wire::InstallAnchor>(c.hear(1, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong}));
  ASSERT_FALSE(installs.empty());
  EXPECT_EQ(installs[0].first, LinkId{9});
  EXPECT_EQ(installs[0].second.counted, wire::Counted::kYes);
  EXPECT_EQ(installs[0].second.attempt, again.attempt);
}

// Its number has been given to another site meanwhile.
TEST_F(RoundWithoutAnAddress, ASiteBackUnderAnotherNumberIsToldToo) {
  static_cast<void>(c.hear(1, H::done(again)));
  static_cast<void>(c.hear(2, H::done(again)));
  for (std::uint64_t link : {1, 2})
    static_cast<void>(c.hear(link, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong}));
  wire::Join other = join_of("oslo", 3);
  other.index = 2;
  EXPECT_EQ(sent<wire::Welcome>(c.hear(8, other)).at(0).second.site, SiteId{2});
  static_cast<void>(c.hear(8, wire::AnchorInstalled{RunId{7}, RoundId{1}, kWrong}));
  wire::Join back = join_of("lima", 3);
  back.offer = {RunId{7}, RoundId{0}, kRight};
  back.report.training = true;
  back.report.record.anchor = back.offer;
  back.report.record.voters = first.voters;
  back.report.record.promised = first.term;
  back.report.record.proposals = {{first}};
  const auto welcomed = c.hear(9, back);
  ASSERT_EQ(sent<wire::Welcome>(welcomed).size(), 1U);
  EXPECT_EQ(sent<wire::Welcome>(welcomed)[0].second.site, SiteId{3});
  const auto installs = sent<wire::InstallAnchor>(c.hear(9, H::ready(1)));
  ASSERT_EQ(installs.size(), 1U);
  EXPECT_EQ(installs[0].second.counted, wire::Counted::kYes);
  EXPECT_EQ(installs[0].second.attempt, again.attempt);
}

}  // namespace
}  // namespace collab::protocol
