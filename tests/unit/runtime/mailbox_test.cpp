// What reaches a loop thread, and in which order.
#include "core/runtime/mailbox.h"

#include <gmock/gmock.h>

namespace collab {
namespace {

using ::testing::ElementsAre;

constexpr LinkId kParis{1};
constexpr LinkId kRome{2};

// What waits, as the loop would take it.
std::vector<LoopEvent> drained(Mailbox& mailbox) {
  std::vector<LoopEvent> events;
  while (auto event = mailbox.take(TimePoint{})) events.push_back(std::move(*event));
  return events;
}

TEST(Mailbox, LinksTakeTurnsAndEachKeepsItsOrder) {
  Mailbox mailbox;
  for (std::uint64_t token = 1; token <= 3; ++token) mailbox.on_sent(kParis, token);
  mailbox.on_sent(kRome, 10);
  std::vector<std::uint64_t> tokens;
  for (const LoopEvent& event : drained(mailbox)) tokens.push_back(std::get<MessageSent>(event).token);
  EXPECT_THAT(tokens, ElementsAre(1, 10, 2, 3));
}

TEST(Mailbox, ACallIsNotBehindALinkThatSendsMuch) {
  Mailbox mailbox;
  for (std::uint64_t token = 1; token <= 100; ++token) mailbox.on_sent(kParis, token);
  bool called = false;
  mailbox.post([&called, alone = std::make_unique<int>(1)] { called = *alone == 1; });
  static_cast<void>(mailbox.take(TimePoint{}));
  auto second = mailbox.take(TimePoint{});
  ASSERT_TRUE(second && std::holds_alternative<LoopCall>(*second));
  std::get<LoopCall> (*second)();
  EXPECT_TRUE(called);
}

TEST(Mailbox, EventsCarryAllDetailsFromTheTransport) {
  Mailbox mailbox;
  mailbox.on_accepted(kParis, "10.0.0.1:5");
  mailbox.on_authenticated(kParis, {"paris", "paris.example"});
  mailbox.on_connected(kParis);
  mailbox.on_message(kParis, {Lane::kData, std::vector<std::byte>(7), nullptr});
  mailbox.on_sent(kParis, 4711);
  mailbox.on_closed(kParis, unavailable("it went"));
  const std::vector<LoopEvent> events = drained(mailbox);
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(std::get<LinkAccepted>(events[0]).peer, "10.0.0.1:5");
  EXPECT_THAT(std::get<LinkAuthenticated>(events[1]).names, ElementsAre("paris", "paris.example"));
  EXPECT_EQ(std::get<LinkConnected>(events[2]).link, kParis);
  EXPECT_EQ(std::get<MessageArrived>(events[3]).message.head.size(), 7U);
  EXPECT_EQ(std::get<MessageSent>(events[4]).token, 4711U);
  EXPECT_EQ(std::get<LinkClosed>(events[5]).why.message(), "it went");
}

TEST(Mailbox, AClosedMailboxHandsOutItsEventsAndTakesNoMore) {
  Mailbox mailbox;
  mailbox.on_sent(kParis, 1);
  mailbox.close();
  mailbox.on_sent(kParis, 2);
  EXPECT_TRUE(mailbox.closed());
  EXPECT_EQ(drained(mailbox).size(), 1U);
  EXPECT_FALSE(mailbox.take(kNever)) << "nobody waits for what cannot come";
}

}  // namespace
}  // namespace collab
