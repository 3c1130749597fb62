// The parts of a connection that need no socket: what it sends, what protects it, how much of it is read, how far it
// is.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/tcp/connection/batch_size.h"
#include "transport/tcp/connection/lifecycle.h"
#include "transport/tcp/connection/read_turn.h"
#include "transport/tcp/connection/security_layer.h"
#include "transport/tcp/connection/send_queue.h"

namespace collab::tcp {
namespace {

using State = Lifecycle::State;
using FirstByte = SecurityLayer::FirstByte;

constexpr std::byte kFrame{'C'};     // the first byte of a preface
constexpr std::byte kRecord{0x16};   // of TLS
constexpr std::byte kStranger{'G'};  // of HTTP, say

class TcpSendQueue : public ::testing::Test {
 protected:
  SendQueue queue_;
  std::vector<std::uint64_t> written_;  // segments, by number

  const SendQueue::Written note_ = [this](Lane, std::uint64_t number) { written_.push_back(number); };

  void push_segment(std::uint64_t number, std::size_t bytes) {
    const auto message = std::make_shared<TransportMessage>();
    message->head.assign(bytes, std::byte{'s'});
    Outbox::Piece piece;
    piece.header.lane = Lane::kData;
    piece.header.number = number;
    piece.header.length = static_cast<std::uint32_t>(bytes);
    piece.data = message->head;
    piece.owner = message;
    queue_.push(std::move(piece));
  }
  // What the system would be given, up to `most` parts of it.
  std::size_t gathered(std::size_t most = 64) const {
    std::vector<iovec> parts(most);
    std::size_t bytes = 0;
    const std::size_t count = queue_.gather(parts);
    for (std::size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
    return bytes;
  }
};

TEST_F(TcpSendQueue, GathersTheRestOfWhatWasSentInPart) {
  queue_.push(Bytes{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}});
  queue_.push(Bytes{std::byte{'d'}});
  queue_.sent(2, note_);
  std::array<iovec, 64> parts{};
  ASSERT_EQ(queue_.gather(parts), 2U);
  EXPECT_EQ(*static_cast<const char*>(parts[0].iov_base), 'c');
  EXPECT_EQ(parts[0].iov_len, 1U);
  EXPECT_EQ(*static_cast<const char*>(parts[1].iov_base), 'd');
  EXPECT_EQ(queue_.bytes(), 2U);
  queue_.sent(2, note_);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.bytes(), 0U);
}

TEST_F(TcpSendQueue, ASegmentIsWrittenOnceItsLastByteIs) {
  push_segment(5, 1000);
  push_segment(6, 1000);
  const std::uint64_t both = queue_.bytes();
  EXPECT_EQ(gathered(), both);
  queue_.sent(both / 2 - 1, note_);
  EXPECT_TRUE(written_.empty());
  queue_.sent(1, note_);
  EXPECT_EQ(written_, std::vector<std::uint64_t>{5});
  queue_.sent(both / 2, note_);
  EXPECT_EQ(written_, (std::vector<std::uint64_t>{5, 6}));
}

TEST_F(TcpSendQueue, GathersNoMoreThanThereIsRoomFor) {
  for (std::uint64_t i = 0; i < 10; ++i) push_segment(i, 100);
  EXPECT_EQ(gathered(4), queue_.bytes() / 5);  // two segments, a header and data each
}

TEST_F(TcpSendQueue, DropsSegmentsButOneThatHasBegun) {
  push_segment(1, 100);
  const std::uint64_t one = queue_.bytes();
  queue_.push(Bytes(10));
  push_segment(2, 100);
  queue_.sent(1, note_);
  queue_.drop_segments();
  EXPECT_EQ(queue_.bytes(), one - 1 + 10);
  queue_.sent(one - 1, note_);
  push_segment(3, 100);
  queue_.drop_segments();
  EXPECT_EQ(queue_.bytes(), 10U);
}

TEST_F(TcpSendQueue, SmallPiecesShareARunToEncrypt) {
  for (std::uint64_t i = 0; i < 5; ++i) push_segment(i, 100);
  push_segment(5, 8000);
  const std::uint64_t all = queue_.bytes();
  std::vector<std::size_t> runs;
  queue_.take([&](std::span<const std::byte> run) { runs.push_back(run.size()); }, note_);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0], all - 8000);  // with the large one's header
  EXPECT_EQ(runs[1], 8000U);
  EXPECT_EQ(runs[2], 0U);
  EXPECT_EQ(written_.size(), 6U);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(TcpSendQueue, EncryptsAboutAsMuchAtOnceAsMayWait) {
  for (std::uint64_t i = 0; i < 100; ++i) push_segment(i, 8000);
  queue_.take([](std::span<const std::byte>) {}, note_);
  EXPECT_FALSE(queue_.empty());
  EXPECT_LT(written_.size(), 20U);
}

TEST(TcpBatchSize, GrowsWhileBatchesDrainQuicklyAndFallsWhenOneDoesNot) {
  using std::chrono::milliseconds;
  BatchSize batch;
  TimePoint now{std::chrono::hours(1)};
  batch.sent(now);
  EXPECT_EQ(batch.next(now + milliseconds(25)), kSmallSegmentBytes);
  const std::size_t first = batch.next(now + milliseconds(10));
  EXPECT_EQ(batch.next(now + milliseconds(1)), std::min(2 * first, kMostFilled));
  for (int i = 0; i < 10; ++i) batch.sent(now += milliseconds(1));
  EXPECT_EQ(batch.next(now + milliseconds(1)), kMostFilled);
}

// A connection with nothing to send is asked at each event.
TEST(TcpBatchSize, LearnsNothingFromQuestions) {
  using std::chrono::milliseconds;
  BatchSize batch;
  const TimePoint now{std::chrono::hours(1)};
  batch.sent(now);
  batch.sent(now + milliseconds(25));
  for (int i = 25; i < 45; ++i) (void)batch.next(now + milliseconds(i));
  EXPECT_EQ(batch.next(now + milliseconds(40)), kSmallSegmentBytes);
}

TEST(TcpReadTurn, EndsByItsBytesOrItsFrames) {
  ReadTurn turn;
  turn.begin();
  turn.took(1 << 19, 1);
  EXPECT_TRUE(turn.has_budget());
  turn.took(1 << 19, 1);
  EXPECT_FALSE(turn.has_budget());
  turn.begin();
  EXPECT_TRUE(turn.has_budget());
  turn.took(100, 1024);
  EXPECT_FALSE(turn.has_budget());
}

TEST(TcpReadTurn, ManySmallFramesAreReadInShortTurns) {
  constexpr std::size_t kRoom = 256 << 10;
  ReadTurn turn;
  turn.begin();
  EXPECT_EQ(turn.most(kRoom), kRoom);
  turn.took(100, 1024);
  EXPECT_LT(turn.most(kRoom), kRoom);
  turn.end();
  turn.begin();
  turn.took(100, 600);
  turn.end();
  EXPECT_LT(turn.most(kRoom), kRoom);
  turn.begin();
  turn.took(100, 500);
  turn.end();
  EXPECT_EQ(turn.most(kRoom), kRoom);
}

TEST(TcpLifecycle, AConnectionThatEndsDoesNotBeginToGreet) {
  Lifecycle life;
  EXPECT_EQ(life.state(), State::kConnecting);
  life.secure();
  life.drain();
  life.greet();
  EXPECT_TRUE(life.is(State::kDraining));
  EXPECT_TRUE(life.ends());
  EXPECT_FALSE(life.attached_at().has_value());
}

TEST(TcpLifecycle, RemembersSinceWhenItIsALinks) {
  const TimePoint now = TimePoint() + std::chrono::seconds(7);
  Lifecycle life;
  life.secure();
  life.greet();
  EXPECT_EQ(life.state(), State::kGreeting);
  life.attach(now);
  EXPECT_FALSE(life.ends());
  life.close();
  EXPECT_EQ(life.attached_at(), now);
}

class TcpSecurityLayer : public ::testing::Test {
 protected:
  std::shared_ptr<TlsKeys> keys_ = *TlsKeys::make({.token = "a-token-for-tests-0123456789abcdefghijklmnop"});
};

TEST_F(TcpSecurityLayer, TheFirstByteTellsWhetherAnAcceptedConnectionFitsTheKeys) {
  EXPECT_EQ(SecurityLayer().settle(kFrame, nullptr), FirstByte::kClear);
  EXPECT_EQ(SecurityLayer().settle(kRecord, keys_.get()), FirstByte::kProceeds);
  EXPECT_EQ(SecurityLayer().settle(kRecord, nullptr), FirstByte::kMismatch);
  EXPECT_EQ(SecurityLayer().settle(kFrame, keys_.get()), FirstByte::kMismatch);
  EXPECT_EQ(SecurityLayer().settle(kStranger, nullptr), FirstByte::kForeign);
  EXPECT_EQ(SecurityLayer().settle(kStranger, keys_.get()), FirstByte::kForeign);
}

TEST_F(TcpSecurityLayer, APlainTextConnectionBeginsWithItsHello) {
  SecurityLayer security;
  EXPECT_FALSE(security.known_clear());
  EXPECT_FALSE(security.hello_received());
  (void)security.settle(kFrame, nullptr);
  EXPECT_TRUE(security.known_clear());
  EXPECT_TRUE(security.hello_received());
}

TEST_F(TcpSecurityLayer, ATlsDiallerAnsweredInTheClearIsUnauthenticated) {
  SecurityLayer security;
  security.dial();
  ASSERT_TRUE(security.begin(keys_.get()).ok());
  EXPECT_TRUE(security.has_outgoing());
  EXPECT_FALSE(security.clear());
  EXPECT_EQ(security.settle(kFrame, keys_.get()), FirstByte::kProceeds);
  EXPECT_TRUE(security.clear());
  EXPECT_TRUE(security.unauthenticated());
}

TEST_F(TcpSecurityLayer, BothSidesOfAHandshakeAreDoneWithoutASocket) {
  SecurityLayer dialler, acceptor;
  dialler.dial();
  ASSERT_TRUE(dialler.begin(keys_.get()).ok());
  ASSERT_EQ(acceptor.settle(kRecord, keys_.get()), FirstByte::kProceeds);
  ASSERT_EQ(dialler.settle(kRecord, keys_.get()), FirstByte::kProceeds);
  bool done = false;
  for (int i = 0; i < 10 && !done; ++i) {
    bool both = true;
    for (const auto& [from, to] : {std::pair(&dialler, &acceptor), std::pair(&acceptor, &dialler)}) {
      const auto bytes = from->tls()->outgoing();
      const std::vector<std::byte> flight(bytes.begin(), bytes.end());
      from->tls()->sent(flight.size());
      to->tls()->incoming(flight);
      const auto answer = to->tls()->open() ? Result<bool>(true) : to->handshake();
      ASSERT_TRUE(answer.ok());
      both = both && *answer;
    }
    done = both;
  }
  EXPECT_TRUE(done);
  EXPECT_TRUE(acceptor.hello_received());
  EXPECT_FALSE(dialler.unauthenticated());
  EXPECT_TRUE(acceptor.fits(*keys_->current()));
  const auto others = *TlsKeys::make({.token = "another-token-for-tests-0123456789abcdefghijk"});
  EXPECT_FALSE(acceptor.fits(*others->current()));
}

}  // namespace
}  // namespace collab::tcp
