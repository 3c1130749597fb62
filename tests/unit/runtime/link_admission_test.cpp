// Which links of others a process keeps: at the door, taken in, being closed.
#include "core/runtime/link_admission.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/unit/runtime/few_files.h"
#include "tests/unit/runtime/noting_transport.h"

namespace collab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;

constexpr auto kNobody = [](const std::string&) { return false; };

class LinkAdmissionTest : public ::testing::Test {
 protected:
  std::set<LinkId> known_;
  ManualClock clock_;
  testing::NotingTransport transport_;
  LinkAdmission links_{transport_, clock_, [this](LinkId link) { return known_.contains(link); },
                       [](LinkId link, const std::string& why) { return std::to_string(link.value) + ": " + why; }};
};

TEST_F(LinkAdmissionTest, UselessLinksAreClosedAndKnownOnesAreNot) {
  known_ = {LinkId{2}};
  for (const LinkId link : {LinkId{1}, LinkId{2}, LinkId{3}}) links_.on_accepted(link, "10.0.0.1:5");
  links_.closed(LinkId{3});
  EXPECT_EQ(links_.next_deadline(), clock_.now() + PendingLinks::kWaitLimit);
  links_.tick();
  EXPECT_THAT(transport_.closed, IsEmpty());
  clock_.advance(PendingLinks::kWaitLimit);
  links_.tick();
  EXPECT_THAT(transport_.closed, ElementsAre(LinkId{1}));
  EXPECT_EQ(links_.next_deadline(), kNever);
}

TEST_F(LinkAdmissionTest, PendingLinksOfOneHostMakeRoomForItsNext) {
  for (std::uint64_t link = 1; link <= PendingLinks::kMostOfHost + 1; ++link) {
    clock_.advance(std::chrono::milliseconds(1));
    links_.on_accepted(LinkId{link}, "10.0.0.1:" + std::to_string(link));
  }
  EXPECT_THAT(transport_.closed, ElementsAre(LinkId{1}));
}

TEST_F(LinkAdmissionTest, AClosingLinkIsNotHeardUntilItHasEnded) {
  links_.close_link(LinkId{1});
  links_.leave(LinkId{2});
  EXPECT_THAT(transport_.closed, ElementsAre(LinkId{1})) << "the other one is dialled still";
  EXPECT_TRUE(links_.has_left(LinkId{1}));
  EXPECT_TRUE(links_.has_left(LinkId{2}));
  links_.closed(LinkId{1});
  EXPECT_FALSE(links_.has_left(LinkId{1}));
}

TEST_F(LinkAdmissionTest, ARefusedLinkIsClosedAndTheReasonIsRateLimited) {
  ::testing::internal::CaptureStderr();
  links_.refuse(LinkId{1}, "no message");
  links_.expel(LinkId{2}, "too many");
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("1: no message"));
  EXPECT_THAT(told, Not(HasSubstr("too many")));
  EXPECT_THAT(transport_.closed, ElementsAre(LinkId{1}, LinkId{2}));
  EXPECT_FALSE(links_.has_left(LinkId{1}));
  EXPECT_TRUE(links_.has_left(LinkId{2}));
}

TEST_F(LinkAdmissionTest, AProofEndsWithItsLink) {
  links_.on_authenticated(LinkId{1}, {"rome"});
  EXPECT_THAT(links_.difference(LinkId{1}, "paris"), HasSubstr("\"rome\""));
  links_.closed(LinkId{1});
  EXPECT_EQ(links_.difference(LinkId{1}, "paris"), "");
}

class LinkAdmissionOfFewFiles : private testing::FewFiles, public LinkAdmissionTest {
 protected:
  LinkAdmissionOfFewFiles() : FewFiles(4) {}
};

TEST_F(LinkAdmissionOfFewFiles, TheLinkChosenToGoIsAdmittedNoLonger) {
  EXPECT_EQ(links_.take_in(LinkId{1}, "greedy", "a", kNobody), std::nullopt);
  EXPECT_THAT(links_.take_in(LinkId{2}, "greedy", "b", kNobody), Optional(LinkId{2}));
  EXPECT_TRUE(links_.is_taken(LinkId{1}));
  EXPECT_FALSE(links_.is_taken(LinkId{2}));
  links_.closed(LinkId{1});
  EXPECT_EQ(links_.take_in(LinkId{3}, "greedy", "c", kNobody), std::nullopt);
}

}  // namespace
}  // namespace collab
