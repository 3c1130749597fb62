// A site's state machine joined to its links: messages become events, dials are answered, strangers go.
#include "core/runtime/site_driver.h"

#include <gmock/gmock.h>

#include "core/runtime/line_probe.h"
#include "core/runtime/tensors/host_vector.h"
#include "core/wire/encoding.h"
#include "core/wire/limits.h"
#include "tests/unit/runtime/few_files.h"
#include "tests/unit/runtime/noting_transport.h"
#include "tests/unit/runtime/private_arena.h"

namespace collab {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::NotingTransport;

constexpr std::uint64_t kElements = 4096;
constexpr std::uint64_t kTile = 512;
constexpr LinkId kStranger{7};

// As of a model so large that a pass over it takes minutes.
class SlowVector final : public ParameterVector {
 public:
  explicit SlowVector(ManualClock& clock) : clock_(clock) {}
  [[nodiscard]] std::uint64_t size() const override { return kElements; }
  [[nodiscard]] std::span<float> view(std::uint64_t /*offset*/, std::uint64_t /*count*/) override { return {}; }
  Status read(std::uint64_t /*offset*/, std::span<float> out) override {
    std::ranges::fill(out, 1.0F);
    clock_.advance(seconds(10 * out.size() / kTile));
    return {};
  }
  Status write(std::uint64_t /*offset*/, std::span<const float> /*in*/) override { return {}; }
  [[nodiscard]] std::uint64_t tile() const override { return kTile; }

 private:
  ManualClock& clock_;
};

class SiteDriverTest : public ::testing::Test, public SiteDriver::Host {
 protected:
  SiteDriverTest() {
    arena_ = private_arena(kElements);
    driver_ = std::make_unique<SiteDriver>(
        protocol::SiteConfig{.coordinators = {"first:1", "second:2"}},
        DataPlane::Settings{.codec = {CodecId::kFp32, CodecId::kFp32},
                            .error_feedback = false,
                            .outer = {.id = OuterId::kAverage, .lr = 1.0F, .momentum = 0.0F},
                            .chunk_elements = 4096,
                            .tile_elements = kTile},
        DataPlane::Parts{&transport_, &clock_, arena_.get(), &parameters_, nullptr, {}}, std::nullopt, *this);
  }

  // What a host does with the actions of links.
  void stepped(const protocol::SiteEvent& event, const std::vector<protocol::SiteAction>& actions) override {
    EXPECT_FALSE(std::exchange(within_, true)) << "the machine was entered twice";
    events_.push_back(event);
    if (during_step_) std::exchange(during_step_, {})();
    for (const protocol::SiteAction& action : actions) {
      if (const auto* dial = std::get_if<protocol::DialCoordinator>(&action)) driver_->act(*dial);
      if (const auto* send = std::get_if<protocol::Send>(&action)) driver_->act(*send);
      if (const auto* hangup = std::get_if<protocol::CloseLink>(&action)) driver_->act(*hangup);
    }
    within_ = false;
  }
  void failed(const Status& why) override {
    if (!may_fail_) ADD_FAILURE() << why.to_string();
    why_failed_ = why.message();
  }
  std::optional<protocol::SiteEvent> optimizer_part(LinkId, const wire::Chunk&, BufferPtr) override { return {}; }

  void begin() {
    wire::Join join;
    join.swarm = "run";
    join.site = "self";
    join.elements = kElements;
    join.generation = 1;
    join.report.record.acceptor = AcceptorId(4711);
    driver_->feed(protocol::Begin{join});
  }
  void says(LinkId link, const wire::Message& message) {
    driver_->on_message(link, {Lane::kControl, wire::encode(message), nullptr});
  }
  template <typename Event>
  [[nodiscard]] std::vector<Event> seen() const {
    std::vector<Event> found;
    for (const auto& event : events_) {
      if (const auto* each = std::get_if<Event>(&event)) found.push_back(*each);
    }
    return found;
  }

  bool may_fail_ = false;
  std::string why_failed_;
  ManualClock clock_;
  NotingTransport transport_;
  SlowVector parameters_{clock_};
  std::unique_ptr<ArenaWriter> arena_;
  std::unique_ptr<SiteDriver> driver_;
  std::vector<protocol::SiteEvent> events_;
  std::function<void()> during_step_;
  bool within_ = false;
};

TEST_F(SiteDriverTest, OnceItHasStoppedNothingIsKept) {
  begin();
  driver_->on_accepted(kStranger, "10.0.0.1:7");
  during_step_ = [this] {
    driver_->feed(protocol::Tick{});
    driver_->stop();
    driver_->feed(protocol::Tick{});
  };
  driver_->feed(protocol::Tick{});
  for (int i = 0; i < 3; ++i) says(kStranger, wire::Hello{"run", TermId(1), SiteId(1), "other", {}});
  EXPECT_EQ(driver_->waiting(), 0U);
}

TEST_F(SiteDriverTest, MessagesOnAClosingLinkAreIgnored) {
  const wire::FetchAnchor fetch{RunId(7), RoundId(1), wire::ChunkKind::kAnchor, {0, 100}};
  begin();
  says(kStranger, fetch);  // before Hello
  ASSERT_THAT(transport_.closed, ElementsAre(kStranger));
  events_.clear();
  for (int i = 0; i < 3; ++i) says(kStranger, fetch);
  EXPECT_THAT(events_, IsEmpty());
  EXPECT_THAT(transport_.closed, ElementsAre(kStranger));
}

TEST_F(SiteDriverTest, ADialThatWasAskedForIsAnsweredAndTheSiteJoinsOverIt) {
  begin();
  EXPECT_THAT(transport_.dialled, ElementsAre("first:1"));
  driver_->on_connected(LinkId{1001});
  EXPECT_EQ(seen<protocol::CoordinatorConnected>().size(), 1U);
  EXPECT_EQ(transport_.take<wire::Join>().site, "self");
  driver_->on_connected(LinkId{1001});
  EXPECT_EQ(seen<protocol::CoordinatorConnected>().size(), 1U) << "a dial is answered once";
}

TEST_F(SiteDriverTest, ACloseEndsTheDialFirstAndThenTheLink) {
  begin();
  driver_->on_closed(LinkId{1001}, unavailable("nobody there"));
  const auto failed = seen<protocol::DialFailed>();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].site, std::nullopt);
  EXPECT_EQ(failed[0].why.message(), "nobody there");
  driver_->on_closed(LinkId{1001}, unavailable("again"));
  EXPECT_EQ(seen<protocol::Closed>().size(), 1U) << "there is no dial any more";
}

TEST_F(SiteDriverTest, AMalformedMessageEndsItsLinkAndReachesNoMachine) {
  driver_->on_message(kStranger, {Lane::kControl, std::vector<std::byte>(50), nullptr});
  EXPECT_THAT(transport_.closed, ElementsAre(kStranger));
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(SiteDriverTest, AMalformedMessageIsWarnedOfWithItsPeer) {
  driver_->on_accepted(kStranger, "10.0.0.1:5");
  ::testing::internal::CaptureStderr();
  driver_->on_message(kStranger, {Lane::kControl, std::vector<std::byte>(50), nullptr});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("a message of 10.0.0.1:5 was refused"));
}

TEST_F(SiteDriverTest, AProbeByTheDoctorIsNotReportedAsAProtocolError) {
  driver_->on_accepted(kStranger, "10.0.0.1:5");
  ::testing::internal::CaptureStderr();
  driver_->on_message(kStranger, {Lane::kControl, encode_line({.kind = LineMessageKind::kPing, .number = 1}), nullptr});
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("`collab doctor --peer` at 10.0.0.1:5 has tried this port"));
  EXPECT_THAT(told, Not(HasSubstr("WARNING")));
  EXPECT_THAT(transport_.closed, ElementsAre(kStranger));
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(SiteDriverTest, ACertificateOfAnotherSiteEndsItsLink) {
  wire::Hello hello;
  hello.swarm = "run";
  hello.name = "paris";
  driver_->on_authenticated(kStranger, {"rome"});
  says(kStranger, hello);
  EXPECT_THAT(transport_.closed, ElementsAre(kStranger));
  EXPECT_THAT(events_, IsEmpty());
  driver_->on_closed(kStranger, {});  // and with the link goes what it has proved
  says(kStranger, hello);
  EXPECT_EQ(seen<protocol::Received>().size(), 1U);
}

TEST_F(SiteDriverTest, ASilentDiallerIsClosedAfterTenSeconds) {
  driver_->on_accepted(kStranger, "10.0.0.1:5");
  EXPECT_EQ(driver_->next_deadline(), TimePoint(seconds(10)));
  clock_.advance(seconds(9));
  driver_->feed(protocol::Tick{});
  EXPECT_THAT(transport_.closed, IsEmpty());
  clock_.advance(seconds(1));
  driver_->feed(protocol::Tick{});
  EXPECT_THAT(transport_.closed, ElementsAre(kStranger));
}

TEST_F(SiteDriverTest, ChunksOfNonMembersAreDropped) {
  wire::Chunk chunk;
  chunk.kind = wire::ChunkKind::kMean;
  chunk.run = RunId(1);
  chunk.round = RoundId(1);
  chunk.attempt = AttemptId(1);
  chunk.range = {0, 64};
  driver_->on_message(kStranger, {Lane::kData, wire::encode(chunk), make_buffer_pool()->take(256)});
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(SiteDriverTest, InputDuringAStepWaitsForItsEnd) {
  during_step_ = [this] { driver_->feed(protocol::Tick{}); };
  begin();
  ASSERT_EQ(events_.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<protocol::Begin>(events_[0]));
  EXPECT_TRUE(std::holds_alternative<protocol::Tick>(events_[1]));
}

TEST_F(SiteDriverTest, HeartbeatsAreSentDuringAPassOverALargeModel) {
  const LinkId link{1001};
  begin();
  driver_->on_connected(link);
  const auto keep = [this] { driver_->act(protocol::KeepAnchor{RunId(3), RoundId(0), {}, {}}); };
  transport_.sent.clear();
  keep();
  EXPECT_THAT(transport_.sent, IsEmpty()) << "it is no member yet";
  says(link, wire::Welcome{.term = TermId(1), .site = SiteId(1)});
  transport_.sent.clear();
  keep();
  EXPECT_THAT(transport_.sent, IsEmpty()) << "it held that anchor, and passed over nothing";
  driver_->act(protocol::KeepAnchor{RunId(4), RoundId(0), {}, {}});
  const TimePoint began = clock_.now() - seconds(80);
  ASSERT_EQ(transport_.sent.size(), kElements / kTile) << "every ten seconds of eighty";
  for (std::size_t i = 0; i < kElements / kTile; ++i) {
    EXPECT_EQ(transport_.sent.front().link, link);
    EXPECT_FALSE(transport_.take<wire::Heartbeat>().reply);
  }
  EXPECT_GT(clock_.now() - began, seconds(60)) << "than which nobody may be silent for longer";
  driver_->feed(protocol::Tick{});
  EXPECT_THAT(transport_.closed, IsEmpty()) << "what the coordinator has said meanwhile is not looked at yet";
  EXPECT_THAT(transport_.sent, Not(IsEmpty())) << "the machine's own";
}

TEST_F(SiteDriverTest, AnOversizedMessageEndsTheSiteWithTheReason) {
  wire::Join join;
  join.swarm = "run";
  join.site = "self";
  join.elements = kElements;
  join.report.record.acceptor = AcceptorId(4711);
  const std::vector<std::string> names(wire::kMaxSites, std::string(wire::kMaxNameBytes, 'x'));
  join.report.record.recent.assign(wire::kMaxRecent, wire::Past{RunId(1), RoundId(1), AttemptId(1), names, {}});
  may_fail_ = true;
  driver_->act(protocol::Send{LinkId{1001}, join});
  EXPECT_THAT(why_failed_, HasSubstr("[link.message-unfit]"));
  EXPECT_THAT(transport_.sent, IsEmpty());
}

TEST_F(SiteDriverTest, StoppedItFeedsNothingAndWaitsForNothing) {
  during_step_ = [this] {
    driver_->feed(protocol::Tick{});
    driver_->stop();
  };
  begin();
  EXPECT_EQ(events_.size(), 1U);
  EXPECT_EQ(driver_->next_deadline(), kNever);
}

class SiteDriverOfFewFiles : private testing::FewFiles, public SiteDriverTest {
 protected:
  static constexpr std::uint64_t kMost = 50;  // fewer than may wait for a roster that lists them
  SiteDriverOfFewFiles() : FewFiles(4 * kMost) {}
  void hello(std::uint64_t link, const std::string& host) {
    driver_->on_accepted(LinkId{link}, host + ":" + std::to_string(link));
    wire::Hello hello;
    hello.swarm = "run";
    hello.name = "site" + std::to_string(link);
    hello.site = SiteId(static_cast<std::uint32_t>(link));
    says(LinkId{link}, hello);
  }
};

TEST_F(SiteDriverOfFewFiles, LinksOfPeersTakeAQuarterOfTheFilesAndHostsShareThem) {
  begin();
  for (std::uint64_t link = 1; link <= kMost; ++link) hello(link, "10.6.6.6");
  EXPECT_THAT(transport_.closed, IsEmpty());
  hello(100, "10.6.6.6");
  EXPECT_THAT(transport_.closed, ElementsAre(LinkId{100}));
  hello(200, "10.0.0.1");
  EXPECT_THAT(transport_.closed, ElementsAre(LinkId{100}, LinkId{kMost}));
  driver_->on_closed(LinkId{1}, {});
  hello(201, "10.0.0.1");
  EXPECT_THAT(transport_.closed, ElementsAre(LinkId{100}, LinkId{kMost})) << "there is room";
}

}  // namespace
}  // namespace collab
