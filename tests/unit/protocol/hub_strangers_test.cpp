// Hub and client against peers that say anything that can be said, in any order: they refuse or ignore it, hold a
// bounded amount and always know when to look again.
#include <gtest/gtest.h>

#include "core/base/prng.h"
#include "core/protocol/collectives/collective_hub.h"
#include "core/protocol/collectives/hub_client.h"

namespace collab::protocol {
namespace {

constexpr std::uint32_t kRanks = 3;

// Few values of each field, so that what comes often fits together.
class Babble {
 public:
  explicit Babble(std::uint64_t seed) : prng_(seed) {}

  [[nodiscard]] std::uint64_t pick(std::uint64_t below) { return prng_.below(below); }
  [[nodiscard]] GroupId group() { return GroupId(1 + pick(3)); }
  [[nodiscard]] std::uint64_t step() { return 1 + pick(4); }
  [[nodiscard]] std::uint32_t member() { return static_cast<std::uint32_t>(pick(5)); }
  [[nodiscard]] wire::Ballot ballot() { return {pick(3), pick(3)}; }
  [[nodiscard]] wire::Epoch epoch() {
    if (!prng_.chance(0.02)) return {};
    return {1 + pick(2), ranks()};
  }
  [[nodiscard]] std::vector<RankId> ranks() {
    std::vector<RankId> chosen;
    for (std::uint32_t i = 0; i < kRanks; ++i) {
      if (prng_.chance(0.7)) chosen.emplace_back(i);
    }
    if (chosen.empty()) chosen.emplace_back(0);
    return chosen;
  }
  [[nodiscard]] BufferPtr payload() { return prng_.chance(0.5) ? nullptr : pool_->take(1 + pick(64)); }

  [[nodiscard]] wire::Message message() {
    switch (pick(16)) {
      case 0:
        return wire::Enter{"default",
                           7,
                           RankId(static_cast<std::uint32_t>(pick(kRanks))),
                           {"a", "b"},
                           {0, 0, 1},
                           1 + static_cast<std::uint32_t>(pick(2)),
                           prng_.chance(0.3),
                           AcceptorId(prng_.chance(0.95) ? 1 : 2),
                           ballot(),
                           epoch(),
                           ballot(),
                           epoch(),
                           {{group(), pick(3)}},
                           {{group(), step(), ballot()}},
                           prng_.chance(0.1) ? std::vector{group()} : std::vector<GroupId>()};
      case 1: {
        const bool all = prng_.chance(0.7);
        const std::vector<RankId> members = all ? std::vector{RankId(0), RankId(1), RankId(2)} : ranks();
        return wire::Assemble{group(), members, members.size() == 2 ? group() : GroupId(), member()};
      }
      case 2: return wire::Disband{group()};
      case 3:
      case 4: {
        wire::Contribute contribute{group(),
                                    step(),
                                    pick(3),
                                    prng_.chance(0.9) ? "sum" : "gather",
                                    "",
                                    static_cast<wire::Absence>(pick(3)),
                                    member(),
                                    prng_.chance(0.5),
                                    prng_.chance(0.1),
                                    static_cast<std::uint32_t>(pick(3000)),
                                    {}};
        if (prng_.chance(0.3)) contribute.splits.assign(kRanks, pick(20));
        return contribute;
      }
      case 5: return wire::ResultAck{group(), step(), ballot()};
      case 6: return wire::ResolveSender{group(), member()};
      case 7: return wire::Part{group(), step(), member()};
      case 8:
        return wire::StepResult{group(),           step(),     ballot(),
                                prng_.chance(0.5), {member()}, prng_.chance(0.5) ? "no" : ""};
      case 9: return wire::Stands{group(), step()};
      case 10:
        return prng_.chance(0.05) ? wire::Message(wire::Leave{"bye"})
                                  : wire::SenderResolved{group(), member(), member()};
      case 11: return wire::AcceptedEpoch{ballot(), pick(3)};
      case 12: return wire::AcceptEpoch{ballot(), epoch()};
      case 13: return wire::ChosenEpoch{epoch()};
      case 14: return prng_.chance(0.3) ? wire::Message(wire::PrepareWorld{ballot()}) : wire::Notice{"minority", "few"};
      default:
        return prng_.chance(0.5) ? wire::Message(wire::Heartbeat{1, false})
                                 : wire::Entered{100, 2000, ballot(), epoch()};
    }
  }

 private:
  Prng prng_;
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
};

TEST(HubStrangers, TheHubSurvivesRandomMessages) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Babble babble(seed);
    CollectiveHub hub({"default", std::chrono::milliseconds(100), std::chrono::seconds(2), std::chrono::seconds(3)});
    TimePoint now{};
    for (int i = 0; i < 3000; ++i) {
      now += Duration(static_cast<std::int64_t>(babble.pick(20'000)));
      const LinkId link(1 + babble.pick(5));
      const bool cut = babble.pick(200) == 0;
      wire::Message message = babble.message();
      // Mostly a link's own rank: one of another is refused.
      if (auto* enter = std::get_if<wire::Enter>(&message); enter != nullptr && babble.pick(50) != 0) {
        enter->rank = RankId(static_cast<std::uint32_t>(link.value % kRanks));
      }
      const HubEvent event =
          cut ? HubEvent(Closed{link, unavailable("cut")}) : HubReceived{link, std::move(message), babble.payload()};
      for (const HubAction& action : hub.step(now, event)) {
        const auto* hangup = std::get_if<CloseLink>(&action);
        if (hangup != nullptr) (void)hub.step(now, Closed{hangup->link, {}});
      }
      if (now >= hub.next_deadline()) (void)hub.step(now, Tick{});
      ASSERT_GT(hub.next_deadline(), now) << "seed " << seed << ": it would never sleep";
      ASSERT_LT(hub.bytes_held(), 3U * 64U * kRanks * 64U + 1U);
    }
  }
}

TEST(HubStrangers, TheClientSurvivesRandomMessages) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Babble babble(seed);
    wire::Enter self{"default", 7, RankId(0), {"a", "b"}, {0, 0, 1}, 1, false, AcceptorId(1)};
    HubClient client(
        {self, {"x", "y"}, std::chrono::milliseconds(100), std::chrono::seconds(2), std::chrono::seconds(3)});
    TimePoint now{};
    std::uint64_t links = 0;
    std::uint64_t asked = 0;
    std::uint64_t answered = 0;
    const auto feed = [&](const HubClientEvent& event) {
      std::vector<HubClientEvent> next;
      for (const HubClientAction& action : client.step(now, event)) {
        if (std::holds_alternative<DialHub>(action)) next.emplace_back(HubConnected{LinkId(++links)});
        const auto* done = std::get_if<HubExchanged>(&action);
        if (done == nullptr) continue;
        ++answered;
        for (const std::uint32_t member : done->absent) ASSERT_LT(member, kRanks);
      }
      for (const HubClientEvent& each : next) (void)client.step(now, each);
    };
    feed(HubBegin{});
    for (std::uint64_t id = 1; id <= 3; ++id) feed(OpenGroup{GroupId(id), {RankId(0), RankId(1), RankId(2)}, {}, 0});
    for (int i = 0; i < 3000; ++i) {
      now += Duration(static_cast<std::int64_t>(babble.pick(20'000)));
      if (babble.pick(20) == 0) {
        HubRequest request;
        request.id = ++asked;
        request.group = babble.group();
        request.operation = "sum";
        request.timeout = std::chrono::seconds(1);
        feed(request);
      }
      feed(HubReceived{LinkId(links), babble.message(), babble.payload()});
      if (now >= client.next_deadline()) feed(Tick{});
      ASSERT_GT(client.next_deadline(), now) << "seed " << seed << ": it would never sleep";
    }
    feed(HubLeave{"the end"});
    EXPECT_EQ(answered, asked) << "seed " << seed;
  }
}

}  // namespace
}  // namespace collab::protocol
