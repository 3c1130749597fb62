// Which part of an anchor is asked of which source, as sources come, go, lie and keep silent.
#include "core/protocol/site/anchor_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using wire::ChunkKind;

constexpr SiteId kParis{0};
constexpr SiteId kOslo{1};
constexpr SiteId kLima{2};

// 95 elements in tiles of 10, asked for by twos: 5 parts, 3 lists.
class Fetch : public testing::Test {
 protected:
  explicit Fetch(bool outer_state = false) {
    plan.run = RunId{7};
    plan.round = RoundId{4};
    plan.elements = 95;
    plan.outer_state = outer_state;
    plan.tile_elements = 10;
    plan.part_elements = 20;
    plan.list_elements = 40;
    plan.window = 2;
    DigestChain anchor;
    DigestChain outer;
    for (std::uint64_t i = 0; i < 10; ++i) anchor.add(tile(i, false));
    for (std::uint64_t i = 0; i < 10; ++i) outer.add(tile(i, true));
    plan.digest = digest_of_state(anchor.finish(), outer_state ? outer.finish() : Digest{});
  }

  static Digest tile(std::uint64_t index, bool outer) { return {index + 1, outer ? 2U : 1U}; }
  static std::vector<Digest> tiles(ChunkKind kind, ElementRange range) {
    const bool outer = kind == ChunkKind::kOuter || kind == ChunkKind::kOuterDigests;
    std::vector<Digest> right;
    for (std::uint64_t at = range.begin; at < range.end; at += 10) right.push_back(tile(at / 10, outer));
    return right;
  }

  using Asked = std::vector<std::pair<SiteId, wire::FetchAnchor>>;

  // The questions of this step, which are kept as not answered yet.
  Asked step(const AnchorFetchEvent& event) {
    if (!fetch) fetch.emplace(plan);
    Asked asked;
    for (const AnchorFetchAction& action : fetch->step(event)) {
      if (const auto* ask = std::get_if<AskPart>(&action)) {
        asked.emplace_back(ask->of, ask->message);
        open.emplace_back(ask->of, ask->message);
        EXPECT_EQ(taken.count({ask->message.kind, ask->message.range}), 0U) << "asked for what is here";
      }
      if (const auto* part = std::get_if<TakePart>(&action)) {
        EXPECT_TRUE(taken.insert({part->kind, part->range}).second) << "taken twice";
      }
      if (const auto* part = std::get_if<TakeHeld>(&action)) {
        EXPECT_TRUE(taken.insert({part->kind, part->range}).second) << "taken twice";
        ++held;
      }
      if (const auto* source = std::get_if<SourceWrong>(&action)) wrong[source->site] = source->reason;
      if (std::holds_alternative<AnchorWhole>(action)) ++whole;
    }
    return asked;
  }
  Asked answer(SiteId from, const wire::FetchAnchor& part) {
    return step(PartArrived{from, part.kind, part.range, tiles(part.kind, part.range)});
  }
  // Answers what `from` was asked first, if anything.
  bool answer_next(SiteId from) {
    for (auto question = open.begin(); question != open.end(); ++question) {
      if (question->first != from) continue;
      const wire::FetchAnchor part = question->second;
      open.erase(question);
      static_cast<void>(answer(from, part));
      return true;
    }
    return false;
  }
  void give_lists(SiteId from) {
    while (!open.empty() && open.front().second.kind == ChunkKind::kAnchorDigests) {
      ASSERT_TRUE(answer_next(from));
    }
  }
  void lose(SiteId site) {
    std::erase_if(open, [&](const auto& question) { return question.first == site; });
    static_cast<void>(step(SourceLost{site}));
  }
  [[nodiscard]] std::size_t open_at(SiteId site) const {
    return static_cast<std::size_t>(std::ranges::count_if(open, [&](const auto& q) { return q.first == site; }));
  }

  AnchorFetchPlan plan;
  std::optional<AnchorFetch> fetch;
  Asked open;
  std::set<std::pair<ChunkKind, ElementRange>> taken;
  std::map<SiteId, std::string> wrong;
  int whole = 0;
  int held = 0;
};

TEST_F(Fetch, TheDigestsThenEveryPartOnce) {
  const Asked lists = step(SourceAdded{kParis});
  ASSERT_EQ(lists.size(), 2U) << "the window";
  EXPECT_EQ(lists[0].second, (wire::FetchAnchor{RunId{7}, RoundId{4}, ChunkKind::kAnchorDigests, {0, 40}}));
  while (answer_next(kParis)) {
  }
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(taken.size(), 5U);
  EXPECT_TRUE(wrong.empty());
  EXPECT_EQ(fetch->progress().here, 95U);
}

TEST_F(Fetch, FetchesFromSeveralSourcesAtOnce) {
  static_cast<void>(step(SourceAdded{kParis}));
  give_lists(kParis);
  EXPECT_EQ(open_at(kParis), 2U);
  EXPECT_EQ(step(SourceAdded{kOslo}).size(), 2U);
  std::set<ElementRange> ranges;
  for (const auto& [site, part] : open) EXPECT_TRUE(ranges.insert(part.range).second);
  while (answer_next(kParis) || answer_next(kOslo)) {
  }
  EXPECT_EQ(whole, 1);
}

TEST_F(Fetch, ChunksOfALostSourceComeFromAnotherOnce) {
  static_cast<void>(step(SourceAdded{kParis}));
  static_cast<void>(step(SourceAdded{kOslo}));
  while (open_at(kParis) > 0 && open.front().second.kind == ChunkKind::kAnchorDigests) {
    static_cast<void>(answer_next(kParis));
  }
  std::erase_if(open, [](const auto& question) { return question.second.kind == ChunkKind::kAnchorDigests; });
  ASSERT_TRUE(answer_next(kOslo));
  lose(kOslo);
  while (answer_next(kParis)) {
  }
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(taken.size(), 5U);
}

TEST_F(Fetch, ContinuesWithTheMissingPartsWhenASourceComesBack) {
  static_cast<void>(step(SourceAdded{kParis}));
  give_lists(kParis);
  ASSERT_TRUE(answer_next(kParis));
  lose(kParis);
  EXPECT_EQ(fetch->progress().here, 20U);
  static_cast<void>(step(SourceAdded{kLima}));
  EXPECT_EQ(open.front().second.kind, ChunkKind::kAnchor) << "the digests are known";
  while (answer_next(kLima)) {
  }
  EXPECT_EQ(whole, 1);
}

TEST_F(Fetch, ASourceWithWrongBytesIsNamedAndReplaced) {
  static_cast<void>(step(SourceAdded{kParis}));
  give_lists(kParis);
  static_cast<void>(step(SourceAdded{kOslo}));
  const auto question = std::ranges::find_if(open, [](const auto& q) { return q.first == kOslo; });
  const wire::FetchAnchor part = question->second;
  std::vector<Digest> other = tiles(part.kind, part.range);
  other.back() = {77, 77};
  static_cast<void>(step(PartArrived{kOslo, part.kind, part.range, other}));
  EXPECT_THAT(wrong.at(kOslo), HasSubstr("its elements [" + std::to_string(part.range.begin)));
  EXPECT_EQ(taken.count({part.kind, part.range}), 0U);
  std::erase_if(open, [](const auto& q) { return q.first == kOslo; });
  while (answer_next(kParis)) {
  }
  EXPECT_EQ(whole, 1);
}

TEST_F(Fetch, ASourceWithAnotherAnchorIsNamedBeforeAnythingIsTaken) {
  const Asked lists = step(SourceAdded{kParis});
  static_cast<void>(step(SourceAdded{kOslo}));
  static_cast<void>(step(PartArrived{kParis, ChunkKind::kAnchorDigests, {0, 40}, std::vector<Digest>(4)}));
  static_cast<void>(step(PartArrived{kParis, ChunkKind::kAnchorDigests, {40, 80}, std::vector<Digest>(4)}));
  static_cast<void>(step(PartArrived{kParis, ChunkKind::kAnchorDigests, {80, 95}, std::vector<Digest>(2)}));
  EXPECT_THAT(wrong.at(kParis), HasSubstr("its anchor has the digest"));
  EXPECT_TRUE(taken.empty());
  std::erase_if(open, [](const auto& q) { return q.first == kParis; });
  while (answer_next(kOslo)) {
  }
  EXPECT_EQ(whole, 1);
}

TEST_F(Fetch, AListOfAnotherLengthIsWrong) {
  static_cast<void>(step(SourceAdded{kParis}));
  static_cast<void>(step(PartArrived{kParis, ChunkKind::kAnchorDigests, {0, 40}, std::vector<Digest>(5)}));
  EXPECT_THAT(wrong.at(kParis), HasSubstr("not a list of 4"));
}

TEST_F(Fetch, ASilentSourceHoldsNobodyUp) {
  static_cast<void>(step(SourceAdded{kParis}));  // which never answers
  static_cast<void>(step(SourceAdded{kOslo}));
  while (answer_next(kOslo)) {
  }
  EXPECT_EQ(whole, 1) << "its digests and parts came from the other";
  EXPECT_EQ(open_at(kParis), 4U);
  // What it sends in the end is passed over.
  while (answer_next(kParis)) {
  }
  EXPECT_EQ(whole, 1);
}

TEST_F(Fetch, UnrequestedChunksAreIgnored) {
  static_cast<void>(step(SourceAdded{kParis}));
  EXPECT_TRUE(step(PartArrived{kOslo, ChunkKind::kAnchor, {0, 20}, tiles(ChunkKind::kAnchor, {0, 20})}).empty());
  EXPECT_TRUE(step(PartArrived{kParis, ChunkKind::kAnchor, {0, 20}, tiles(ChunkKind::kAnchor, {0, 20})}).empty());
  give_lists(kParis);
  for (const ElementRange range : {ElementRange{60, 80}, ElementRange{0, 10}, ElementRange{1U << 30, 1U << 31}}) {
    EXPECT_TRUE(step(PartArrived{kParis, ChunkKind::kAnchor, range, {}}).empty());
  }
  EXPECT_TRUE(step(PartArrived{kParis, ChunkKind::kOuter, {0, 20}, {}}).empty());
  EXPECT_TRUE(wrong.empty());
  EXPECT_TRUE(taken.empty());
}

TEST_F(Fetch, HeldChunksAreNotFetched) {
  plan.held_anchor = tiles(ChunkKind::kAnchor, {0, 95});
  plan.held_anchor[3] = {77, 77};  // of the part [20, 40)
  static_cast<void>(step(SourceAdded{kParis}));
  give_lists(kParis);
  EXPECT_EQ(held, 4);
  ASSERT_EQ(open.size(), 1U);
  EXPECT_EQ(open[0].second.range, (ElementRange{20, 40}));
  ASSERT_TRUE(answer_next(kParis));
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(fetch->progress().held, 75U);
}

class FetchWithOuterState : public Fetch {
 protected:
  FetchWithOuterState() : Fetch(true) {}
};

TEST_F(FetchWithOuterState, TakesAnchorAndOuterState) {
  plan.held_outer = tiles(ChunkKind::kOuter, {0, 95});
  plan.held_outer[0] = {77, 77};
  static_cast<void>(step(SourceAdded{kParis}));
  while (answer_next(kParis)) {
  }
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(taken.size(), 10U);
  EXPECT_EQ(held, 4);
  EXPECT_EQ(fetch->progress().elements, 190U);
}

}  // namespace
}  // namespace collab::protocol
