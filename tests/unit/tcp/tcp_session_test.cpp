// What is sent, acknowledged and sent again: outbox and inbox, with only this test as the network between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "core/base/prng.h"
#include "transport/tcp/link/link_session.h"
#include "transport/tcp/session/tcp_inbox.h"
#include "transport/tcp/session/tcp_outbox.h"

namespace collab::tcp {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::uint64_t kMessages = 60;

TransportMessage message_of(BufferPool& pool, std::size_t head, std::size_t payload, std::uint8_t fill) {
  TransportMessage message{Lane::kData, std::vector<std::byte>(head, std::byte{fill}), nullptr};
  if (payload > 0) {
    message.payload = pool.take(payload);
    std::fill(message.payload->bytes().begin(), message.payload->bytes().end(), std::byte{fill});
  }
  return message;
}

class TcpOutbox : public ::testing::Test {
 protected:
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  Outbox out_{Lane::kData};
  std::vector<std::uint64_t> tokens_;

  std::uint64_t send(ConnectionId carrier) {
    const auto piece = out_.next(carrier);
    EXPECT_TRUE(piece.has_value());
    out_.written(carrier, piece->header.number);
    return piece->header.number;
  }
  Status arrive(std::uint64_t below, std::vector<std::uint64_t> beyond = {}) {
    return out_.acknowledge({below, std::move(beyond)}, tokens_);
  }
};

TEST_F(TcpOutbox, CutsAtTheHeadsEndAndAtTheSegmentsSize) {
  out_.push(message_of(*pool_, 100, 130 * kKiB, 1), 7);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> cuts;
  while (const auto piece = out_.next(1)) cuts.emplace_back(piece->header.offset, piece->header.length);
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> expected{
      {0, 100}, {100, 64 * kKiB}, {100 + 64 * kKiB, 64 * kKiB}, {100 + 128 * kKiB, 2 * kKiB}};
  EXPECT_EQ(cuts, expected);
}

TEST_F(TcpOutbox, KnowsHowMuchIsToGo) {
  TransportMessage message = message_of(*pool_, 100, 900, 1);
  message.more = 5000;
  out_.push(std::move(message), 0);
  EXPECT_EQ(out_.bytes_to_go(), 6000U);
  message = message_of(*pool_, 100, 900, 1);
  message.more = 4000;
  out_.push(std::move(message), 0);
  EXPECT_EQ(out_.bytes_to_go(), 6000U) << "the newest message knows best";
  send(1);
  send(1);
  ASSERT_TRUE(arrive(2).ok());
  EXPECT_EQ(out_.bytes_to_go(), 5000U);
}

TEST_F(TcpOutbox, ATokenIsDueOnceAllHasArrivedAndNobodyReads) {
  out_.push(message_of(*pool_, 10, 10, 1), 7);
  const auto head = out_.next(1);
  const auto payload = out_.next(2);
  out_.written(1, 0);
  ASSERT_TRUE(arrive(2).ok());
  EXPECT_TRUE(tokens_.empty()) << "connection 2 still reads the payload";
  out_.written(2, 1);
  out_.take_tokens(tokens_);
  EXPECT_EQ(tokens_, std::vector<std::uint64_t>{7});
  EXPECT_TRUE(out_.empty());
}

TEST_F(TcpOutbox, AnUnreadConnectionsEndMakesTheTokenDueToo) {
  out_.push(message_of(*pool_, 10, 0, 1), 7);
  (void)out_.next(1);
  ASSERT_TRUE(arrive(1).ok());
  out_.lost(1);
  out_.take_tokens(tokens_);
  EXPECT_EQ(tokens_, std::vector<std::uint64_t>{7});
}

TEST_F(TcpOutbox, AcknowledgedSegmentsAreNotSentAgain) {
  for (int i = 0; i < 6; ++i) out_.push(message_of(*pool_, 10, 0, 1), 0);
  for (int i = 0; i < 6; ++i) send(i % 2 == 0 ? 1 : 2);
  ASSERT_TRUE(arrive(1, {0b1010}).ok());  // 0, 2 and 4
  EXPECT_EQ(out_.lost(1), 0U) << "carried 0, 2, 4";
  EXPECT_FALSE(out_.ready());
  EXPECT_EQ(out_.lost(2), out_.bytes_arrived()) << "carried 1, 3, 5, which are as long";
  EXPECT_EQ(send(3), 1U);
  ASSERT_TRUE(arrive(4, {0b1}).ok());  // while 3 waits to be sent again it turns out to have arrived
  EXPECT_EQ(send(3), 5U);
  EXPECT_FALSE(out_.ready());
  EXPECT_EQ(out_.sent_again(), 2U);
}

TEST_F(TcpOutbox, AStalledSegmentIsSentOnceMoreOverAnotherConnection) {
  const TimePoint start{};
  const auto after = [&](int ms) { return start + std::chrono::milliseconds(ms); };
  for (int i = 0; i < 3; ++i) out_.push(message_of(*pool_, 10, 0, 1), static_cast<std::uint64_t>(i) + 1);
  for (int i = 0; i < 3; ++i) (void)out_.next(1, after(100 * i));
  EXPECT_FALSE(out_.second_copy(1, after(1000))) << "its own are no news to it";
  EXPECT_FALSE(out_.second_copy(2, after(0)));
  ASSERT_EQ(out_.second_copy(2, after(150))->header.number, 0U);
  ASSERT_EQ(out_.second_copy(2, after(150))->header.number, 1U);
  EXPECT_FALSE(out_.second_copy(2, after(150)));
  EXPECT_FALSE(out_.second_copy(3, after(150)));
  ASSERT_TRUE(arrive(1).ok());
  EXPECT_TRUE(tokens_.empty()) << "both connections still read it";
  out_.written(1, 0);
  out_.written(2, 0);
  out_.take_tokens(tokens_);
  EXPECT_EQ(tokens_, std::vector<std::uint64_t>{1});
  EXPECT_EQ(out_.sent_again(), 2U);
}

// On a thin line, or behind a queue, all segments take long, and none hangs.
TEST_F(TcpOutbox, KnowsHowLongASegmentUsuallyTakes) {
  const TimePoint start{};
  EXPECT_EQ(out_.usual(), Duration(0));
  for (int i = 0; i < 40; ++i) out_.push(message_of(*pool_, 10, 0, 1), 0);
  for (int i = 0; i < 40; ++i) (void)out_.next(1, start);
  ASSERT_TRUE(out_.acknowledge({1, {}}, tokens_, start + std::chrono::milliseconds(100)).ok());
  EXPECT_EQ(out_.usual(), std::chrono::milliseconds(100));
  ASSERT_TRUE(out_.acknowledge({40, {}}, tokens_, start + std::chrono::milliseconds(300)).ok());
  EXPECT_NEAR(static_cast<double>(out_.usual().count()), 300e3, 3e3) << "soon forgets";
}

TEST_F(TcpOutbox, ACopyThatIsLostIsSentAgainWhileTheOtherIsOnItsWay) {
  const TimePoint start{};
  out_.push(message_of(*pool_, 10, 0, 1), 7);
  (void)out_.next(1, start);
  (void)out_.second_copy(2, start + std::chrono::seconds(1));
  out_.lost(2);
  EXPECT_EQ(out_.next(3)->header.number, 0U);
  ASSERT_TRUE(arrive(1).ok());
  EXPECT_TRUE(tokens_.empty());
  out_.lost(1);
  out_.written(3, 0);
  out_.take_tokens(tokens_);
  EXPECT_EQ(tokens_, std::vector<std::uint64_t>{7});
  EXPECT_TRUE(out_.empty());
}

TEST_F(TcpOutbox, OldAcknowledgementsAreFineAndImpossibleOnesAreCorrupt) {
  for (int i = 0; i < 3; ++i) out_.push(message_of(*pool_, 10, 0, 1), 0);
  for (int i = 0; i < 3; ++i) send(1);
  ASSERT_TRUE(arrive(2).ok());
  EXPECT_TRUE(arrive(1).ok());
  EXPECT_EQ(arrive(4).code(), StatusCode::kCorrupt);
  EXPECT_EQ(arrive(2, {0b10}).code(), StatusCode::kCorrupt);
  EXPECT_EQ(arrive(2, {0, 1}).code(), StatusCode::kCorrupt);
}

TEST_F(TcpOutbox, TheWindowIsBounded) {
  for (int i = 0; i < 3; ++i) out_.push(message_of(*pool_, 0, kMaxPayloadBytes / 2 + 1, 1), 0);
  std::size_t bytes = 0;
  while (const auto piece = out_.next(1)) bytes += piece->data.size();
  EXPECT_LE(bytes, kWindowBytes + kMaxSegmentBytes);
  Outbox small(Lane::kControl);
  for (std::uint64_t i = 0; i < kWindowSegments + 5; ++i) small.push(message_of(*pool_, 1, 0, 1), 0);
  std::uint64_t sent = 0;
  while (small.next(1)) ++sent;
  EXPECT_EQ(sent, kWindowSegments);
}

// ---- receiving -----------------------------------------------------------------------------------

// ---- what is not handled yet --------------------------------------------------------------------------

TEST(TcpUnhandledInAll, NoLinkExceedsItsShareOnceTheTotalBudgetIsSpent) {
  const auto all = std::make_shared<UnhandledBytes>();
  std::vector<std::shared_ptr<Unhandled>> links;
  std::vector<std::shared_ptr<const void>> held;
  int rooms = 0;
  for (int i = 0; i < 32; ++i) {
    links.push_back(std::make_shared<Unhandled>(all, [&rooms] { ++rooms; }));
    static_cast<void>(links.back()->hold(1));  // handled at once
  }
  for (int i = 0; i < 31; ++i) {
    held.push_back(links[static_cast<std::size_t>(i)]->hold(kMaxUnhandledInAll / 30));
    EXPECT_EQ(links[static_cast<std::size_t>(i)]->check_full(), i == 30) << i << ": it is less than 16 MiB";
  }
  EXPECT_FALSE(links[31]->check_full()) << "who holds nothing is read";
  held.push_back(links[31]->hold(kMaxUnhandledInAll / 33));
  EXPECT_FALSE(links[31]->check_full()) << "within its share";
  held.erase(held.begin() + 2, held.end() - 2);
  EXPECT_EQ(rooms, 0) << "the one that waits has not been handled";
  held.clear();
  EXPECT_EQ(rooms, 1);
  EXPECT_EQ(all->held, 0U);
}

// One after the other is opened, leaves a message and ends.
TEST(TcpUnhandledInAll, UnhandledMessagesOfEndedLinksHoldNewLinksBack) {
  const auto all = std::make_shared<UnhandledBytes>();
  const auto known = std::make_shared<Unhandled>(all, [] {});
  static_cast<void>(known->hold(1));
  std::deque<std::shared_ptr<const void>> held;
  for (int i = 0; i < 9; ++i) {
    const auto link = std::make_shared<Unhandled>(all, [] {});
    EXPECT_FALSE(link->check_full()) << i;
    held.push_back(link->hold(kMaxUnhandledInAll / 32));
    link->end();
  }
  const auto next = std::make_shared<Unhandled>(all, [] {});
  EXPECT_TRUE(next->check_full());
  EXPECT_FALSE(known->check_full()) << "something of its was handled";
  held.pop_front();
  EXPECT_FALSE(next->check_full());
  held.clear();
  EXPECT_EQ(all->of_ended, 0U);
}

// A loop may be busy for seconds. A peer that opens many links meanwhile, each with a whole payload, is bounded.
TEST(TcpUnhandledInAll, NewLinksAreNotReadBeyondTheBudgetAndNoneBeyondTwiceIt) {
  const auto all = std::make_shared<UnhandledBytes>();
  const auto known = std::make_shared<Unhandled>(all, [] {});
  static_cast<void>(known->hold(1));
  std::vector<std::shared_ptr<Unhandled>> links;
  std::vector<std::shared_ptr<const void>> held;
  const auto fill = [&](std::size_t most) {
    while (all->held <= most) {
      links.push_back(std::make_shared<Unhandled>(all, [] {}));
      held.push_back(links.back()->hold(kMaxPayloadBytes));
    }
  };
  const auto fresh = std::make_shared<Unhandled>(all, [] {});
  fill(kMaxUnhandledInAll);
  EXPECT_TRUE(fresh->check_full());
  EXPECT_FALSE(known->check_full()) << "something of its was handled";
  fill(2 * kMaxUnhandledInAll);
  EXPECT_TRUE(known->check_full());
  held.pop_back();
  EXPECT_FALSE(known->check_full());
  held.clear();
  EXPECT_FALSE(fresh->check_full());
}

// ---- what waits for a peer that takes nothing --------------------------------------------------------

class TcpControl : public ::testing::Test {
 protected:
  struct Link {
    explicit Link(const TcpControl& test)
        : session(test.pool_, std::make_shared<UnfinishedShare>(test.unfinished_),
                  std::make_shared<Unhandled>(test.unhandled_, [] {}), test.control_) {}
    LinkSession session;
    // So many messages of so many bytes, or fewer, when no more may wait.
    std::size_t push(std::size_t messages, std::size_t bytes) {
      for (std::size_t i = 0; i < messages; ++i) {
        if (!session.push({Lane::kControl, std::vector<std::byte>(bytes), nullptr}, 0, "peer").ok()) return i;
      }
      return messages;
    }
    // All leaves, and is known to have arrived.
    void take_all() {
      Outbox& out = session.outbox(Lane::kControl);
      while (!out.empty()) {
        while (const auto piece = out.next(1)) out.written(1, piece->header.number);
        std::vector<std::uint64_t> tokens;
        ASSERT_TRUE(session.acknowledge({LaneArrivals{out.segments(), {}}, LaneArrivals{}}, tokens, {}).ok());
      }
    }
  };
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  std::shared_ptr<UnfinishedBytes> unfinished_ = std::make_shared<UnfinishedBytes>();
  std::shared_ptr<UnhandledBytes> unhandled_ = std::make_shared<UnhandledBytes>();
  std::shared_ptr<ControlBytes> control_ = std::make_shared<ControlBytes>();
};

TEST_F(TcpControl, SmallMessagesCountForWhatTheyCost) {
  Link link(*this);
  EXPECT_EQ(link.push(1'000'000, 64), kMaxControlBytes / (64 + kMessageCost));
  link.take_all();
  EXPECT_EQ(control_->held, 0U);
  EXPECT_EQ(link.push(1000, 64), 1000U);
}

TEST_F(TcpControl, NoLinkExceedsItsShareOnceTheTotalBudgetIsSpent) {
  constexpr std::size_t kMiB = kKiB * kKiB;
  std::deque<Link> links;
  for (int i = 0; i < 16; ++i) links.emplace_back(*this);
  std::size_t waiting = 0;
  for (int i = 0; i < 8; ++i) waiting += links[static_cast<std::size_t>(i)].push(60, kMiB);
  EXPECT_LE(waiting * kMiB, kMaxControlInAll + 8 * kMaxControlInAll / 16);
  EXPECT_EQ(links[15].push(15, kMiB), 15U) << "within its share";
  EXPECT_EQ(links[15].push(15, kMiB), 0U);
  links.clear();
  EXPECT_EQ(control_->held, 0U);
}

class TcpInbox : public ::testing::Test {
 protected:
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  std::shared_ptr<UnfinishedBytes> all_ = std::make_shared<UnfinishedBytes>();
  std::shared_ptr<UnfinishedShare> share_ = std::make_shared<UnfinishedShare>(all_);
  Inbox in_{Lane::kData, pool_, share_};
  std::vector<TransportMessage> messages_;

  static SegmentHeader segment(std::uint64_t number, std::uint64_t message, std::uint32_t payload, std::uint32_t offset,
                               std::uint32_t length) {
    return {Lane::kData, number, message, 0, payload, offset, length};
  }
  void come(const SegmentHeader& header, ConnectionId carrier = 1) {
    const auto place = in_.begin(header, carrier);
    ASSERT_TRUE(place.ok()) << place.status().to_string();
    if (!place->has_value()) return;
    std::fill((*place)->data.begin(), (*place)->data.end(), std::byte{9});
    ASSERT_TRUE(in_.end(header, messages_).ok());
  }
  void expect_corrupt(const SegmentHeader& header) {
    const auto place = in_.begin(header, 1);
    ASSERT_FALSE(place.ok());
    EXPECT_EQ(place.status().code(), StatusCode::kCorrupt);
  }
};

TEST_F(TcpInbox, HandsOnInOrder) {
  come(segment(2, 2, 10, 0, 10));
  come(segment(1, 1, 10, 0, 10));
  EXPECT_TRUE(messages_.empty());
  EXPECT_EQ(in_.arrivals(), (LaneArrivals{0, {0b110}}));
  come(segment(0, 0, 10, 0, 10));
  EXPECT_EQ(messages_.size(), 3U);
  EXPECT_EQ(in_.arrivals(), (LaneArrivals{3, {}}));
}

TEST_F(TcpInbox, TheFirstWholeCopyCounts) {
  come(segment(0, 0, 10, 0, 10));
  come(segment(0, 0, 10, 0, 10), 2);
  EXPECT_EQ(messages_.size(), 1U);
}

TEST_F(TcpInbox, TheNewerConnectionTakesThePlaceOver) {
  const SegmentHeader header = segment(0, 0, 10, 0, 10);
  ASSERT_EQ((*in_.begin(header, 1))->taken_from, 0U);
  EXPECT_EQ((*in_.begin(header, 2))->taken_from, 1U);
  in_.lost(1);
  EXPECT_EQ((*in_.begin(header, 3))->taken_from, 2U);
  in_.lost(3);
  EXPECT_EQ((*in_.begin(header, 4))->taken_from, 0U);
}

TEST_F(TcpInbox, ContradictoryFramesAreCorrupt) {
  come(segment(1, 0, 100, 10, 20));
  expect_corrupt(segment(2, 0, 101, 30, 10));               // another size
  expect_corrupt(segment(2, 0, 100, 29, 10));               // overlaps the end
  expect_corrupt(segment(2, 0, 100, 5, 10));                // overlaps the beginning
  expect_corrupt(segment(2, 0, 100, 10, 20));               // the same bytes by another number
  expect_corrupt(segment(kWindowSegments, 0, 100, 30, 1));  // beyond the window
  expect_corrupt(segment(2, kWindowSegments, 100, 0, 1));
}

TEST_F(TcpInbox, MemoryIsBounded) {
  const auto large = static_cast<std::uint32_t>(kMaxPayloadBytes);
  std::uint64_t begun = 0;
  while (in_.begin(segment(begun, begun, large, 0, 1), 1).ok()) ++begun;
  EXPECT_LE(begun * kMaxPayloadBytes, kMaxAssemblyBytes);
  EXPECT_GE(begun, 2U);
  Inbox control(Lane::kControl, pool_, share_);
  EXPECT_FALSE(control.begin({Lane::kControl, 0, 0, 0, large, 0, 1}, 1).ok()) << "both lanes share it";
}

// Two KB that announced heads of 8 MiB each cost 416 MiB a link.
TEST_F(TcpInbox, MemoryGrowsAsBytesArrive) {
  const auto head = static_cast<std::uint32_t>(kMaxHeadBytes);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const auto place = in_.begin({Lane::kData, i, i, head, 0, head - 1, 1}, 1);
    ASSERT_TRUE(place.ok());
    EXPECT_EQ((*place)->data.size(), 1U);
  }
  EXPECT_LT(all_->held, 100 * kKiB);
}

TEST_F(TcpInbox, AHeadThatCameInPartsIsWhole) {
  std::uint64_t number = 0;
  for (const std::uint32_t offset : {60, 0, 30}) come({Lane::kData, number++, 0, 90, 10, offset, 30});
  come({Lane::kData, number++, 0, 90, 10, 90, 10});
  ASSERT_EQ(messages_.size(), 1U);
  EXPECT_EQ(messages_[0].head, std::vector<std::byte>(90, std::byte{9}));
  EXPECT_EQ(all_->held, 0U) << "nothing is unfinished";
}

TEST_F(TcpInbox, UnfinishedMessagesOfALinkAreBounded) {
  const auto large = static_cast<std::uint32_t>(kMaxPayloadBytes);
  constexpr std::uint32_t kPart = 64 * kKiB;
  std::uint64_t number = 1;  // the first of all never comes
  Status why;
  for (std::uint64_t message = 1; why.ok(); ++message) {
    ASSERT_LT(message, 5U);
    for (std::uint32_t at = 0; at < large && why.ok(); at += kPart) {
      why = in_.begin(segment(number++, message, large, at, kPart), 1).status();
    }
  }
  EXPECT_LE(all_->held, kMaxUnfinishedBytes);
  EXPECT_GE(all_->held, kWindowBytes);
}

// One of several gives way, and not the others.
TEST_F(TcpInbox, NoLinkExceedsItsShareOnceTheTotalBudgetIsSpent) {
  all_->most = 40 * kKiB;
  const auto other_share = std::make_shared<UnfinishedShare>(all_);
  Inbox other(Lane::kData, pool_, other_share);
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(in_.begin(segment(1 + i, 1, 1 << 20, i * 4096, 4096), 1).ok());
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(other.begin(segment(1 + i, 1, 1 << 20, i * 4096, 4096), 2).ok()) << "up to half of it";
  }
  EXPECT_FALSE(in_.begin(segment(10, 1, 1 << 20, 10 * 4096, 4096), 1).ok());
  EXPECT_FALSE(other.begin(segment(10, 1, 1 << 20, 10 * 4096, 4096), 2).ok());
}

TEST_F(TcpInbox, ALinkThatEndsGivesAllBack) {
  {
    const auto share = std::make_shared<UnfinishedShare>(all_);
    Inbox ends(Lane::kData, pool_, share);
    ASSERT_TRUE(ends.begin(segment(1, 1, 100, 0, 10), 1).ok());
    EXPECT_GT(all_->held, 0U);
    EXPECT_EQ(all_->links, 2U);
  }
  EXPECT_EQ(all_->held, 0U);
  EXPECT_EQ(all_->links, 1U);
}

// ---- both, over connections that die -------------------------------------------------------------

struct Flight {
  Outbox::Piece piece;
  std::vector<std::byte> data;
};

// Messages of many sizes over five connections; segments are delayed, connections cut in mid-segment, acknowledgements
// late or lost. Everything arrives once and in order, and nothing known to have arrived travels again.
TEST(TcpSession, SurvivesCutsOfEverySort) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    const auto pool = make_buffer_pool();
    Outbox out(Lane::kData);
    Inbox in(Lane::kData, pool, std::make_shared<UnfinishedShare>(std::make_shared<UnfinishedBytes>()));
    std::map<ConnectionId, std::deque<Flight>> lines;
    ConnectionId next_carrier = 1;
    for (int i = 0; i < 5; ++i) lines[next_carrier++];
    std::uint64_t pushed = 0;
    std::vector<std::uint64_t> tokens;
    std::vector<TransportMessage> arrived;
    LaneArrivals told;  // what the sender knows
    for (int step = 0; arrived.size() < kMessages || tokens.size() < kMessages; ++step) {
      ASSERT_LT(step, 200'000);
      if (pushed < kMessages && prng.chance(0.2)) {
        out.push(message_of(*pool, prng.below(200), prng.below(4) == 0 ? 0 : prng.below(150 * kKiB),
                            static_cast<std::uint8_t>(pushed)),
                 pushed + 1);
        ++pushed;
      }
      auto line = std::next(lines.begin(), static_cast<std::ptrdiff_t>(prng.below(lines.size())));
      if (line->second.size() < 4) {
        const TimePoint time{std::chrono::milliseconds(step)};
        auto piece = prng.chance(0.9) ? out.next(line->first, time)
                                      : out.second_copy(line->first, time - std::chrono::milliseconds(20));
        if (piece) {
          ASSERT_FALSE(told.has(piece->header.number)) << "segment " << piece->header.number << " was acknowledged";
          line->second.push_back({*piece, std::vector<std::byte>(piece->data.begin(), piece->data.end())});
          if (prng.chance(0.9)) out.written(line->first, piece->header.number);
        }
      }
      line = std::next(lines.begin(), static_cast<std::ptrdiff_t>(prng.below(lines.size())));
      if (!line->second.empty() && prng.chance(0.7)) {
        const Flight flight = std::move(line->second.front());
        line->second.pop_front();
        out.written(line->first, flight.piece.header.number);
        const auto place = in.begin(flight.piece.header, line->first);
        ASSERT_TRUE(place.ok()) << place.status().to_string();
        const bool cut_here = prng.chance(0.02);
        if (place->has_value() && !cut_here) {
          std::copy(flight.data.begin(), flight.data.end(), (*place)->data.begin());
          ASSERT_TRUE(in.end(flight.piece.header, arrived).ok());
        }
        if (cut_here) {
          in.lost(line->first);
          out.lost(line->first);
          out.take_tokens(tokens);
          lines.erase(line);
          lines[next_carrier++];
        }
      }
      if (prng.chance(0.05)) {
        told = in.arrivals();
        ASSERT_TRUE(out.acknowledge(told, tokens).ok());
      }
    }
    ASSERT_EQ(arrived.size(), kMessages);
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      const auto right = [&](std::byte byte) { return byte == std::byte(static_cast<std::uint8_t>(i)); };
      ASSERT_TRUE(std::all_of(arrived[i].head.begin(), arrived[i].head.end(), right));
      if (arrived[i].payload == nullptr) continue;
      const auto bytes = arrived[i].payload->view();
      ASSERT_TRUE(std::all_of(bytes.begin(), bytes.end(), right));
    }
    std::sort(tokens.begin(), tokens.end());
    EXPECT_EQ(std::unique(tokens.begin(), tokens.end()), tokens.end()) << "each token once";
  }
}

}  // namespace
}  // namespace collab::tcp
