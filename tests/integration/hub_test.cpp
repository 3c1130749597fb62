// Ranks and a coordinator on real threads and sockets: parts of every size, a rank that vanishes, one that leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "collab/session.h"
#include "core/runtime/hub_link.h"
#include "transport/tcp/tcp_transport.h"

namespace collab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr GroupId kGroup{5};

class MeetingSeatTest : public ::testing::Test {
 protected:
  Config config;
  std::unique_ptr<CoordinatorServer> server;
  std::vector<std::unique_ptr<MeetingSeat>> seats;

  [[nodiscard]] static std::unique_ptr<Transport> transport() {
    TcpOptions options;
    options.link_grace = std::chrono::seconds(2);
    return make_tcp_transport(options).value();
  }

  void SetUp() override {
    config.link_grace = std::chrono::seconds(2);
    config.heartbeat = std::chrono::milliseconds(200);
    config.join_timeout = std::chrono::seconds(20);
    server = serve_coordinator(config, transport(), "127.0.0.1:0").value();
    seats.resize(3);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([this, rank] {
        MeetingSeat::Options options{config, 9, rank, {"paris", "oslo"}, {0, 1, 1}, {server->address()}};
        auto seat = MeetingSeat::enter(std::move(options), transport());
        ASSERT_TRUE(seat.ok()) << seat.status().message();
        seats[rank] = std::move(*seat);
        seats[rank]->open({kGroup, {RankId(0), RankId(1), RankId(2)}, {}, 0});
      });
    }
  }

  [[nodiscard]] protocol::MeetingExchanged call(std::uint32_t rank, wire::Absence absence, std::size_t bytes) {
    protocol::MeetingRequest request;
    request.group = kGroup;
    request.operation = "all_gather";
    request.absence = absence;
    request.timeout = std::chrono::seconds(20);
    if (bytes > 0) {
      BufferPtr buffer = seats[rank]->take(bytes);
      std::memset(buffer->bytes().data(), static_cast<int>(rank + 1), bytes);
      request.payload = protocol::whole(buffer);
    }
    return seats[rank]->exchange(std::move(request));
  }
  [[nodiscard]] std::vector<protocol::MeetingExchanged> all(const std::vector<std::uint32_t>& ranks,
                                                            wire::Absence absence, std::size_t bytes) {
    std::vector<protocol::MeetingExchanged> outcomes(ranks.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] { outcomes[i] = call(ranks[i], absence, bytes); });
    }
    threads.clear();
    return outcomes;
  }
};

TEST_F(MeetingSeatTest, PartsOfEverySizeArrive) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{70'000}, std::size_t{9} << 20}) {
    for (const auto& outcome : all({0, 1, 2}, wire::Absence::kFails, bytes)) {
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    }
    const auto outcomes = all({0, 1, 2}, wire::Absence::kFails, bytes);
    EXPECT_EQ(outcomes[0].parts[2].bytes, bytes);
    if (bytes == 0) continue;
    const auto last = outcomes[0].parts[2].buffer->bytes()[outcomes[0].parts[2].offset + bytes - 1];
    EXPECT_EQ(std::to_integer<int>(last), 3);
  }
}

TEST_F(MeetingSeatTest, TheOthersGoOnWithoutOneThatVanishes) {
  (void)all({0, 1, 2}, wire::Absence::kGoesOn, 8);
  seats[2].reset();  // says goodbye only to nobody: its process has ended
  const auto begun = std::chrono::steady_clock::now();
  for (const auto& outcome : all({0, 1}, wire::Absence::kGoesOn, 8)) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_THAT(outcome.absent, ElementsAre(2U));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
  for (const auto& outcome : all({0, 1}, wire::Absence::kFails, 8)) {
    EXPECT_THAT(outcome.status.message(), HasSubstr("rank 2 of oslo"));
  }
}

TEST_F(MeetingSeatTest, TheCoordinatorWaitsForRanksThatHaveNotLeft) {
  EXPECT_THAT(server->wait_until_empty(std::chrono::milliseconds(10)).message(), HasSubstr("rank 0 of paris"));
  for (auto& seat : seats) seat->leave("the end");
  EXPECT_TRUE(server->wait_until_empty(std::chrono::seconds(5)).ok());
  EXPECT_THAT(call(0, wire::Absence::kFails, 1).status.message(), HasSubstr("has left"));
}

TEST_F(MeetingSeatTest, WithoutACoordinatorItFailsInWordsWithinTheGrace) {
  server.reset();
  const auto begun = std::chrono::steady_clock::now();
  for (const auto& outcome : all({0, 1, 2}, wire::Absence::kGoesOn, 8)) {
    EXPECT_THAT(outcome.status.message(), HasSubstr("no coordinator answers"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
}

}  // namespace
}  // namespace collab
