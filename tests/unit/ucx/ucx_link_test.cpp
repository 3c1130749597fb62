// A link over UCX without UCX: its lanes' numbers and windows, how it closes, and what the handler is told of it.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "transport/ucx/engine/ucx_calls.h"
#include "transport/ucx/ucx_closing.h"
#include "transport/ucx/ucx_lane.h"

namespace collab {
namespace {

TransportMessage message_of(std::size_t bytes, std::uint8_t fill = 0) {
  return {Lane::kData, std::vector<std::byte>(bytes, std::byte{fill}), nullptr};
}

TEST(UcxLane, MessagesThatWaitAreNumberedAsTheyGo) {
  UcxLane lane;
  EXPECT_FALSE(lane.waits());
  lane.push(message_of(1, 7), 11);
  lane.push(message_of(1, 8), 12);
  EXPECT_EQ(lane.sent(), 0U);
  const UcxLane::Outgoing first = lane.next();
  EXPECT_EQ(first.token, 11U);
  EXPECT_EQ(first.message.head.front(), std::byte{7});
  EXPECT_EQ(lane.sent(), 1U);
  lane.drop_queue();
  EXPECT_FALSE(lane.waits());
  EXPECT_EQ(lane.sent(), 1U);
}

TEST(UcxLane, TheWindowIsOfMessagesThatThePeerHasNotTaken) {
  UcxLane lane;
  for (std::uint64_t i = 0; i < kLaneMessages; ++i) {
    ASSERT_TRUE(lane.has_room());
    lane.push(message_of(1), 0);
    (void)lane.next();
  }
  EXPECT_FALSE(lane.has_room());
  EXPECT_TRUE(lane.peer_has_taken(1));
  EXPECT_TRUE(lane.has_room());
}

TEST(UcxLane, TheWindowBoundsTheBytesAsWellButForOneMessage) {
  UcxLane lane;
  lane.push(message_of(kLaneBytes - 1), 0);
  lane.push(message_of(2), 0);
  (void)lane.next();
  EXPECT_TRUE(lane.has_room());
  (void)lane.next();
  EXPECT_FALSE(lane.has_room());
  EXPECT_TRUE(lane.peer_has_taken(1));
  EXPECT_TRUE(lane.has_room());
}

TEST(UcxLane, ThePeerCannotHaveTakenLessThanBeforeOrMoreThanWasSent) {
  UcxLane lane;
  for (int i = 0; i < 3; ++i) {
    lane.push(message_of(1), 0);
    (void)lane.next();
  }
  EXPECT_TRUE(lane.peer_has_taken(2));
  EXPECT_TRUE(lane.peer_has_taken(2));
  EXPECT_FALSE(lane.peer_has_taken(1));
  EXPECT_FALSE(lane.peer_has_taken(4));
  EXPECT_TRUE(lane.peer_has_taken(3));
}

TEST(UcxLane, EarlyMessagesAreTakenInOrder) {
  UcxLane lane;
  lane.arrived(1, message_of(1, 1));
  EXPECT_FALSE(lane.take().has_value());
  lane.arrived(0, message_of(1, 0));
  EXPECT_EQ(lane.take()->head.front(), std::byte{0});
  EXPECT_EQ(lane.take()->head.front(), std::byte{1});
  EXPECT_FALSE(lane.take().has_value());
  EXPECT_EQ(lane.taken(), 2U);
}

TEST(UcxLane, NumbersTwiceOrOutsideTheWindowAreNotExpected) {
  UcxLane lane;
  lane.arrived(0, message_of(1));
  (void)lane.take();
  lane.arrived(2, message_of(1));
  EXPECT_FALSE(lane.expects(0));
  EXPECT_TRUE(lane.expects(1));
  EXPECT_FALSE(lane.expects(2));
  EXPECT_TRUE(lane.expects(kLaneMessages));
  EXPECT_FALSE(lane.expects(kLaneMessages + 1));
}

TEST(UcxLane, ThePeerIsToldBeforeItsWindowIsFull) {
  UcxLane lane;
  std::uint64_t number = 0;
  for (; !lane.ack_is_due(); ++number) {
    lane.arrived(number, message_of(1));
    (void)lane.take();
  }
  EXPECT_LT(number, kLaneMessages / 2);
  lane.told();
  EXPECT_FALSE(lane.ack_is_due());
  lane.arrived(number, message_of(kLaneBytes / 2));
  (void)lane.take();
  EXPECT_TRUE(lane.ack_is_due());
}

TEST(UcxClosing, IsOverOnceBothSidesHaveAllAndKnowIt) {
  UcxClosing closing;
  EXPECT_FALSE(closing.may_say_bye());
  closing.begin();
  EXPECT_TRUE(closing.may_say_bye());
  closing.mark_bye_sent();
  EXPECT_FALSE(closing.may_say_bye());
  closing.peer_has_all();
  EXPECT_FALSE(closing.over());
  EXPECT_FALSE(closing.may_send_final_ack({3, 5}));  // it has not said how much that is
  closing.receive_bye({3, 5});
  EXPECT_FALSE(closing.may_send_final_ack({3, 4}));
  EXPECT_TRUE(closing.may_send_final_ack({3, 5}));
  closing.mark_final_ack_sent();
  EXPECT_FALSE(closing.may_send_final_ack({3, 5}));
  EXPECT_TRUE(closing.over());
}

TEST(UcxClosing, IsNotOverBeforeThePeerHasTakenAll) {
  UcxClosing closing;
  closing.begin();
  closing.mark_bye_sent();
  closing.receive_bye({0, 0});
  closing.mark_final_ack_sent();
  EXPECT_FALSE(closing.over());
  closing.peer_has_all();
  EXPECT_TRUE(closing.over());
}

class Diary final : public TransportHandler {
 public:
  std::vector<std::string> lines;

  void on_accepted(LinkId link, const std::string& peer) override { note("accepted", link, peer); }
  void on_connected(LinkId link) override { note("connected", link, ""); }
  void on_message(LinkId link, TransportMessage message) override {
    note("message", link, std::to_string(message.head.size()));
  }
  void on_sent(LinkId link, std::uint64_t token) override { note("sent", link, std::to_string(token)); }
  void on_closed(LinkId link, Status why) override { note("closed", link, why.message()); }

 private:
  void note(const std::string& what, LinkId link, const std::string& more) {
    lines.push_back(what + " " + std::to_string(link.value) + " " + more);
  }
};

TEST(UcxCalls, AreMadeOneByOneInTheOrderTheyWereNoted) {
  Diary diary;
  UcxCalls calls;
  EXPECT_FALSE(calls.started());
  calls.start(&diary);
  EXPECT_TRUE(calls.started());
  calls.accepted(LinkId(1), "near");
  calls.connected(LinkId(2));
  calls.message(LinkId(1), message_of(4));
  calls.sent(LinkId(2), 9);
  calls.closed(LinkId(1), unavailable("broke"));
  EXPECT_TRUE(diary.lines.empty());
  EXPECT_TRUE(calls.deliver());
  EXPECT_EQ(diary.lines.size(), 1U);
  while (calls.deliver()) {
  }
  EXPECT_EQ(diary.lines,
            (std::vector<std::string>{"accepted 1 near", "connected 2 ", "message 1 4", "sent 2 9", "closed 1 broke"}));
}

TEST(UcxCalls, AreNotMadeOnceDropped) {
  Diary diary;
  UcxCalls calls;
  calls.start(&diary);
  calls.connected(LinkId(2));
  calls.drop();
  EXPECT_FALSE(calls.deliver());
  EXPECT_TRUE(diary.lines.empty());
}

}  // namespace
}  // namespace collab
