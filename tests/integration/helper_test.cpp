// A helper over sockets: two sites that nobody can dial exchange through it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/integration/by_hand.h"
#include "transport/tcp/tcp_transport.h"

namespace collab::testing {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Transport> tcp() {
  TcpOptions options;
  options.advertise_host = "127.0.0.1";
  options.connections = 2;
  Result<std::unique_ptr<Transport>> made = make_tcp_transport(std::move(options));
  COLLAB_CHECK(made.ok(), made.status().to_string());
  return std::move(*made);
}

Swarm hidden_sites(std::size_t sites, CodecId codec) {
  Swarm swarm = swarm_of(sites, codec);
  swarm.elements = 200'000;
  swarm.config.chunk_kib = 64;
  swarm.transport = [] { return tcp(); };
  swarm.adjust = [](SessionOptions& options, std::size_t) { options.config.advertise = "none"; };
  return swarm;
}

std::unique_ptr<HelperServer> start_helper(Swarm& swarm, const std::string& events = "") {
  Config config = swarm.config;
  config.listen = "127.0.0.1:0";
  config.events_file = events;
  auto helper = serve_helper({.config = config,
                              .site = "helper",
                              .coordinators = {swarm.coordinator->address()},
                              .make_transport = []() -> Result<std::unique_ptr<Transport>> { return tcp(); }});
  COLLAB_CHECK(helper.ok(), helper.status().to_string());
  return std::move(*helper);
}

Status wait_for_helper(Swarm& swarm, HelperServer& helper) {
  for (int looks = 0; looks < 2'000; ++looks) {
    const auto at_work = [](const MemberStatus& each) { return each.state == "active" && each.helper; };
    if (std::ranges::any_of(swarm.members(), at_work)) return {};
    COLLAB_CHECK(helper.wait(Duration(10'000)).code() == StatusCode::kTimeout, "the helper has ended");
  }
  return timed_out("no helper is among the " + std::to_string(swarm.members().size()) + " members");
}

std::function<Status(Session&, std::size_t, std::vector<float>&)> train_with_helper(Swarm& swarm, HelperServer& helper,
                                                                                    std::size_t steps) {
  return [&swarm, &helper, steps](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    COLLAB_RETURN_IF_ERROR(wait_for_helper(swarm, helper));
    return train(steps)(session, site, values);
  };
}

double field_of(const std::string& line, const std::string& name) {
  const std::size_t at = line.find("\"" + name + "\":");
  return at == std::string::npos ? 0 : std::stod(line.substr(at + name.size() + 3));
}

TEST(Helper, TwoSitesThatCannotBeDialledExchangeThroughIt) {
  Swarm swarm = hidden_sites(2, CodecId::kFp32);
  const std::string events = ::testing::TempDir() + "helper-" + std::to_string(getpid()) + ".jsonl";
  swarm.start_coordinator();
  {
    const auto helper = start_helper(swarm, events);
    for (const Status& status : swarm.run(train_with_helper(swarm, *helper, 8)))
      EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(swarm.parameters[0]->values(), swarm.parameters[1]->values());
    EXPECT_TRUE(swarm.coordinator->wait_until_empty(std::chrono::seconds(10)).ok()) << "it goes with the last site";
    EXPECT_EQ(helper->wait(Duration(0)).code(), StatusCode::kTimeout) << "and waits for others";
  }
  // A parameter server's traffic: all deltas come in, the mean goes out to each, and nothing else.
  std::ifstream file(events);
  std::size_t rounds = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.find(R"("event":"round")") == std::string::npos) continue;
    ++rounds;
    const auto whole = static_cast<double>(swarm.elements * sizeof(float));
    EXPECT_NEAR(field_of(line, "bytes_received"), 2.0 * whole, 0.01 * whole) << line;
    EXPECT_NEAR(field_of(line, "bytes_sent"), 2.0 * whole, 0.01 * whole) << line;
    EXPECT_THAT(line, HasSubstr(R"("contributors":["site0","site1"])"));
  }
  EXPECT_EQ(rounds, 2U);
  std::remove(events.c_str());
}

// The model of two sites, set up so, is bit for bit the same whether a helper takes part or not.
void expect_the_same_model_as_without(const std::function<void(Swarm&)>& set_up) {
  std::vector<float> with;
  for (const bool helped : {true, false}) {
    Swarm swarm = swarm_of(2, CodecId::kFp32);
    swarm.elements = 50'000;
    swarm.transport = [] { return tcp(); };
    set_up(swarm);
    swarm.start_coordinator();
    const auto helper = helped ? start_helper(swarm) : nullptr;
    for (const Status& status : swarm.run(helped ? train_with_helper(swarm, *helper, 8) : train(8))) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    if (helped) {
      with = swarm.parameters[0]->values();
    } else {
      EXPECT_EQ(with, swarm.parameters[1]->values());
    }
  }
}

TEST(Helper, GivesTheSameModelAsWithoutIt) {
  expect_the_same_model_as_without([](Swarm& swarm) {
    swarm.config.outer_optimizer = OuterId::kNesterov;
    swarm.config.outer_lr = 0.7;
    swarm.adjust = [](SessionOptions& options, std::size_t) {
      options.compared_elements = 30'000;  // the others are buffers
    };
  });
}

// What rounds go by single tensors for, a helper is told.
TEST(Helper, GivesTheSameModelIfRoundsWorkTensorByTensor) {
  expect_the_same_model_as_without([](Swarm& swarm) {
    swarm.config.outer_optimizer = OuterId::kRda;
    swarm.adjust = [](SessionOptions& options, std::size_t) {
      options.model = {{"wte.weight", "float32", {10'000}, TensorKind::kAveraged, {}},
                       {"mask", "float32", {64}, TensorKind::kLeftOut, {}},
                       {"h.0.weight", "float32", {400, 100}, TensorKind::kAveraged, {}}};
    };
  });
}

TEST(Helper, KnowsWhichTensorsTravelAt16Bits) {
  Swarm swarm = hidden_sites(2, CodecId::kInt4);
  swarm.config.keep_fp16 = "weights";
  swarm.start_coordinator();
  const auto helper = start_helper(swarm);
  for (const Status& status : swarm.run(train_with_helper(swarm, *helper, 8)))
    EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(swarm.parameters[0]->values(), swarm.parameters[1]->values());
}

TEST(Helper, LeavesInOrderWhileTheOthersGoOn) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.transport = [] { return tcp(); };
  swarm.start_coordinator();
  auto helper = start_helper(swarm);
  const auto body = [&](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    COLLAB_RETURN_IF_ERROR(wait_for_helper(swarm, *helper));
    for (std::size_t step = 0; step < 12; ++step) {
      train_one_step(values, site, step);
      const Result<StepOutcome> outcome = session.step(8);
      if (!outcome.ok()) return outcome.status();
      if (step == 5 && site == 0) helper->leave();
    }
    return session.finish();
  };
  for (const Status& status : swarm.run(body)) EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(swarm.parameters[0]->values(), swarm.parameters[1]->values());
  EXPECT_TRUE(helper->wait(Duration(0)).ok());
}

TEST(Helper, AskedToLeaveBeforeAnybodyCameItGoesAtOnce) {
  Swarm swarm = swarm_of(2, CodecId::kFp32);
  swarm.transport = [] { return tcp(); };
  swarm.start_coordinator();
  const auto helper = start_helper(swarm);
  helper->leave();
  EXPECT_TRUE(helper->wait(Duration(0)).ok());
}

}  // namespace
}  // namespace collab::testing
