// What two doctors say to each other, how much is queued, and which rate is measured.
#include "core/runtime/line_probe.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/runtime/mailbox.h"

namespace collab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LineProbe, ProbesArrive) {
  const LineMessage told{.kind = LineMessageKind::kDialled, .number = 0x0102030405060708, .text = "refused"};
  const std::vector<std::byte> head = encode_line(told);
  const std::string bytes(reinterpret_cast<const char*>(head.data()), head.size());
  EXPECT_EQ(bytes, "collab line 1\x04\x08\x07\x06\x05\x04\x03\x02\x01refused") << "as docs/protocol/beside.md has it";
  ASSERT_TRUE(decode_line(head).ok());
  EXPECT_EQ(*decode_line(head), told);
  const std::vector<std::byte> longest =
      encode_line({.kind = LineMessageKind::kDialled, .text = std::string(9000, 'x')});
  EXPECT_EQ(decode_line(longest)->text, std::string(500, 'x'));
}

TEST(LineProbe, OtherBytesAreRefused) {
  std::vector<std::byte> head = encode_line({.kind = LineMessageKind::kPing});
  for (std::size_t size = 0; size < head.size(); ++size) EXPECT_FALSE(decode_line({head.data(), size}).ok()) << size;
  std::vector<std::byte> unknown = encode_line({.kind = static_cast<LineMessageKind>(11)});
  EXPECT_EQ(decode_line(unknown).status().code(), StatusCode::kCorrupt);
  std::vector<std::byte> large = head;
  large.resize(head.size() + 501);
  EXPECT_FALSE(decode_line(large).ok());
  head[0] ^= std::byte{1};
  EXPECT_FALSE(decode_line(head).ok());
}

TEST(LineProbe, ASlowLineHasLittleQueuedAndAFastOneEnough) {
  LineSender sender;
  sender.begin(TimePoint(seconds(5)));
  sender.queued(sender.due(TimePoint()));
  EXPECT_EQ(sender.on_its_way(), LineSender::kFirst);
  EXPECT_EQ(sender.due(TimePoint()), 0U) << "until something has left";
  for (std::size_t i = 0; i < 10'000; ++i) {
    sender.sent();
    sender.queued(sender.due(TimePoint()));
    ASSERT_LE(sender.on_its_way(), LineSender::kFirst + (i + 1) / 2) << i;
  }
  EXPECT_EQ(sender.on_its_way(), LineSender::kMost);
  sender.sent();
  EXPECT_EQ(sender.due(TimePoint(seconds(5))), 0U) << "the time is over";
}

TEST(LineProbe, TheRateIsThatOfTheLaterHalf) {
  LineMeter meter;
  meter.begin(TimePoint(seconds(1)));
  EXPECT_EQ(meter.bits_a_second(TimePoint(seconds(11))), 0);
  for (int i = 1; i <= 50; ++i) meter.arrived(TimePoint(seconds(1) + milliseconds(100 * i)), 1'000);
  EXPECT_DOUBLE_EQ(meter.bits_a_second(TimePoint(seconds(11))), 80'000) << "all there is, where nothing comes later";
  for (int i = 1; i <= 50; ++i) meter.arrived(TimePoint(seconds(6) + milliseconds(100 * i)), 5'000);
  EXPECT_DOUBLE_EQ(meter.bits_a_second(TimePoint(seconds(11))), 400'000);
}

TEST(LineProbe, CountsABoundedNumberOfArrivals) {
  LineMeter meter;
  meter.begin(TimePoint());
  for (std::size_t i = 0; i < LineMeter::kMostArrivals; ++i) meter.arrived(TimePoint(seconds(1)), 1);
  meter.arrived(TimePoint(seconds(2)), 1'000'000'000);
  EXPECT_DOUBLE_EQ(meter.bits_a_second(TimePoint(seconds(2))), 8.0 * LineMeter::kMostArrivals);
}

TEST(LineProbe, OneArrivalIsMeasuredFromTheBeginning) {
  LineMeter meter;
  meter.begin(TimePoint(seconds(1)));
  meter.arrived(TimePoint(seconds(5)), 500'000);
  EXPECT_DOUBLE_EQ(meter.bits_a_second(TimePoint(seconds(6))), 1e6);
}

// ---- the side that answers --------------------------------------------------------------------------------

// Both ends of its links are the test.
class Desk final : public Transport {
 public:
  struct Seen {
    TransportHandler* handler = nullptr;
    std::vector<LinkId> closed;
    std::vector<std::string> dialled;
    std::map<LinkId, std::vector<LineMessageKind>> said;
  };
  explicit Desk(Seen& seen) : seen_(seen) {}
  [[nodiscard]] std::string name() const override { return "desk"; }
  [[nodiscard]] Abilities abilities() const override { return {}; }
  Status start(TransportHandler* handler) override {
    seen_.handler = handler;
    return {};
  }
  Result<std::string> listen(const std::string& address) override { return address; }
  LinkId connect(const std::string& address, Duration /*timeout*/) override {
    seen_.dialled.push_back(address);
    return LinkId{1000 + seen_.dialled.size()};
  }
  void send(LinkId link, TransportMessage message, std::uint64_t /*token*/) override {
    seen_.said[link].push_back(decode_line(message.head)->kind);
  }
  void close(LinkId link) override { seen_.closed.push_back(link); }

 private:
  Seen& seen_;
};

class LineAnswer : public ::testing::Test {
 protected:
  void say(LinkId link, const LineMessage& told) {
    seen_.handler->on_message(link, {.lane = Lane::kControl, .head = encode_line(told), .payload = nullptr});
  }
  // Whether it is served.
  bool come(LinkId link) {
    seen_.handler->on_accepted(link, "10.0.0.1:9");
    say(link, {.kind = LineMessageKind::kPing, .number = 1});
    return seen_.said[link] == std::vector{LineMessageKind::kPong};
  }

  std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
  Desk::Seen seen_;
  std::unique_ptr<LineAnswerer> answerer_ = answer_line(std::make_unique<Desk>(seen_), "here:1", clock_).value();
};

TEST_F(LineAnswer, ASilentOrPingingPeerMakesRoomForTheNext) {
  EXPECT_TRUE(come(LinkId{1}));
  clock_->advance(LineTurn::kSilence - seconds(1));
  EXPECT_FALSE(come(LinkId{2}));
  EXPECT_EQ(seen_.said[LinkId{2}], std::vector{LineMessageKind::kBusy});
  say(LinkId{1}, {.kind = LineMessageKind::kPing, .number = 2});
  clock_->advance(seconds(1));
  EXPECT_TRUE(come(LinkId{3}));
  EXPECT_EQ(seen_.closed, (std::vector{LinkId{2}, LinkId{1}}));
}

TEST_F(LineAnswer, NoPeerIsServedForEver) {
  EXPECT_TRUE(come(LinkId{1}));
  for (Duration passed{}; passed < LineTurn::kInAll; passed += seconds(10)) {
    EXPECT_FALSE(come(LinkId{2}));
    say(LinkId{1}, {.kind = LineMessageKind::kUp});
    clock_->advance(seconds(10));
  }
  EXPECT_TRUE(come(LinkId{3}));
}

TEST_F(LineAnswer, DialsBackOnceAtATime) {
  EXPECT_TRUE(come(LinkId{1}));
  say(LinkId{1}, {.kind = LineMessageKind::kDialBack, .number = 29500});
  EXPECT_TRUE(seen_.closed.empty());
  say(LinkId{1}, {.kind = LineMessageKind::kDialBack, .number = 29501});
  EXPECT_EQ(seen_.dialled, std::vector<std::string>{"10.0.0.1:29500"});
  EXPECT_EQ(seen_.closed, std::vector{LinkId{1}});
  seen_.handler->on_closed(LinkId{1}, {});
  EXPECT_EQ(seen_.closed.back(), LinkId{1001}) << "its dial goes with it";
}

// ---- the side that measures -------------------------------------------------------------------------------

// The other side of its only link: it closes the link right behind its last answer.
class Brief final : public Transport {
 public:
  ~Brief() override {
    calls_.close();
    thread_.join();
  }
  [[nodiscard]] std::string name() const override { return "brief"; }
  [[nodiscard]] Abilities abilities() const override { return {}; }
  Status start(TransportHandler* handler) override {
    handler_ = handler;
    return {};
  }
  Result<std::string> listen(const std::string& address) override { return address; }
  LinkId connect(const std::string& /*address*/, Duration /*timeout*/) override {
    calls_.post([this] { handler_->on_connected(kLink); });
    return kLink;
  }
  void send(LinkId link, TransportMessage message, std::uint64_t token) override {
    calls_.post([this, link, told = *decode_line(message.head), token] {
      handler_->on_sent(link, token);
      if (token != 0) return;
      if (told.kind == LineMessageKind::kPing) answer(LineMessageKind::kPong);
      if (told.kind == LineMessageKind::kUpEnd) answer(LineMessageKind::kUpFigure);
      if (told.kind != LineMessageKind::kDown) return;
      answer(LineMessageKind::kDownEnd);
      handler_->on_closed(link, {});
    });
  }
  void close(LinkId /*link*/) override {}

 private:
  static constexpr LinkId kLink{1};
  void answer(LineMessageKind word) {
    handler_->on_message(kLink, {.lane = Lane::kControl, .head = encode_line({.kind = word}), .payload = nullptr});
  }

  TransportHandler* handler_ = nullptr;
  Mailbox calls_;
  std::thread thread_{[this] {
    while (const std::optional<LoopEvent> event = calls_.take(kNever)) {
      const auto& call = std::get<LoopCall>(*event);
      call();
    }
  }};
};

TEST(LineMeasured, ALinkClosedAfterTheLastAnswerCountsAsMeasured) {
  const auto figures = measure_line(std::make_unique<Brief>(), "there:1", milliseconds(10), "");
  EXPECT_TRUE(figures.ok()) << figures.status().to_string();
}

}  // namespace
}  // namespace collab
