#include "core/protocol/exchange/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace collab::protocol {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kChunk = 1024;

// Three sites, two chunks each, the last one short; site 2 has no weight unless told.
ExchangePlan plan_for(std::uint32_t self, double weight_of_2 = 0, std::uint32_t window = 16) {
  ExchangePlan plan;
  plan.self = SiteId{self};
  plan.chunk_elements = kChunk;
  plan.window = plan.mean_window = window;
  plan.start.round = RoundId{1};
  plan.start.attempt = AttemptId{1};
  plan.start.participants = {{SiteId{0}, "a", 1}, {SiteId{1}, "b", 3}, {SiteId{2}, "c", weight_of_2}};
  plan.start.slices = {{SiteId{0}, {0, 2048}}, {SiteId{1}, {2048, 4096}}, {SiteId{2}, {4096, 5200}}};
  for (std::uint32_t site = 0; site < 3; ++site) {
    if (site != self) plan.peers.push_back(SiteId{site});
  }
  return plan;
}

template <typename A>
std::vector<A> only(const std::vector<ExchangeAction>& actions) {
  std::vector<A> found;
  for (const auto& action : actions) {
    if (const auto* a = std::get_if<A>(&action)) found.push_back(*a);
  }
  return found;
}

std::vector<ExchangeAction> step(Exchange& exchange, const ExchangeEvent& event) {
  const auto actions = exchange.step(event);
  EXPECT_TRUE(actions.ok()) << actions.status().to_string();
  return actions.ok() ? *actions : std::vector<ExchangeAction>{};
}

std::string refusal(Exchange& exchange, const ExchangeEvent& event) {
  const auto actions = exchange.step(event);
  EXPECT_FALSE(actions.ok());
  return actions.status().message();
}

TEST(Exchange, SendsInterleavedFromTheNextSiteOn) {
  Exchange exchange(plan_for(1));
  const auto sends = only<SendContribution>(step(exchange, ExchangeStart{}));
  ASSERT_EQ(sends.size(), 4U);
  EXPECT_EQ(sends[0].owner, SiteId{2});
  EXPECT_EQ(sends[1].owner, SiteId{0});
  EXPECT_EQ(sends[2].owner, SiteId{2});
  EXPECT_EQ(sends[3].owner, SiteId{0});
  EXPECT_EQ(sends[2].range, (ElementRange{5120, 5200}));
}

ChunkSent sent_to(std::uint32_t site, wire::ChunkKind kind = wire::ChunkKind::kContribution) {
  return {SiteId{site}, kind};
}

TEST(Exchange, AWindowBoundsWhatIsOnItsWayToEachPeer) {
  Exchange exchange(plan_for(1, 0, 1));
  const auto first = only<SendContribution>(step(exchange, ExchangeStart{}));
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].owner, SiteId{2});
  EXPECT_EQ(first[1].owner, SiteId{0});
  const auto next = only<SendContribution>(step(exchange, sent_to(0)));
  ASSERT_EQ(next.size(), 1U) << "the slow one holds up no other";
  EXPECT_EQ(next[0].owner, SiteId{0});
  EXPECT_TRUE(step(exchange, sent_to(0)).empty());
  EXPECT_EQ(exchange.step(sent_to(0)).status().code(), StatusCode::kInternal);
}

TEST(Exchange, ContributionsGoFirstAndAMeanIsMadeWhenItCanLeave) {
  Exchange exchange(plan_for(0, 0, 1));
  ASSERT_EQ(only<SendContribution>(step(exchange, ExchangeStart{})).size(), 2U);
  for (const ElementRange range : {ElementRange{0, 1024}, ElementRange{1024, 2048}}) {
    EXPECT_TRUE(step(exchange, ContributionArrived{SiteId{1}, range}).empty()) << "all windows are full";
  }
  const auto second = step(exchange, sent_to(1));
  ASSERT_EQ(second.size(), 3U);
  EXPECT_TRUE(std::holds_alternative<SendContribution>(second[0]));
  EXPECT_EQ(only<ReduceChunk>(second).size(), 1U);
  ASSERT_EQ(only<SendMean>(second).size(), 1U);
  EXPECT_EQ(only<SendMean>(second)[0].to, SiteId{1});
  EXPECT_EQ(only<SendMean>(second)[0].range, (ElementRange{0, 1024}));
  EXPECT_TRUE(step(exchange, sent_to(1)).empty()) << "means have a window of their own";
  const auto behind = step(exchange, sent_to(2));
  EXPECT_EQ(only<SendContribution>(behind).size(), 1U);
  EXPECT_TRUE(only<ReduceChunk>(behind).empty()) << "once for all";
  EXPECT_EQ(only<SendMean>(behind).at(0).range, (ElementRange{0, 1024}));
  const auto last = step(exchange, sent_to(1, wire::ChunkKind::kMean));
  EXPECT_EQ(only<ReduceChunk>(last).at(0).range, (ElementRange{1024, 2048}));
  EXPECT_EQ(only<SendMean>(last).at(0).range, (ElementRange{1024, 2048}));
  EXPECT_EQ(exchange.step(sent_to(1)).status().code(), StatusCode::kInternal);
}

TEST(Exchange, TellsHowMuchFollowsOnEachLink) {
  Exchange exchange(plan_for(0, 0, 1));
  const auto first = only<SendContribution>(step(exchange, ExchangeStart{}));
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].more.contributions, 1024U);
  EXPECT_EQ(first[0].more.means, 2048U) << "of our slice";
  EXPECT_EQ(first[1].more.contributions, 80U);
  static_cast<void>(step(exchange, ContributionArrived{SiteId{1}, {0, 1024}}));
  EXPECT_EQ(only<SendMean>(step(exchange, sent_to(1))).at(0).more.means, 1024U);
}

TEST(Exchange, WithoutWeightNothingIsSentButTheOwnSliceIsReduced) {
  Exchange exchange(plan_for(2));
  EXPECT_TRUE(step(exchange, ExchangeStart{}).empty());
  EXPECT_TRUE(step(exchange, ContributionArrived{SiteId{0}, {4096, 5120}}).empty());
  const auto reduced = only<ReduceChunk>(step(exchange, ContributionArrived{SiteId{1}, {4096, 5120}}));
  ASSERT_EQ(reduced.size(), 1U);
  EXPECT_EQ(reduced[0].range, (ElementRange{4096, 5120}));
}

TEST(Exchange, ALoneContributorReducesItsSliceAtOnce) {
  ExchangePlan plan = plan_for(0);
  plan.start.participants = {{SiteId{0}, "a", 1}, {SiteId{1}, "b", 0}, {SiteId{2}, "c", 0}};
  Exchange exchange(plan);
  EXPECT_EQ(only<ReduceChunk>(step(exchange, ExchangeStart{})).size(), 2U);
}

TEST(Exchange, AloneItIsDoneAtOnce) {
  ExchangePlan plan = plan_for(0);
  plan.start.participants = {{SiteId{0}, "a", 1}};
  plan.start.slices = {{SiteId{0}, {0, 5200}}};
  Exchange exchange(plan);
  const auto actions = step(exchange, ExchangeStart{});
  EXPECT_EQ(only<ReduceChunk>(actions).size(), 6U);
  EXPECT_EQ(only<ExchangeDone>(actions).size(), 1U);
  EXPECT_TRUE(exchange.done());
}

TEST(Exchange, DoneWhenOwnIsReducedAndAllOthersAreTaken) {
  Exchange exchange(plan_for(0));
  static_cast<void>(step(exchange, ExchangeStart{}));
  for (const ElementRange range : {ElementRange{0, 1024}, ElementRange{1024, 2048}}) {
    EXPECT_EQ(only<ReduceChunk>(step(exchange, ContributionArrived{SiteId{1}, range})).size(), 1U);
  }
  for (const ElementRange range : {ElementRange{2048, 3072}, ElementRange{3072, 4096}}) {
    EXPECT_EQ(only<TakeMean>(step(exchange, MeanArrived{SiteId{1}, range})).size(), 1U);
  }
  EXPECT_TRUE(only<ExchangeDone>(step(exchange, MeanArrived{SiteId{2}, {5120, 5200}})).empty());
  EXPECT_FALSE(exchange.done());
  EXPECT_EQ(only<ExchangeDone>(step(exchange, MeanArrived{SiteId{2}, {4096, 5120}})).size(), 1U);
  EXPECT_TRUE(exchange.done());
}

TEST(Exchange, RefusesChunksThatDoNotBelongToIt) {
  Exchange exchange(plan_for(0));
  static_cast<void>(step(exchange, ExchangeStart{}));
  EXPECT_THAT(refusal(exchange, ContributionArrived{SiteId{1}, {2048, 3072}}), HasSubstr("[round.chunk-range]"));
  EXPECT_THAT(refusal(exchange, ContributionArrived{SiteId{1}, {0, 512}}), HasSubstr("[round.chunk-range]"));
  EXPECT_THAT(refusal(exchange, ContributionArrived{SiteId{2}, {0, 1024}}), HasSubstr("[round.chunk-not-contributor]"));
  EXPECT_THAT(refusal(exchange, ContributionArrived{SiteId{0}, {0, 1024}}), HasSubstr("[round.chunk-not-contributor]"));
  EXPECT_THAT(refusal(exchange, MeanArrived{SiteId{1}, {0, 1024}}), HasSubstr("[round.mean-not-theirs]"));
  EXPECT_THAT(refusal(exchange, MeanArrived{SiteId{1}, {2048, 2049}}), HasSubstr("[round.mean-range]"));
  EXPECT_THAT(refusal(exchange, MeanArrived{SiteId{2}, {2048, 3072}}), HasSubstr("[round.mean-not-owner]"));
  static_cast<void>(step(exchange, ContributionArrived{SiteId{1}, {0, 1024}}));
  EXPECT_THAT(refusal(exchange, ContributionArrived{SiteId{1}, {0, 1024}}), HasSubstr("[round.chunk-twice]"));
  static_cast<void>(step(exchange, MeanArrived{SiteId{1}, {2048, 3072}}));
  EXPECT_THAT(refusal(exchange, MeanArrived{SiteId{1}, {2048, 3072}}), HasSubstr("[round.mean-twice]"));
  EXPECT_EQ(exchange.step(ExchangeStart{}).status().code(), StatusCode::kInternal);
}

TEST(Exchange, KeepsChunksThatComeBeforeTheStart) {
  Exchange exchange(plan_for(2));
  EXPECT_TRUE(step(exchange, ContributionArrived{SiteId{0}, {4096, 5120}}).empty());
  EXPECT_TRUE(step(exchange, ContributionArrived{SiteId{1}, {4096, 5120}}).empty());
  EXPECT_EQ(only<ReduceChunk>(step(exchange, ExchangeStart{})).size(), 1U);
}

TEST(Exchange, ReducesHeldChunksAndResendsNoDeliveredOnes) {
  ExchangePlan plan = plan_for(0);
  plan.held = {{SiteId{1}, {0, 1024}}, {SiteId{1}, {1024, 1500}}};          // the second is no chunk of this attempt
  plan.delivered = {{SiteId{1}, {2048, 3072}}, {SiteId{2}, {3072, 4096}}};  // nor was this one sent to its owner
  Exchange exchange(plan);
  const auto actions = step(exchange, ExchangeStart{});
  const auto reduced = only<ReduceChunk>(actions);
  ASSERT_EQ(reduced.size(), 1U);
  EXPECT_EQ(reduced[0].range, (ElementRange{0, 1024}));
  std::vector<std::uint64_t> sent;
  for (const auto& send : only<SendContribution>(actions)) sent.push_back(send.range.begin);
  EXPECT_THAT(sent, testing::UnorderedElementsAre(3072U, 4096U, 5120U));
  EXPECT_TRUE(exchange.owns({1024, 2048}));
  EXPECT_FALSE(exchange.owns({1024, 1500}));
}

TEST(Exchange, KnowsTheContributorsOfMissingParts) {
  ExchangePlan plan = plan_for(0, 1);
  plan.start.slices = {{SiteId{0}, {0, 1024}}, {SiteId{1}, {1024, 2048}}, {SiteId{2}, {2048, 3072}}};
  Exchange exchange(plan);
  static_cast<void>(step(exchange, ExchangeStart{}));
  EXPECT_FALSE(exchange.missing(9).means);
  EXPECT_THAT(exchange.missing(9).sites, ElementsAre(SiteId{1}, SiteId{2})) << "their contributions to our slice";
  EXPECT_THAT(exchange.missing(1).sites, ElementsAre(SiteId{1})) << "at most so many";
  static_cast<void>(step(exchange, ContributionArrived{SiteId{1}, {0, 1024}}));
  EXPECT_THAT(exchange.missing(9).sites, ElementsAre(SiteId{2}));
  static_cast<void>(step(exchange, ContributionArrived{SiteId{2}, {0, 1024}}));
  EXPECT_TRUE(exchange.missing(9).means) << "contributions are all here";
  EXPECT_THAT(exchange.missing(9).sites, ElementsAre(SiteId{1}, SiteId{2}));
  static_cast<void>(step(exchange, MeanArrived{SiteId{2}, {2048, 3072}}));
  EXPECT_THAT(exchange.missing(9).sites, ElementsAre(SiteId{1}));
}

TEST(Exchange, LacksALostSitesContributionUnlessItIsHeldWhole) {
  ExchangePlan plan = plan_for(0);
  plan.start.participants[1].here = false;
  plan.start.slices = {{SiteId{0}, {0, 2048}}};
  plan.held = {{SiteId{1}, {0, 1024}}};
  EXPECT_EQ(Exchange(plan).lacks(), SiteId{1});
  plan.held.push_back({SiteId{1}, {1024, 2048}});
  Exchange whole(plan);
  EXPECT_EQ(whole.lacks(), std::nullopt);
  EXPECT_EQ(only<ExchangeDone>(step(whole, ExchangeStart{})).size(), 1U);
}

}  // namespace
}  // namespace collab::protocol
