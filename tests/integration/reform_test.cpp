// A site dies in mid-exchange: the round is formed again, and what owners hold is not sent twice.
#include <gmock/gmock.h>

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
    start(3, [](Config& config) { config.link_grace = std::chrono::seconds(4); });
    together(3, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
    anchor_ = values(0);
    for (std::size_t site = 0; site < 3; ++site) {
      theta_[site] = anchor_;
      for (std::size_t step = 4; step < 8; ++step) train_one_step(theta_[site], site, step);
    }
    armed_ = true;
    std::thread doomed([this] { EXPECT_FALSE(interval(2)); });
    std::thread death([this] {
      while (!all_sent()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for it to arrive
      dying_->die();
    });
    together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
    death.join();
    doomed.join();
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

  std::size_t hidden_ = 99;        // cannot be dialled
  std::uint64_t due_[3] = {};      // elements each sends to the others' slices in the first attempt
  Sent sent_[3];
  std::mutex mutex_;
  std::vector<float> anchor_;

 private:
  bool observe(std::size_t site, LinkId link, const TransportMessage& message) {
    const auto chunk = chunk_of(message);
    if (!armed_ || !chunk) return true;
    if (chunk->kind == wire::ChunkKind::kMean) return site != 2;  // so nobody is done before it dies
    if (chunk->kind != wire::ChunkKind::kContribution) return true;
    const std::lock_guard lock(mutex_);
    sent_[site].elements += chunk->range.size();
    ++sent_[site].chunks[{link, chunk->range.begin}];
    return true;
  }
  [[nodiscard]] bool all_sent() {
    const std::lock_guard lock(mutex_);
    for (std::size_t site = 0; site < 3; ++site) {
      if (sent_[site].elements < due_[site]) return false;
    }
    return true;
  }

  std::vector<float> theta_[3];
  std::atomic<bool> armed_ = false;
  Meddling* dying_ = nullptr;
};

TEST_F(Reforming, AnOwnerIsLostAndOnlyItsSliceIsSentAgain) {
  for (std::uint64_t& due : due_) due = 64 * kBlock;
  run();
  expect_near(values(0), mean_of(2));
  expect_nothing_twice();
  // A third to each of the others, and then half of the lost third to the one that is left.
  for (std::size_t site = 0; site < 2; ++site) EXPECT_EQ(sent_[site].elements, 64 * kBlock + 16 * kBlock);
  sessions_.resize(2);
  finish_all();
}

TEST_F(Reforming, WhoOwnedNothingIsLostAndWhatItContributedCounts) {
  hidden_ = 2;
  due_[0] = due_[1] = 48 * kBlock;
  due_[2] = 96 * kBlock;
  run();
  expect_near(values(0), mean_of(3));
  expect_nothing_twice();
  for (std::size_t site = 0; site < 2; ++site) EXPECT_EQ(sent_[site].elements, 48 * kBlock);
  sessions_.resize(2);
  finish_all();
}

}  // namespace
}  // namespace collab::testing
