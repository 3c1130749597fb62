// Sites that come later, or back: the anchor from several members at once, over a transport that interferes.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "core/wire/encoding.h"
#include "tests/integration/by_hand.h"

namespace collab::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Shows each part of an anchor that is sent to `meddle`, which may change it or keep it back (false).
class Meddling final : public Transport {
 public:
  using Meddle = std::function<bool(Meddling&, LinkId, TransportMessage&, std::uint64_t token)>;
  Meddling(std::unique_ptr<Transport> inner, Meddle meddle) : inner_(std::move(inner)), meddle_(std::move(meddle)) {}
  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] Abilities abilities() const override { return inner_->abilities(); }
  Status start(TransportHandler* handler) override { return inner_->start(handler); }
  Result<std::string> listen(const std::string& address) override { return inner_->listen(address); }
  LinkId connect(const std::string& address, Duration timeout) override { return inner_->connect(address, timeout); }
  void send(LinkId link, TransportMessage message, std::uint64_t token) override {
    if (message.lane == Lane::kData) {
      const auto decoded = wire::decode(message.head);
      const auto* chunk = decoded.ok() ? std::get_if<wire::Chunk>(&*decoded) : nullptr;
      if (chunk != nullptr && chunk->kind == wire::ChunkKind::kAnchor && !meddle_(*this, link, message, token)) return;
    }
    inner_->send(link, std::move(message), token);
  }
  void close(LinkId link) override { inner_->close(link); }
  void pass(LinkId link, TransportMessage message, std::uint64_t token) {
    inner_->send(link, std::move(message), token);
  }

 private:
  std::unique_ptr<Transport> inner_;
  Meddle meddle_;
};

// What is kept back, to be given later.
class Held {
 public:
  void keep(Meddling& by, LinkId link, TransportMessage message, std::uint64_t token) {
    messages_.push_back({&by, link, std::move(message), token});
  }
  void release() {
    for (Message& each : messages_) each.by->pass(each.link, std::move(each.message), each.token);
    messages_.clear();
  }

 private:
  struct Message {
    Meddling* by;
    LinkId link;
    TransportMessage message;
    std::uint64_t token;
  };
  std::vector<Message> messages_;
};

class Joining : public ByHand {
 protected:
  Joining() {
    swarm_.elements = 13 * 4 * 65'536 - 1000;  // thirteen parts
    dir_ = std::filesystem::temp_directory_path() / ("collab-join-" + std::to_string(getpid()));
    std::filesystem::create_directories(dir_);
    swarm_.adjust = [this](SessionOptions& options, std::size_t site) {
      options.make_transport = [this, site]() -> Result<std::unique_ptr<Transport>> {
        const auto meddle = [this, site](Meddling& by, LinkId link, TransportMessage& message, std::uint64_t token) {
          return !armed_ || !meddle_[site] || meddle_[site](by, link, message, token);
        };
        return std::unique_ptr<Transport>(std::make_unique<Meddling>(swarm_.transport(), meddle));
      };
    };
  }
  ~Joining() override { std::filesystem::remove_all(dir_); }

  // Three sites that have had a round, and a fourth that comes.
  void start_three() {
    start(3, [this](Config& config) {
      config.events = events();
      config.site_count = 3;
    });
    together(3, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  }
  void join_fourth() {
    swarm_.parameters.push_back(std::make_shared<PlainVector>(fresh_values(swarm_.elements, 99)));
    sessions_.resize(4);
    steps_.resize(4);
    armed_ = true;
    begin(3);
    EXPECT_TRUE(values(3) == values(0)) << "it has the anchor";
  }
  [[nodiscard]] std::string events() const { return dir_ / "events.jsonl"; }
  // By the site that joined last.
  [[nodiscard]] std::string told(const std::string& event) const {
    const std::string what =
        "\"site\":\"site" + std::to_string(sessions_.size() - 1) + "\",\"event\":\"" + event + "\"";
    std::ifstream file(events());
    std::string found;
    for (std::string line; std::getline(file, line);) {
      if (line.find(what) != std::string::npos) found += line + "\n";
    }
    return found;
  }

  std::filesystem::path dir_;
  std::array<Meddling::Meddle, 4> meddle_;
  std::atomic<bool> armed_ = false;  // the sites' first anchor travels untouched
};

TEST_F(Joining, FromAllMembersAtOnceWhichTrainOn) {
  // What is sent is kept back until all three were asked.
  std::mutex mutex;
  Held held;
  std::array<bool, 3> asked{};
  for (std::size_t site = 0; site < 3; ++site) {
    meddle_[site] = [&, site](Meddling& by, LinkId link, TransportMessage& message, std::uint64_t token) {
      const std::scoped_lock lock(mutex);
      asked[site] = true;
      held.keep(by, link, std::move(message), token);
      if (asked == std::array{true, true, true}) held.release();
      return false;
    };
  }
  start_three();
  join_fourth();
  const std::string fetch = told("fetch");
  EXPECT_THAT(fetch, HasSubstr("\"percent\":100"));
  for (const char* site : {"site0", "site1", "site2"}) {
    EXPECT_THAT(fetch, HasSubstr("\"" + std::string(site) + "\":"));
    EXPECT_THAT(fetch, Not(HasSubstr("\"" + std::string(site) + "\":0")));
  }
  together(4, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  EXPECT_TRUE(values(3) == values(1));
  finish_all();
}

TEST_F(Joining, WhoSendsOtherBytesIsNamedAndTheOthersGiveTheRight) {
  // The others keep back what they send until it has.
  std::mutex mutex;
  Held held;
  bool lied = false;
  for (std::size_t site = 0; site < 3; ++site) {
    meddle_[site] = [&, site](Meddling& by, LinkId link, TransportMessage& message, std::uint64_t token) {
      const std::scoped_lock lock(mutex);
      if (site == 1 && !std::exchange(lied, true)) message.payload->bytes()[5] ^= std::byte{1};
      held.keep(by, link, std::move(message), token);
      if (lied) held.release();
      return false;
    };
  }
  start_three();
  join_fourth();
  EXPECT_THAT(told("repair"), HasSubstr("\"who\":\"site1\""));
  EXPECT_THAT(told("repair"), HasSubstr("are not those agreed on (they were damaged on their way)"));
  finish_all();
}

TEST_F(Joining, ASourceThatGoesAndOneThatKeepsSilentHoldNobodyUp) {
  std::atomic<int> sent = 0;
  meddle_[0] = [](Meddling&, LinkId, TransportMessage&, std::uint64_t) { return false; };
  meddle_[1] = [&](Meddling& by, LinkId link, TransportMessage&, std::uint64_t) {
    if (++sent <= 2) return true;
    by.close(link);
    return false;
  };
  start_three();
  join_fourth();
  finish_all();
}

TEST_F(Joining, WhoComesBackFetchesOnlyWhatIsNewer) {
  start(3, [this](Config& config) {
    config.events = events();
    config.state_dir = dir_.string();
    config.save_every = 1;
  });
  // What is trained lies in the first part.
  const auto train_first_part = [this](std::size_t site) {
    for (int i = 0; i < 4; ++i) {
      for (std::size_t e = 0; e < 1000; ++e) values(site)[e] += 0.001F * static_cast<float>(site + 1);
      const Result<StepOutcome> outcome = sessions_[site]->step(8);
      EXPECT_TRUE(outcome.ok()) << outcome.status().to_string();
    }
  };
  together(3, train_first_part);
  sessions_[2].reset();
  together(2, train_first_part);
  values(2) = fresh_values(swarm_.elements, 99);
  begin(2);
  EXPECT_TRUE(values(2) == values(0));
  const std::uint64_t held = (swarm_.elements - 4 * 65'536) * sizeof(float);
  EXPECT_THAT(told("fetch"), HasSubstr("\"held_bytes\":" + std::to_string(held)));
  finish_all();
}

}  // namespace
}  // namespace collab::testing
