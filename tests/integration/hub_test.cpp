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

class HubLinkTest : public ::testing::Test {
 protected:
  Config config;
  std::unique_ptr<CoordinatorServer> server;
  std::vector<std::unique_ptr<HubLink>> hub_links;

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
    hub_links.resize(3);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([this, rank] {
        HubLink::Options options{config, 9, rank, {"paris", "oslo"}, {0, 1, 1}, {server->address()}};
        auto hub_link = HubLink::enter(std::move(options), transport());
        ASSERT_TRUE(hub_link.ok()) << hub_link.status().message();
        hub_links[rank] = std::move(*hub_link);
        hub_links[rank]->open({kGroup, {RankId(0), RankId(1), RankId(2)}, {}, 0});
      });
    }
  }

  [[nodiscard]] protocol::HubExchanged call(std::uint32_t rank, wire::Absence absence, std::size_t bytes) {
    protocol::HubRequest request;
    request.group = kGroup;
    request.operation = "all_gather";
    request.absence = absence;
    request.timeout = std::chrono::seconds(20);
    if (bytes > 0) {
      BufferPtr buffer = hub_links[rank]->take(bytes);
      std::memset(buffer->bytes().data(), static_cast<int>(rank + 1), bytes);
      request.payload = protocol::whole(buffer);
    }
    return hub_links[rank]->exchange(std::move(request));
  }
  [[nodiscard]] std::vector<protocol::HubExchanged> all(const std::vector<std::uint32_t>& ranks, wire::Absence absence,
                                                        std::size_t bytes) {
    std::vector<protocol::HubExchanged> results(ranks.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] { results[i] = call(ranks[i], absence, bytes); });
    }
    threads.clear();
    return results;
  }
};

TEST_F(HubLinkTest, PartsOfEverySizeArrive) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{70'000}, std::size_t{9} << 20}) {
    for (const auto& result : all({0, 1, 2}, wire::Absence::kFails, bytes)) {
      ASSERT_TRUE(result.status.ok()) << result.status.message();
    }
    const auto results = all({0, 1, 2}, wire::Absence::kFails, bytes);
    EXPECT_EQ(results[0].parts[2].bytes, bytes);
    if (bytes == 0) continue;
    const auto last = results[0].parts[2].buffer->bytes()[results[0].parts[2].offset + bytes - 1];
    EXPECT_EQ(std::to_integer<int>(last), 3);
  }
}

TEST_F(HubLinkTest, TheOthersContinueWithoutARankThatVanishes) {
  (void)all({0, 1, 2}, wire::Absence::kProceeds, 8);
  hub_links[2].reset();  // says goodbye only to nobody: its process has ended
  const auto begun = std::chrono::steady_clock::now();
  for (const auto& result : all({0, 1}, wire::Absence::kProceeds, 8)) {
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_THAT(result.absent, ElementsAre(2U));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10)) << "half the call's time-out";
  for (const auto& result : all({0, 1}, wire::Absence::kFails, 8)) {
    EXPECT_THAT(result.status.message(), HasSubstr("rank 2 of oslo"));
  }
}

TEST_F(HubLinkTest, TheCoordinatorWaitsForRanksThatHaveNotLeft) {
  EXPECT_THAT(server->wait_until_empty(std::chrono::milliseconds(10)).message(), HasSubstr("rank 0 of paris"));
  for (auto& hub_link : hub_links) hub_link->leave("the end");
  EXPECT_TRUE(server->wait_until_empty(std::chrono::seconds(5)).ok());
  EXPECT_THAT(call(0, wire::Absence::kFails, 1).status.message(), HasSubstr("has left"));
}

TEST_F(HubLinkTest, CallsFailWithAMessageWithinTheGraceIfTheCoordinatorIsGone) {
  server.reset();
  const auto begun = std::chrono::steady_clock::now();
  for (const auto& result : all({0, 1, 2}, wire::Absence::kProceeds, 8)) {
    EXPECT_THAT(result.status.message(), HasSubstr("no coordinator answers"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(15)) << "before the call's time-out";
}

}  // namespace
}  // namespace collab
