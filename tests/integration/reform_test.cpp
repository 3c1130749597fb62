// A site dies in mid-exchange: the round is formed again, and what owners hold is not sent twice.
#include <gmock/gmock.h>

#include <atomic>
#include <map>
#include <thread>

#include "tests/integration/by_hand.h"
#include "tests/integration/meddling.h"

namespace collab::testing {
namespace {

constexpr std::uint64_t kBlock = 1024;  // slices end at multiples of it

class Reforming : public ByHand {
 protected:
  struct Sent {
    std::uint64_t elements = 0;
    std::map<std::pair<LinkId, std::uint64_t>, int> chunks;  // by link and first element
  };

  Reforming() {
    swarm_.elements = 96 * kBlock;
    swarm_.adjust = [this](SessionOptions& options, std::size_t site) {
      if (site == hidden_) options.config.advertise = "none";
      options.make_transport = [this, site]() -> Result<std::unique_ptr<Transport>> {
        auto transport = std::make_unique<Meddling>(
            swarm_.transport(), [this, site](Meddling&, LinkId link, TransportMessage& message, std::uint64_t) {
              return observe(site, link, message);
            });
        if (site == 2) dying_ = transport.get();
        return std::unique_ptr<Transport>(std::move(transport));
      };
    };
  }

  // Two rounds: one as it should be, one in which the third site falls silent and dies.
  void run() {
    start(3, [this](Config& config) {
      config.link_grace = std::chrono::seconds(4);
      config.codec = codec_;
    });
    together(3, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
    anchor_ = values(0);
    for (std::size_t site = 0; site < 3; ++site) {
      theta_[site] = anchor_;
      for (std::size_t step = 4; step < 8; ++step) train_one_step(theta_[site], site, step);
    }
    armed_ = true;
    std::thread doomed([this] { EXPECT_FALSE(interval(2)); });
    std::thread death([this] {
      while (!all_reduced()) std::this_thread::yield();
      dying_->die();
    });
    together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
    death.join();
    doomed.join();
    armed_ = false;
    EXPECT_EQ(values(0), values(1));
  }

  // The weighted mean of what the first `count` have trained; all weigh the same.
  [[nodiscard]] std::vector<double> mean_of(std::size_t count) const {
    std::vector<double> mean(anchor_.size());
    for (std::size_t i = 0; i < mean.size(); ++i) {
      for (std::size_t site = 0; site < count; ++site) {
        mean[i] += static_cast<double>(theta_[site][i]) / static_cast<double>(count);
      }
    }
    return mean;
  }

  void expect_nothing_twice() {
    const std::lock_guard lock(mutex_);
    for (std::size_t site = 0; site < 2; ++site) {
      for (const auto& [at, times] : sent_[site].chunks) {
        EXPECT_EQ(times, 1) << "site " << site << ", the chunk at " << at.second;
      }
    }
  }

  Codecs codec_ = CodecId::kFp32;
  std::size_t hidden_ = 99;  // cannot be dialled
  Sent sent_[3];
  std::mutex mutex_;
  std::vector<float> anchor_;

 private:
  bool observe(std::size_t site, LinkId link, const TransportMessage& message) {
    const auto chunk = chunk_of(message);
    if (!armed_ || !chunk) return true;
    if (chunk->kind == wire::ChunkKind::kMean) {
      if (chunk->attempt > AttemptId{1}) return true;
      reduced_ += chunk->range.size();
      return false;  // nobody is done before it dies
    }
    if (chunk->kind != wire::ChunkKind::kContribution) return true;
    const std::lock_guard lock(mutex_);
    sent_[site].elements += chunk->range.size();
    ++sent_[site].chunks[{link, chunk->range.begin}];
    return true;
  }
  // Each owner has all contributions to its slice: it would send the mean to the two others.
  [[nodiscard]] bool all_reduced() const { return reduced_ >= 2 * swarm_.elements; }

  std::atomic<std::uint64_t> reduced_ = 0;  // elements
  std::vector<float> theta_[3];
  std::atomic<bool> armed_ = false;
  Meddling* dying_ = nullptr;
};

TEST_F(Reforming, OnlyTheSliceOfALostOwnerIsSentAgain) {
  run();
  expect_near(values(0), mean_of(2));
  expect_nothing_twice();
  // A third to each of the others, and then half of the lost third to the one that is left.
  for (std::size_t site = 0; site < 2; ++site) EXPECT_EQ(sent_[site].elements, 64 * kBlock + 16 * kBlock);
  sessions_.resize(2);
  finish_all();
}

// With error feedback what was sent for the first attempt serves the second as it is, too.
TEST_F(Reforming, ThinPayloadsAreNotSentAgainEither) {
  codec_ = {CodecId::kInt4, CodecId::kInt8};
  run();
  const std::vector<double> exact = mean_of(2);
  for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(values(0)[i], exact[i], 2e-3) << "element " << i;
  expect_nothing_twice();
  for (std::size_t site = 0; site < 2; ++site) EXPECT_EQ(sent_[site].elements, 64 * kBlock + 16 * kBlock);
  for (int round = 0; round < 3; ++round) {
    together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
    EXPECT_EQ(values(0), values(1));
  }
  sessions_.resize(2);
  finish_all();
}

TEST_F(Reforming, TheContributionOfALostSiteThatOwnedNothingCounts) {
  hidden_ = 2;
  run();
  expect_near(values(0), mean_of(3));
  expect_nothing_twice();
  for (std::size_t site = 0; site < 2; ++site) EXPECT_EQ(sent_[site].elements, 48 * kBlock);
  sessions_.resize(2);
  finish_all();
}

// The round after a skipped exchange averages nothing: what was trained may yet be committed in the one that was
// skipped.
TEST_F(ByHand, TheLastRoundHoldsWhatASkippedExchangeLeft) {
  std::atomic<bool> lost = false;
  swarm_.adjust = [&](SessionOptions& options, std::size_t /*site*/) {
    options.make_transport = [&]() -> Result<std::unique_ptr<Transport>> {
      auto meddle = [&](Meddling&, LinkId, TransportMessage& message, std::uint64_t) {
        const auto chunk = chunk_of(message);
        return !lost || !chunk || chunk->kind != wire::ChunkKind::kContribution;
      };
      return std::unique_ptr<Transport>(std::make_unique<Meddling>(swarm_.transport(), meddle));
    };
  };
  start(2, [](Config& config) { config.round_timeout = std::chrono::seconds(1); });
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  lost = true;
  together(2, [this](std::size_t site) { EXPECT_FALSE(interval(site)) << "nothing comes"; });
  lost = false;
  finish_all();
  EXPECT_EQ(values(0), values(1));
}

}  // namespace
}  // namespace collab::testing
