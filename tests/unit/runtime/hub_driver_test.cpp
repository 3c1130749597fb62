// A hub joined to its links: what ranks say is answered, who leaves too much lying goes, and what calls are told of.
#include "core/runtime/hub_driver.h"

#include <gmock/gmock.h>

#include "tests/unit/runtime/broadcast.h"
#include "tests/unit/runtime/noting_transport.h"

namespace collab {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// A world of two ranks, each at a site of its own, in one group.
class HubDriverTest : public ::testing::Test {
 protected:
  static constexpr LinkId kParis{10}, kRome{11};
  static constexpr GroupId kGroup{2};

  void enter(const std::string& swarm = "default") {
    for (const LinkId link : {kParis, kRome}) {
      wire::Enter enter;
      enter.swarm = swarm;
      enter.world = 7;
      enter.rank = RankId(link == kParis ? 0 : 1);
      enter.sites = {"paris", "rome"};
      enter.site_of = {0, 1};
      enter.acceptor = AcceptorId(link.value);
      say(link, enter);
      if (links_.has_left(link)) continue;
      say(link, wire::Assemble{kGroup, {RankId(0), RankId(1)}, {}, 0});
    }
  }
  void say(LinkId link, const wire::Message& message, BufferPtr payload = nullptr) {
    driver_.arrived(now_, link, message, std::move(payload), "10.0.0.1");
  }
  void contribute(LinkId link, std::uint64_t step, BufferPtr payload) {
    say(link, testing::in_broadcast(kGroup, step, link == kRome), std::move(payload));
  }
  // Paris brings 16 MiB and Rome wants them; both say at once that they hold them.
  void step(std::uint64_t number) {
    contribute(kParis, number, part_);
    contribute(kRome, number, nullptr);
    for (const LinkId link : {kParis, kRome}) say(link, wire::ResultAck{kGroup, number, {}});
  }
  void take_all() {
    for (const auto& each : transport_.sent) driver_.sent(each.link, each.token);
    transport_.sent.clear();
  }
  [[nodiscard]] std::optional<protocol::CallsUnderWay> news(bool waits, std::uint64_t changes) {
    return driver_.news_of_calls(waits, changes, [](std::uint64_t) { return std::set<std::string>{"paris", "rome"}; });
  }

  TimePoint now_{std::chrono::seconds(1)};
  ManualClock clock_;
  testing::NotingTransport transport_;
  LinkAdmission links_{transport_, clock_, [this](LinkId link) { return driver_.hub().knows(link); },
                       [](LinkId, const std::string& why) { return why; }};
  std::vector<protocol::Note> notes_;
  HubDriver driver_{{}, transport_, links_, [this](const protocol::Note& note) { notes_.push_back(note); }};
  BufferPtr part_ = make_buffer_pool()->take(std::size_t{16} << 20);
};

TEST_F(HubDriverTest, ARankThatEntersIsAnsweredByItsLink) {
  enter();
  ASSERT_THAT(transport_.sent, Not(IsEmpty()));
  EXPECT_EQ(transport_.sent.front().link, kParis);
  static_cast<void>(transport_.take<wire::Entered>());
  EXPECT_TRUE(driver_.hub().knows(kRome));
}

TEST_F(HubDriverTest, ADroppedRankIsHeardNoMore) {
  enter("another");
  EXPECT_THAT(transport_.closed, ElementsAre(kParis, kRome));
  EXPECT_TRUE(links_.has_left(kParis));
  EXPECT_EQ(notes_.size(), 2U);
}

TEST_F(HubDriverTest, ARankThatClaimsResultsItDidNotTakeIsExpelled) {
  enter();
  for (std::uint64_t number = 1; number <= 12 && !links_.has_left(kRome); ++number) step(number);
  EXPECT_THAT(transport_.closed, ElementsAre(kRome));
}

TEST_F(HubDriverTest, ARankThatTakesItsResultsMayHaveAnyNumberOfSteps) {
  enter();
  for (std::uint64_t number = 1; number <= 40; ++number) {
    step(number);
    take_all();
  }
  EXPECT_THAT(transport_.closed, IsEmpty());
}

TEST_F(HubDriverTest, ACallUnderWayIsReportedOnceWhileARoundWaits) {
  enter();
  EXPECT_EQ(news(true, 1), std::nullopt) << "there is none, as it was told before";
  contribute(kParis, 1, part_);
  EXPECT_EQ(news(false, 1), std::nullopt) << "no round waits";
  const auto calls = news(true, 1);
  ASSERT_TRUE(calls.has_value());
  ASSERT_EQ(calls->sites.size(), 1U);
  EXPECT_THAT(calls->sites.at("paris").awaits, Contains("rome"));
  EXPECT_EQ(news(true, 1), std::nullopt);
  EXPECT_EQ(news(true, 2), std::nullopt) << "another member, and the same calls";
  EXPECT_THAT(news(false, 2)->sites, IsEmpty()) << "else it would part the next round";
}

}  // namespace
}  // namespace collab
