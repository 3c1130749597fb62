// How much those who have dialled a coordinator may ask.
#include "core/runtime/dialler_quotas.h"

#include <gtest/gtest.h>

#include <chrono>

namespace collab {
namespace {

using std::chrono::seconds;

class DiallerQuotasTest : public ::testing::Test {
 protected:
  // So many are answered of as many questions.
  int answered(std::uint64_t link, int questions, const wire::Message& question) {
    int count = 0;
    for (int i = 0; i < questions; ++i) count += dialler_quotas_.may_ask(now_, LinkId{link}, question) ? 1 : 0;
    return count;
  }
  TimePoint now_{seconds(100)};
  DiallerQuotas dialler_quotas_;
};

TEST_F(DiallerQuotasTest, ALinkMayAskForTheStatusFourTimesASecond) {
  dialler_quotas_.on_accepted(LinkId{1}, "10.0.0.1");
  EXPECT_EQ(answered(1, 100, wire::StatusQuery{}), 4);
  now_ += seconds(1);
  EXPECT_EQ(answered(1, 100, wire::StatusQuery{}), 4);
}

TEST_F(DiallerQuotasTest, AHostAsksSixteenTimesASecondAndAllRemoteHostsSixtyFour) {
  int in_all = 0;
  for (std::uint64_t host = 0; host < 10; ++host) {
    int of_host = 0;
    for (std::uint64_t link = 10 * host; link < 10 * host + 10; ++link) {
      dialler_quotas_.on_accepted(LinkId{link}, "10.0.0." + std::to_string(host));
      of_host += answered(link, 4, wire::StatusQuery{});
    }
    EXPECT_LE(of_host, 16);
    in_all += of_host;
  }
  EXPECT_EQ(in_all, 64);
  dialler_quotas_.on_accepted(LinkId{1000}, "");
  EXPECT_EQ(answered(1000, 4, wire::StatusQuery{}), 4);
}

TEST_F(DiallerQuotasTest, SmallQuestionsAreTwentyASecondAndOtherMessagesNone) {
  dialler_quotas_.on_accepted(LinkId{1}, "10.0.0.1");
  EXPECT_EQ(answered(1, 100, wire::Inquire{"default"}), 20);
  EXPECT_EQ(answered(1, 100, wire::Forget{}), 0) << "of the same share";
  EXPECT_EQ(answered(1, 1000, wire::Heartbeat{}), 1000);
}

TEST_F(DiallerQuotasTest, HostsThatStoppedAskingAreForgottenIfThereAreMany) {
  for (std::uint64_t link = 1; link <= DiallerQuotas::kFewHosts + 1; ++link) {
    dialler_quotas_.on_accepted(LinkId{link}, std::to_string(link));
    answered(link, 1, wire::StatusQuery{});
  }
  EXPECT_EQ(dialler_quotas_.hosts(), DiallerQuotas::kFewHosts + 1);
  now_ += seconds(2);
  answered(1, 1, wire::StatusQuery{});
  EXPECT_EQ(dialler_quotas_.hosts(), 1U);
}

TEST_F(DiallerQuotasTest, ALinksNetworkIsKnownUntilItEnds) {
  dialler_quotas_.on_accepted(LinkId{1}, "10.0.0.1");
  EXPECT_EQ(dialler_quotas_.network(LinkId{1}), "10.0.0.1");
  dialler_quotas_.closed(LinkId{1});
  EXPECT_EQ(dialler_quotas_.network(LinkId{1}), "");
}

}  // namespace
}  // namespace collab
