// What a coordinator's process does before its machines hear of a message: who may ask, who is who it says.
#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "collab/session.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

using ::testing::HasSubstr;

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

    void say(LinkId link, const wire::Message& message) {
      handler->on_message(link, {Lane::kControl, wire::encode(message), nullptr});
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
  void send(LinkId link, TransportMessage message, std::uint64_t /*token*/) override {
    const std::lock_guard lock(noted_->mutex);
    noted_->sent.emplace_back(link, *wire::decode(message.head));
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
  void come(LinkId link) { noted_->handler->on_accepted(link, "10.0.0.1:" + std::to_string(link.value)); }
  // What came on this link before is handled when this ends it.
  void end(LinkId link) {
    noted_->handler->on_message(link, {Lane::kControl, std::vector<std::byte>(40), nullptr});
    noted_->wait_until_closed(link);
  }

  std::shared_ptr<Door::Noted> noted_ = std::make_shared<Door::Noted>();
  std::unique_ptr<CoordinatorServer> server_;
};

TEST_F(CoordinatorServerTest, OfAFloodOfStatusQueriesAFewAreAnswered) {
  constexpr int kQueries = 10'000;
  come(LinkId{1});
  for (int i = 0; i < kQueries; ++i) noted_->say(LinkId{1}, wire::StatusQuery{});
  end(LinkId{1});
  const std::size_t answers = noted_->heard_by<wire::StatusReport>(LinkId{1}).size();
  EXPECT_GE(answers, 4U);
  EXPECT_LT(answers, kQueries / 10U) << "four a second, and handling them takes no minutes";
}

// In all, over links of which each asks no more than it may.
TEST_F(CoordinatorServerTest, OfManyLinksQueriesSixtyFourASecondAreAnswered) {
  constexpr std::uint64_t kLinks = 2000;
  for (std::uint64_t link = 1; link <= kLinks; ++link) noted_->say(LinkId{link}, wire::StatusQuery{});
  end(LinkId{kLinks});
  std::size_t answers = 0;
  for (std::uint64_t link = 1; link <= kLinks; ++link)
    answers += noted_->heard_by<wire::StatusReport>(LinkId{link}).size();
  EXPECT_GE(answers, 64U);
  EXPECT_LT(answers, kLinks / 4) << "and handling them takes no seven seconds";
}

TEST_F(CoordinatorServerTest, OfAFloodOfQuestionsWhoLeadsAFewAreAnswered) {
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
TEST_F(CoordinatorServerTest, SoManyAddressesAreTriedAtOnceAndNoneOfWhoHasGone) {
  constexpr std::uint64_t kSites = 70;
  for (std::uint64_t link = 1; link <= kSites; ++link) {
    come(LinkId{link});
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

TEST_F(CoordinatorServerTest, WhoseCertificateIsAnothersIsRefusedInWords) {
  come(LinkId{1});
  noted_->handler->on_proved(LinkId{1}, {"rome"});
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
