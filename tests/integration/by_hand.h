// Sites whose steps a test orders by hand, where Swarm lets all of them run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/integration/swarm.h"

namespace collab::testing {

inline void expect_all_ok(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
}

inline Swarm swarm_of(std::size_t sites, CodecId codec) {
  Swarm swarm;
  swarm.sites = sites;
  swarm.config.codec = codec;
  swarm.config.sync_every = {.steps = 4, .time = {}};
  swarm.config.chunk_kib = 4;
  swarm.config.join_timeout = std::chrono::seconds(20);
  swarm.config.round_timeout = std::chrono::seconds(20);
  swarm.config.log_level = "warning";
  return swarm;
}

class ByHand : public ::testing::Test {
 protected:
  void start(
      std::size_t sites, const std::function<void(Config&)>& change = [](Config&) {}) {
    swarm_.sites = sites;
    swarm_.config = swarm_of(sites, CodecId::kFp32).config;
    swarm_.config.straggler_grace = std::chrono::milliseconds(100);
    change(swarm_.config);
    swarm_.start_coordinator();
    sessions_.resize(sites);
    steps_.resize(sites);
    together(sites, [this](std::size_t site) { begin(site); });
  }
  void begin(std::size_t site) {
    auto session = make_session(swarm_.options(site, 0), swarm_.parameters[site], nullptr);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    sessions_[site] = std::move(*session);
    const Status begun = sessions_[site]->begin();
    ASSERT_TRUE(begun.ok()) << begun.to_string();
  }
  // Four steps, which end in a trigger; whether a round came about.
  bool interval(std::size_t site) {
    bool ran = false;
    for (int i = 0; i < 4; ++i) {
      train_one_step(values(site), site, steps_[site]++);
      const Result<StepOutcome> outcome = sessions_[site]->step(8);
      EXPECT_TRUE(outcome.ok()) << outcome.status().to_string();
      ran = outcome.ok() && outcome->round_ran;
    }
    return ran;
  }
  void together(std::size_t sites, const std::function<void(std::size_t)>& what) {
    std::vector<std::thread> threads;
    for (std::size_t site = 0; site < sites; ++site) threads.emplace_back([&, site] { what(site); });
    for (std::thread& thread : threads) thread.join();
  }
  void wait_until_one_is_ready() {
    const auto ready = [](const MemberStatus& each) { return each.state == "active" && !each.helper && each.ready; };
    while (std::ranges::none_of(swarm_.members(), ready)) std::this_thread::yield();
  }
  void finish_all() {
    together(sessions_.size(), [this](std::size_t site) { EXPECT_TRUE(sessions_[site]->finish().ok()); });
  }
  std::vector<float>& values(std::size_t site) { return swarm_.parameters[site]->values(); }
  static void expect_near(const std::vector<float>& got, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-6) << "element " << i;
  }

  Swarm swarm_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::size_t> steps_;
};

}  // namespace collab::testing
