// Sites that come later, or back: the anchor from several members at once, and the optimizer's state of one, over a
// transport that interferes.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "core/runtime/node.h"
#include "tests/integration/by_hand.h"
#include "tests/integration/meddling.h"

namespace collab::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kPatient = std::chrono::seconds(5);  // the machine may be busy

class Joining : public ByHand {
 protected:
  Joining() {
    swarm_.elements = 13 * 4 * 65'536 - 1000;  // thirteen parts
    dir_ = std::filesystem::temp_directory_path() / ("collab-join-" + std::to_string(getpid()));
    std::filesystem::create_directories(dir_);
    swarm_.adjust = [this](SessionOptions& options, std::size_t site) {
      options.make_transport = [this, site]() -> Result<std::unique_ptr<Transport>> {
        const auto meddle = [this, site](Meddling& by, LinkId link, TransportMessage& message, std::uint64_t token) {
          const auto chunk = chunk_of(message);
          const bool shown =
              chunk && (chunk->kind == wire::ChunkKind::kAnchor || chunk->kind == wire::ChunkKind::kOptimizer);
          return !shown || !armed_ || !meddle_[site] || meddle_[site](by, link, message, token);
        };
        return std::unique_ptr<Transport>(std::make_unique<Meddling>(swarm_.transport(), meddle));
      };
    };
  }
  ~Joining() override { std::filesystem::remove_all(dir_); }

  // Three sites that have had a round, and a fourth that comes.
  void start_three() {
    start(3, [this](Config& config) {
      config.events_file = events();
      config.min_sites = 3;
      config.straggler_grace = kPatient;
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

TEST_F(Joining, ASourceThatSendsWrongBytesIsNamedAndTheOthersReplaceIt) {
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
  EXPECT_THAT(told("repair"), HasSubstr("are not those agreed on (they were damaged on the way)"));
  finish_all();
}

TEST_F(Joining, ALostSourceAndASilentOneDelayNoJoiner) {
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

TEST_F(Joining, AReturningSiteFetchesOnlyNewerChunks) {
  start(3, [this](Config& config) {
    config.events_file = events();
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

// ---- the optimizer's state ---------------------------------------------------------------------------

// Two sites that have had a round and train on, and a third that asks for what their optimizers know.
class Serving : public Joining {
 protected:
  Serving() {
    swarm_.elements = 200'000;
    const auto inner = swarm_.adjust;
    swarm_.adjust = [this, inner](SessionOptions& options, std::size_t site) {
      inner(options, site);
      options.serves_optimizer = serves_[site];
      if (site < 2) options.config.join_optimizer = allowed_;
      if (site == 1) options.config.egress_budget_gb = budget_of_second_;
    };
    for (std::size_t site = 0; site < 2; ++site) {
      for (std::size_t i = 0; i < 2'500'001; ++i) state_[site].push_back(static_cast<std::byte>(i * (7 + site) >> 3));
    }
  }
  ~Serving() override { stop(); }
  void start_two(bool trained = true) {
    start(2, [this](Config& config) {
      config.events_file = events();
      config.min_sites = 2;
      config.straggler_grace = kPatient;
    });
    if (trained) together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  }
  void join_third() {
    swarm_.parameters.push_back(std::make_shared<PlainVector>(fresh_values(swarm_.elements, 99)));
    sessions_.resize(3);
    steps_.resize(3);
    begin(2);
    armed_ = true;
  }
  // As the script's thread would between two steps.
  void answer(std::size_t site, const std::function<Result<OptimizerCopy>()>& copy) {
    threads_.emplace_back([this, copy, session = sessions_[site].get()] {
      while (!stopped_) {
        if (session->optimizer_wanted()) {
          ++copies_;
          session->give_optimizer(copy());
          while (!stopped_ && session->optimizer_wanted()) std::this_thread::yield();
        }
        std::this_thread::yield();
      }
    });
  }
  void answer_with_state(std::size_t site) {
    answer(site, [this, site]() -> Result<OptimizerCopy> {
      return OptimizerCopy{"{\"site\":" + std::to_string(site) + "}", state_[site], nullptr};
    });
  }
  static bool is_of_optimizer(const TransportMessage& message) {
    return std::get<wire::Chunk>(*wire::decode(message.head)).kind == wire::ChunkKind::kOptimizer;
  }
  // A session belongs to one thread, except for answers between two steps of another.
  void finish_all() {
    stop();
    ByHand::finish_all();
  }
  void stop() {
    stopped_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  void expect_state_of(std::size_t site, const Result<BufferPtr>& taken) {
    ASSERT_TRUE(taken.ok()) << taken.status().to_string();
    EXPECT_TRUE(std::ranges::equal((*taken)->view(), state_[site]));
  }

  std::atomic<int> lost_ = -1;
  std::array<bool, 3> serves_{true, true, true};
  bool allowed_ = true;
  double budget_of_second_ = 0;
  std::array<std::vector<std::byte>, 2> state_;
  std::atomic<int> copies_ = 0;
  std::atomic<bool> stopped_ = false;
  std::vector<std::thread> threads_;
};

TEST_F(Serving, AJoinerTakesOneMembersStateWhole) {
  start_two();
  for (const std::size_t site : {0, 1}) answer_with_state(site);
  join_third();
  const Result<OptimizerOffer> offer = sessions_[2]->ask_optimizer();
  ASSERT_TRUE(offer.ok()) << offer.status().to_string();
  const std::size_t source = offer->source == "site0" ? 0 : 1;
  EXPECT_EQ(offer->description, "{\"site\":" + std::to_string(source) + "}");
  EXPECT_EQ(offer->bytes, 2'500'001U);
  expect_state_of(source, sessions_[2]->take_optimizer());
  sessions_[2]->end_optimizer("");
  together(3, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  finish_all();
  EXPECT_EQ(copies_, 1) << "of one member only";
  EXPECT_THAT(told("join-optimizer"), HasSubstr("\"source\":\"" + offer->source + "\",\"bytes\":2500001,\"seconds\":"));
}

TEST_F(Serving, ASourceThatIsLostMidwayIsReplacedByAnother) {
  for (std::size_t site = 0; site < 2; ++site) {
    meddle_[site] = [this, site](Meddling& by, LinkId link, TransportMessage& message, std::uint64_t) {
      if (!is_of_optimizer(message)) return true;  // the slower one's part of the anchor
      int none = -1;
      if (!lost_.compare_exchange_strong(none, static_cast<int>(site)) && lost_ != static_cast<int>(site)) return true;
      by.close(link);
      return false;
    };
  }
  start_two();
  for (const std::size_t site : {0, 1}) answer_with_state(site);
  join_third();
  ASSERT_TRUE(sessions_[2]->ask_optimizer().ok());
  EXPECT_EQ(sessions_[2]->take_optimizer().status().code(), StatusCode::kUnavailable);
  ASSERT_TRUE(sessions_[2]->ask_optimizer().ok());
  expect_state_of(static_cast<std::size_t>(1 - lost_), sessions_[2]->take_optimizer());
  sessions_[2]->end_optimizer("");
  finish_all();
}

TEST_F(Serving, BytesThatWereDamagedAreNotTaken) {
  meddle_[0] = meddle_[1] = [](Meddling&, LinkId, TransportMessage& message, std::uint64_t) {
    if (is_of_optimizer(message)) message.payload->bytes()[5] ^= std::byte{1};
    return true;
  };
  start_two();
  for (const std::size_t site : {0, 1}) answer_with_state(site);
  join_third();
  for (int member = 0; member < 2; ++member) {
    ASSERT_TRUE(sessions_[2]->ask_optimizer().ok());
    EXPECT_THAT(sessions_[2]->take_optimizer().status().message(), HasSubstr("damaged on the way"));
  }
  EXPECT_THAT(sessions_[2]->ask_optimizer().status().message(), HasSubstr("site0: its bytes were damaged"));
  finish_all();
}

TEST_F(Serving, ASiteWithoutAnAnchorSaysWhyItServesNone) {
  serves_ = {true, false, true};
  start_two(false);
  join_third();
  std::string said = sessions_[2]->ask_optimizer().status().message();
  EXPECT_THAT(said, HasSubstr("site0: it has not made a step yet"));
  EXPECT_THAT(said, HasSubstr("site1: it does not serve optimizer state"));
  EXPECT_TRUE(sessions_[0]->step(8).ok());
  answer(0, []() -> Result<OptimizerCopy> { return unavailable("LBFGS keeps a history"); });
  said = sessions_[2]->ask_optimizer().status().message();
  EXPECT_THAT(said, HasSubstr("site0: LBFGS keeps a history"));
  sessions_[2]->end_optimizer(said);
  finish_all();
  EXPECT_THAT(told("join-optimizer"), HasSubstr("starts cold: site0: LBFGS keeps a history"));
  EXPECT_EQ(told("join-optimizer").find("\"source\""), std::string::npos);
}

TEST_F(Serving, TheKnobTurnsItOff) {
  allowed_ = false;
  start_two();
  join_third();
  EXPECT_THAT(sessions_[2]->ask_optimizer().status().message(), HasSubstr("COLLAB_JOIN_OPTIMIZER is 0 at that site"));
  EXPECT_FALSE(sessions_[0]->optimizer_wanted() || sessions_[1]->optimizer_wanted());
  finish_all();
}

TEST_F(Serving, ASiteWithHalfItsBudgetSpentLeavesServingToOthers) {
  budget_of_second_ = 2.8e-3;  // three rounds, of 0.8 MB each
  start_two();
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  answer(0, []() -> Result<OptimizerCopy> { return unavailable("LBFGS keeps a history"); });
  answer_with_state(1);
  join_third();
  EXPECT_TRUE(values(2) == values(0));
  EXPECT_THAT(sessions_[2]->ask_optimizer().status().message(),
              HasSubstr("site1: half of its egress budget is spent (COLLAB_EGRESS_BUDGET_GB)"));
  finish_all();
}

TEST_F(Serving, AModelGivenBetweenRoundsEndsABudgetToo) {
  budget_of_second_ = 2.2e-3;  // rounds and models, of 0.8 MB each
  start(2, [this](Config& config) {
    config.events_file = events();
    config.min_sites = 2;
    config.round_timeout = std::chrono::seconds(1);
  });
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  sessions_[0].reset();
  values(0) = fresh_values(swarm_.elements, 99);
  begin(0);
  EXPECT_TRUE(values(0) == values(1)) << "of the second";
  const auto over = [this] {  // only its leader talks to others
    return sessions_[1]->ask_optimizer().status().message().find(kBudgetOver) != std::string::npos;
  };
  EXPECT_FALSE(over());
  EXPECT_THAT(told("budget"), HasSubstr("what is left of this site's egress budget is too little for another round"));
  EXPECT_FALSE(interval(1)) << "no round for it any more";
  EXPECT_TRUE(over()) << "it trains on alone";
  EXPECT_LT(sessions_[1]->status().bytes_sent, 2'200'000U);
}

TEST_F(Serving, ASiteInARoundServesToo) {
  start_two();
  for (const std::size_t site : {0, 1}) answer_with_state(site);
  join_third();
  // The two wait for the third, which asks before its first step.
  std::thread both([this] { together(2, [this](std::size_t site) { interval(site); }); });
  EXPECT_TRUE(sessions_[2]->ask_optimizer().ok());
  EXPECT_TRUE(sessions_[2]->take_optimizer().ok());
  sessions_[2]->end_optimizer("");
  interval(2);
  both.join();
  finish_all();
}

TEST(Ranks, InOneSiteGetTheLeadersBytes) {
  Swarm swarm = swarm_of(1, CodecId::kFp32);
  swarm.ranks = 3;
  swarm.config.run = "share-" + std::to_string(getpid());
  swarm.start_coordinator();
  std::atomic<int> leaders = 0;
  const std::vector<Status> results = swarm.run([&](Session& session, std::size_t, std::vector<float>&) -> Status {
    const bool leader = session.ask_optimizer().status().code() == StatusCode::kUnavailable;  // nobody else is here
    leaders += leader ? 1 : 0;
    std::vector<std::byte> bytes(1000, static_cast<std::byte>(leader ? 7 : 0));
    COLLAB_RETURN_IF_ERROR(session.broadcast(bytes));
    EXPECT_EQ(std::ranges::count(bytes, std::byte{7}), 1000);
    return session.finish();
  });
  for (const Status& status : results) EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(leaders, 1);
}

}  // namespace
}  // namespace collab::testing
