// How much those who have dialled a coordinator may ask.
#include "core/runtime/diallers.h"

#include <gtest/gtest.h>

#include <chrono>

namespace collab {
namespace {

using std::chrono::seconds;

class DiallersTest : public ::testing::Test {
 protected:
  // So many are answered of as many questions.
  int answered(std::uint64_t link, int questions, const wire::Message& question) {
    int count = 0;
    for (int i = 0; i < questions; ++i) count += diallers_.may_ask(now_, LinkId{link}, question) ? 1 : 0;
    return count;
  }
  TimePoint now_{seconds(100)};
  Diallers diallers_;
};

TEST_F(DiallersTest, ALinkMayAskForTheStatusFourTimesASecond) {
  diallers_.came(LinkId{1}, "10.0.0.1");
  EXPECT_EQ(answered(1, 100, wire::StatusQuery{}), 4);
  now_ += seconds(1);
  EXPECT_EQ(answered(1, 100, wire::StatusQuery{}), 4);
}

TEST_F(DiallersTest, AHostMaySixteenTimesAndAllSixtyFourButForThisMachine) {
  int in_all = 0;
  for (std::uint64_t host = 0; host < 10; ++host) {
    int of_host = 0;
    for (std::uint64_t link = 10 * host; link < 10 * host + 10; ++link) {
      diallers_.came(LinkId{link}, "10.0.0." + std::to_string(host));
      of_host += answered(link, 4, wire::StatusQuery{});
    }
    EXPECT_LE(of_host, 16);
    in_all += of_host;
  }
  EXPECT_EQ(in_all, 64);
  diallers_.came(LinkId{1000}, "");
  EXPECT_EQ(answered(1000, 4, wire::StatusQuery{}), 4);
}

TEST_F(DiallersTest, SmallQuestionsAreTwentyASecondAndOtherMessagesNone) {
  diallers_.came(LinkId{1}, "10.0.0.1");
  EXPECT_EQ(answered(1, 100, wire::Inquire{"default"}), 20);
  EXPECT_EQ(answered(1, 100, wire::Forget{}), 0) << "of the same share";
  EXPECT_EQ(answered(1, 1000, wire::Heartbeat{}), 1000);
}

TEST_F(DiallersTest, HostsThatAskNoMoreAreForgottenWhereTheyAreMany) {
  for (std::uint64_t link = 1; link <= Diallers::kFewHosts + 1; ++link) {
    diallers_.came(LinkId{link}, std::to_string(link));
    answered(link, 1, wire::StatusQuery{});
  }
  EXPECT_EQ(diallers_.hosts(), Diallers::kFewHosts + 1);
  now_ += seconds(2);
  answered(1, 1, wire::StatusQuery{});
  EXPECT_EQ(diallers_.hosts(), 1U);
}

TEST_F(DiallersTest, ALinksNetworkIsKnownUntilItEnds) {
  diallers_.came(LinkId{1}, "10.0.0.1");
  EXPECT_EQ(diallers_.network(LinkId{1}), "10.0.0.1");
  diallers_.closed(LinkId{1});
  EXPECT_EQ(diallers_.network(LinkId{1}), "");
}

}  // namespace
}  // namespace collab
