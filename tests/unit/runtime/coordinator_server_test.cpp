// What a coordinator's process does before its state machines get a message: which peers may ask, and which prove their
// names.
#include <gmock/gmock.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <set>

#include "collab/session.h"
#include "core/wire/encoding.h"
#include "tests/unit/runtime/broadcast.h"
#include "tests/unit/runtime/few_files.h"

namespace collab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Peers are the test: what they say goes in by the handler, what they hear is noted until the test asks.
class Door final : public Transport {
 public:
  struct Noted {
    static constexpr std::uint64_t kFirstDialled = 1'000'000;
    std::mutex mutex;
    std::condition_variable changed;
    TransportHandler* handler = nullptr;
    std::vector<std::pair<LinkId, wire::Message>> sent;
    std::set<LinkId> closed;
    std::vector<std::string> dialled;
    bool takes = false;  // all that is sent, at once

    void say(LinkId link, const wire::Message& message, BufferPtr payload = nullptr) {
      handler->on_message(link, {Lane::kControl, wire::encode(message), std::move(payload)});
    }
    void wait_until_closed(LinkId link) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return closed.contains(link); });
    }
    template <typename Message>
    [[nodiscard]] std::vector<Message> heard_by(LinkId link) {
      const std::lock_guard lock(mutex);
      std::vector<Message> found;
      for (const auto& [to, message] : sent) {
        if (const auto* each = std::get_if<Message>(&message); each != nullptr && to == link) found.push_back(*each);
      }
      return found;
    }
  };

  explicit Door(std::shared_ptr<Noted> noted) : noted_(std::move(noted)) {}
  [[nodiscard]] std::string name() const override { return "door"; }
  [[nodiscard]] Abilities abilities() const override { return {.crosses_nat = true}; }
  Status start(TransportHandler* handler) override {
    noted_->handler = handler;
    return {};
  }
  Result<std::string> listen(const std::string& /*address*/) override { return std::string("here:1"); }
  LinkId connect(const std::string& address, Duration /*timeout*/) override {
    const std::lock_guard lock(noted_->mutex);
    noted_->dialled.push_back(address);
    return LinkId{Noted::kFirstDialled + noted_->dialled.size() - 1};
  }
  void send(LinkId link, TransportMessage message, std::uint64_t token) override {
    {
      const std::lock_guard lock(noted_->mutex);
      noted_->sent.emplace_back(link, *wire::decode(message.head));
      noted_->changed.notify_all();
    }
    if (noted_->takes && token != 0) noted_->handler->on_sent(link, token);
  }
  void close(LinkId link) override {
    const std::lock_guard lock(noted_->mutex);
    noted_->closed.insert(link);
    noted_->changed.notify_all();
  }

 private:
  std::shared_ptr<Noted> noted_;
};

class CoordinatorServerTest : public ::testing::Test {
 protected:
  CoordinatorServerTest() {
    auto served = serve_coordinator({}, std::make_unique<Door>(noted_), "here:0");
    EXPECT_TRUE(served.ok()) << served.status().to_string();
    server_ = std::move(*served);
  }
  void come(LinkId link, const std::string& host = "10.0.0.1") {
    noted_->handler->on_accepted(link, host + ":" + std::to_string(link.value));
  }
  void join(LinkId link, const std::string& host) {
    come(link, host);
    wire::Join join;
    join.swarm = "default";
    join.site = "site" + std::to_string(link.value);
    join.elements = 10;
    join.report.record.acceptor = AcceptorId(link.value);
    noted_->say(link, join);
  }
  // The only rank at a site of its own, of a world of so many.
  void enter(LinkId link, const std::string& host, std::uint64_t world, std::uint32_t ranks = 1) {
    come(link, host);
    wire::Enter enter;
    enter.swarm = "default";
    enter.world = world;
    enter.rank = RankId(static_cast<std::uint32_t>(link.value % ranks));
    enter.sites = {"site"};
    enter.site_of.assign(ranks, 0);
    enter.acceptor = AcceptorId(link.value);
    noted_->say(link, enter);
  }
  // What came on this link before is handled when this ends it.
  static constexpr LinkId kProbe{Door::Noted::kFirstDialled};
  // A site that says where it can be dialled; the coordinator's own dial is under way, as kProbe.
  wire::Join come_with_address(LinkId link, const std::string& site) {
    come(link);
    wire::Join join;
    join.swarm = "default";
    join.site = site;
    join.address = "10.0.0.9:1";
    join.elements = 10;
    join.report.record.acceptor = AcceptorId(1);
    noted_->say(link, join);
    come(LinkId{100});
    end(LinkId{100});
    return join;
  }
  void end(LinkId link) {
    noted_->handler->on_message(link, {Lane::kControl, std::vector<std::byte>(40), nullptr});
    noted_->wait_until_closed(link);
  }

  std::shared_ptr<Door::Noted> noted_ = std::make_shared<Door::Noted>();
  std::unique_ptr<CoordinatorServer> server_;
};

TEST_F(CoordinatorServerTest, AnswersAFewOfAFloodOfStatusQueries) {
  constexpr int kQueries = 10'000;
  come(LinkId{1});
  for (int i = 0; i < kQueries; ++i) noted_->say(LinkId{1}, wire::StatusQuery{});
  end(LinkId{1});
  const std::size_t answers = noted_->heard_by<wire::StatusReport>(LinkId{1}).size();
  EXPECT_GE(answers, 4U);
  EXPECT_LT(answers, kQueries / 10U) << "four a second, and handling them takes no minutes";
}

// In all, over links and hosts of which each asks no more than it may.
TEST_F(CoordinatorServerTest, AnswersSixtyFourQueriesASecondOverManyLinks) {
  constexpr std::uint64_t kLinks = 2000;
  for (std::uint64_t link = 1; link <= kLinks; ++link) {
    come(LinkId{link}, "10.0.1." + std::to_string(link % 40));
    noted_->say(LinkId{link}, wire::StatusQuery{});
  }
  come(LinkId{kLinks + 1});
  end(LinkId{kLinks + 1});
  std::size_t answers = 0;
  for (std::uint64_t link = 1; link <= kLinks; ++link)
    answers += noted_->heard_by<wire::StatusReport>(LinkId{link}).size();
  EXPECT_GE(answers, 64U);
  EXPECT_LT(answers, kLinks / 4) << "and handling them takes no seven seconds";
}

TEST_F(CoordinatorServerTest, OneHostsQueriesOverManyLinksTakeNothingFromAnothers) {
  constexpr std::uint64_t kLinks = 60;
  for (std::uint64_t link = 1; link <= kLinks; ++link) {
    come(LinkId{link}, "10.6.6.6");
    for (int i = 0; i < 4; ++i) noted_->say(LinkId{link}, wire::StatusQuery{});
  }
  for (const std::uint64_t link : {101, 102}) {
    come(LinkId{link}, link == 101 ? "10.0.0.1" : "127.0.0.1");
    noted_->say(LinkId{link}, wire::StatusQuery{});
  }
  end(LinkId{102});
  std::size_t answers = 0;
  for (std::uint64_t link = 1; link <= kLinks; ++link)
    answers += noted_->heard_by<wire::StatusReport>(LinkId{link}).size();
  EXPECT_GE(answers, 16U);
  EXPECT_LT(answers, 60U);
  for (const std::uint64_t link : {101, 102}) {
    EXPECT_EQ(noted_->heard_by<wire::StatusReport>(LinkId{link}).size(), 1U) << link;
  }
}

// ---- links that are taken in ---------------------------------------------------------------------

class CoordinatorOfFewFiles : private testing::FewFiles, public CoordinatorServerTest {
 protected:
  static constexpr std::uint64_t kMost = 100;
  static constexpr std::uint64_t kHonest = 1'000;
  CoordinatorOfFewFiles() : FewFiles(4 * kMost) {}
  // What came before is handled: else many wait at the door at once.
  void settle() {
    come(LinkId{++settled_}, "127.0.0.1");
    end(LinkId{settled_});
    noted_->handler->on_closed(LinkId{settled_}, {});
  }
  // Of these, from the first to the last.
  [[nodiscard]] std::size_t closed(std::uint64_t first, std::uint64_t last) {
    const std::lock_guard lock(noted_->mutex);
    return static_cast<std::size_t>(
        std::distance(noted_->closed.lower_bound(LinkId{first}), noted_->closed.upper_bound(LinkId{last})));
  }
  std::uint64_t settled_ = 100'000;
};

TEST_F(CoordinatorOfFewFiles, OneHostUnderManyNamesTakesAtMostAQuarterOfTheFiles) {
  for (std::uint64_t link = 1; link <= kMost + 30; ++link) {
    join(LinkId{link}, "10.6.6.6");
    settle();
  }
  EXPECT_EQ(closed(1, kMost), 0U);
  EXPECT_EQ(closed(kMost + 1, kMost + 30), 30U);
  join(LinkId{kHonest}, "10.0.0.1");
  settle();
  EXPECT_EQ(noted_->heard_by<wire::Welcome>(LinkId{kHonest}).size(), 1U);
  EXPECT_EQ(closed(kMost, kMost), 1U);
  EXPECT_EQ(closed(1, kHonest), 31U);
}

TEST_F(CoordinatorOfFewFiles, RanksOfOneHostTakeAtMostAQuarterOfTheFiles) {
  for (std::uint64_t link = 1; link <= kMost + 30; ++link) {
    enter(LinkId{link}, "10.6.6.6", 1, 1'000);
    settle();
  }
  enter(LinkId{kHonest}, "10.0.0.1", 2);
  settle();
  EXPECT_EQ(noted_->heard_by<wire::Entered>(LinkId{kHonest}).size(), 1U);
  EXPECT_EQ(closed(1, kHonest), 31U);
}

TEST_F(CoordinatorOfFewFiles, AClosedLinkMakesRoom) {
  for (std::uint64_t link = 1; link <= kMost; ++link) {
    join(LinkId{link}, "10.6.6.6");
    settle();
  }
  noted_->handler->on_closed(LinkId{1}, {});
  join(LinkId{500}, "10.6.6.6");
  settle();
  EXPECT_EQ(closed(1, kHonest), 0U);
}

TEST_F(CoordinatorServerTest, WorldsOfOneHostMakeRoomForAnothers) {
  for (std::uint64_t link = 1; link <= 64; ++link) enter(LinkId{link}, "10.6.6.6", link);
  enter(LinkId{100}, "10.0.0.1", 100);
  come(LinkId{101});
  end(LinkId{101});
  EXPECT_EQ(noted_->heard_by<wire::Entered>(LinkId{100}).size(), 1U);
  EXPECT_EQ(noted_->heard_by<wire::Refuse>(LinkId{64}).size(), 1U);
}

// Two ranks of a world, of whom one brings and the other wants it; both say that they hold each step.
class CoordinatorOfTwoRanks : public CoordinatorServerTest {
 protected:
  static constexpr LinkId kBrings{2}, kWants{3};
  CoordinatorOfTwoRanks() {
    for (const LinkId link : {kBrings, kWants}) enter(link, "10.0.0.1", 7, 2);
    for (const LinkId link : {kBrings, kWants})
      noted_->say(link, wire::Assemble{kGroup, {RankId(0), RankId(1)}, {}, 0});
  }
  void contribute(LinkId link, std::uint64_t step, BufferPtr payload) {
    noted_->say(link, testing::in_broadcast(kGroup, step, link == kWants), std::move(payload));
  }
  void step(std::uint64_t number) {
    contribute(kBrings, number, part_);
    contribute(kWants, number, nullptr);
    std::unique_lock lock(noted_->mutex);
    const auto hears = [&](LinkId link) {
      const auto is_it = [&](const auto& each) {
        const auto* result = std::get_if<wire::StepResult>(&each.second);
        return each.first == link && result != nullptr && result->step == number;
      };
      return noted_->closed.contains(link) || std::ranges::any_of(noted_->sent, is_it);
    };
    noted_->changed.wait(lock, [&] { return hears(kBrings) && hears(kWants); });
    lock.unlock();
    for (const LinkId link : {kBrings, kWants}) noted_->say(link, wire::ResultAck{kGroup, number, {}});
  }
  [[nodiscard]] bool is_closed(LinkId link) {
    const std::lock_guard lock(noted_->mutex);
    return noted_->closed.contains(link);
  }
  static constexpr GroupId kGroup{2};
  BufferPtr part_ = make_buffer_pool()->take(std::size_t{16} << 20);
};

TEST_F(CoordinatorOfTwoRanks, ARankThatClaimsUndeliveredResultsIsDropped) {
  for (std::uint64_t number = 1; number <= 12 && !is_closed(kWants); ++number) step(number);
  noted_->wait_until_closed(kWants);
  EXPECT_LE(noted_->heard_by<wire::Part>(kWants).size(), 10U) << "128 MiB, and what is sent between two looks";
  EXPECT_FALSE(is_closed(kBrings));
}

TEST_F(CoordinatorOfTwoRanks, ARankThatTakesItsResultsMayHaveAnyNumberOfSteps) {
  noted_->takes = true;
  for (std::uint64_t number = 1; number <= 40; ++number) step(number);
  EXPECT_EQ(noted_->heard_by<wire::Part>(kWants).size(), 40U);
  EXPECT_FALSE(is_closed(kWants));
}

TEST_F(CoordinatorServerTest, AnswersAFewOfAFloodOfLeaderQueries) {
  constexpr int kQuestions = 10'000;
  come(LinkId{1});
  for (int i = 0; i < kQuestions; ++i) noted_->say(LinkId{1}, wire::Inquire{"default"});
  end(LinkId{1});
  const std::size_t answers = noted_->heard_by<wire::Leads>(LinkId{1}).size();
  EXPECT_GE(answers, 20U);
  EXPECT_LT(answers, kQuestions / 10U) << "twenty a second, and handling them takes no minute";
}

TEST_F(CoordinatorServerTest, OneLinksFloodTakesNothingFromAnothersQuestion) {
  come(LinkId{1});
  come(LinkId{2});
  for (int i = 0; i < 1000; ++i) noted_->say(LinkId{1}, wire::StatusQuery{});
  noted_->say(LinkId{2}, wire::StatusQuery{});
  end(LinkId{2});
  EXPECT_EQ(noted_->heard_by<wire::StatusReport>(LinkId{2}).size(), 1U);
}

// Where nobody answers a dial is over after seconds only.
TEST_F(CoordinatorServerTest, TriesABoundedNumberOfAddressesAndNoneOfAClosedLink) {
  constexpr std::uint64_t kSites = 70;
  for (std::uint64_t link = 1; link <= kSites; ++link) {
    come(LinkId{link}, "10.0.0." + std::to_string(link));
    wire::Join join;
    join.swarm = "default";
    join.site = "site" + std::to_string(link);
    join.address = join.site + ":1";
    join.elements = 10;
    join.report.record.acceptor = AcceptorId(link);
    noted_->say(LinkId{link}, join);
  }
  const auto dialled = [&] {
    const std::lock_guard lock(noted_->mutex);
    return noted_->dialled;
  };
  come(LinkId{100});
  end(LinkId{100});
  EXPECT_EQ(dialled().size(), 64U);
  noted_->handler->on_closed(LinkId{66}, {});  // it waits
  noted_->handler->on_closed(LinkId{2}, {});
  noted_->wait_until_closed(LinkId{Door::Noted::kFirstDialled + 1});
  noted_->handler->on_closed(LinkId{Door::Noted::kFirstDialled}, timed_out("nobody answers"));
  come(LinkId{101});
  end(LinkId{101});
  const auto all = dialled();
  ASSERT_EQ(all.size(), 66U);
  EXPECT_EQ(all[64], "site65:1");
  EXPECT_EQ(all[65], "site67:1");
  EXPECT_EQ(noted_->heard_by<wire::Notice>(LinkId{1}).size(), 1U) << "that it cannot be dialled";
}

// It said where it can be dialled, and so chose who answers: a Join there would be of no host, and kept beyond its
// link.
TEST_F(CoordinatorServerTest, TheAnswererOfAnAddressProbeIsNotHeard) {
  wire::Join join = come_with_address(LinkId{1}, "site1");
  ASSERT_EQ(noted_->dialled.size(), 1U);
  noted_->handler->on_connected(kProbe);
  noted_->say(kProbe, wire::StatusQuery{});
  join.site = "phantom";
  join.address = {};
  join.report.record.acceptor = AcceptorId(2);
  noted_->say(kProbe, join);
  join.generation = 2;  // it would wait for that, with the whole of what it said
  join.site = "other";
  noted_->say(kProbe, join);
  noted_->wait_until_closed(kProbe);
  noted_->handler->on_closed(kProbe, {});
  come(LinkId{101});
  end(LinkId{101});
  EXPECT_TRUE(noted_->heard_by<wire::StatusReport>(kProbe).empty());
  EXPECT_TRUE(noted_->heard_by<wire::Welcome>(kProbe).empty());
  const std::string status = to_json(server_->report().value().status);
  EXPECT_THAT(status, HasSubstr("site1"));
  EXPECT_THAT(status, Not(HasSubstr("phantom")));
}

// The link may be pushed out by others before it is closed.
TEST_F(CoordinatorServerTest, AnAnsweredAddressCanBeDialledHoweverTheLinkEnds) {
  static_cast<void>(come_with_address(LinkId{1}, "paris"));
  noted_->handler->on_connected(kProbe);
  noted_->handler->on_closed(kProbe, unavailable("too many links wait here"));
  come(LinkId{101});
  end(LinkId{101});
  EXPECT_TRUE(noted_->heard_by<wire::Notice>(LinkId{1}).empty()) << "that nobody can dial it";
}

TEST_F(CoordinatorServerTest, ACertificateOfAnotherSiteIsRefusedWithTheReason) {
  come(LinkId{1});
  noted_->handler->on_authenticated(LinkId{1}, {"rome"});
  wire::Join join;
  join.swarm = "default";
  join.site = "paris";
  join.elements = 10;
  join.report.record.acceptor = AcceptorId(7);
  noted_->say(LinkId{1}, join);
  noted_->wait_until_closed(LinkId{1});
  const auto refused = noted_->heard_by<wire::Refuse>(LinkId{1});
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].reason, HasSubstr("its certificate is that of \"rome\", and it says that it is \"paris\""));
}

}  // namespace
}  // namespace collab
