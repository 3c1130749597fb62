// Anchors from and to other sites; the other end is played by the test, or by another AnchorStreams.
#include "core/runtime/data/anchor_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <numeric>

#include "core/base/digest.h"
#include "tests/unit/runtime/noting_transport.h"
#include "tests/unit/runtime/private_arena.h"

namespace collab {
namespace {

using ::testing::IsEmpty;

constexpr std::uint64_t kElements = 1'000;
constexpr std::uint64_t kTile = 64;
constexpr LinkId kLink{5};
constexpr SiteId kSource{2};
constexpr RunId kRun{3};
constexpr RoundId kRound{4};

// One site's end.
struct End {
  explicit End(bool outer_state = true) : transport(), sender(transport) {
    arena = private_arena(kElements, outer_state);
    streams.emplace(AnchorStreams::Parts{&clock, arena.get(), &sender, nullptr,
                                         [this](const SealedAnchor& anchor) { arena->seal(anchor); }},
                    kElements, kTile);
  }
  SealedAnchor holds(RoundId round, float first) {
    std::iota(arena->scratch().begin(), arena->scratch().end(), first);
    std::iota(arena->outer().begin(), arena->outer().end(), -first);
    const SealedAnchor anchor{kRun, round, state_digest(*arena, arena->scratch(), kTile)};
    arena->seal(anchor);
    return anchor;
  }
  // The next message of that kind that was sent.
  template <typename T>
  std::optional<T> next() {
    if (transport.sent.empty()) return std::nullopt;
    Result<wire::Message> message = wire::decode(transport.sent.front().message.head);
    EXPECT_TRUE(message.ok());
    auto* found = message.ok() ? std::get_if<T>(&*message) : nullptr;
    if (found == nullptr) return std::nullopt;
    last = std::move(transport.sent.front());
    transport.sent.pop_front();
    return *found;
  }

  SteadyClock clock;
  testing::NotingTransport transport;
  ChunkSender sender;
  std::unique_ptr<ArenaWriter> arena;
  std::optional<AnchorStreams> streams;
  testing::NotingTransport::Sent last;
};

// Carries questions and answers until neither has more; what the fetching end was told.
AnchorStreams::Events carry(End& from, End& to, bool damage = false) {
  AnchorStreams::Events events;
  for (bool more = true; more;) {
    more = false;
    while (const auto asked = to.next<wire::FetchAnchor>()) {
      more = true;
      EXPECT_TRUE(from.streams->send({*asked, kLink}).ok());
    }
    while (const auto chunk = from.next<wire::Chunk>()) {
      more = true;
      BufferPtr payload = from.last.message.payload;
      if (damage && chunk->kind == wire::ChunkKind::kAnchor) payload->bytes()[0] ^= std::byte{1};
      for (auto& event : to.streams->arrived({kLink, kSource, *chunk, payload})) events.push_back(std::move(event));
      EXPECT_TRUE(from.streams->sent(from.last.token));
    }
  }
  return events;
}

TEST(AnchorStreams, AWholeAnchorIsSealedWithItsOuterState) {
  End from;
  End to;
  const SealedAnchor anchor = from.holds(kRound, 7.0F);
  to.streams->receive({kRun, kRound, anchor.digest});
  EXPECT_THAT(to.streams->add_source({kSource, "paris", kLink}), IsEmpty());
  const AnchorStreams::Events events = carry(from, to);
  ASSERT_EQ(events.size(), 1U);
  const auto* place = std::get_if<protocol::AnchorInPlace>(&events[0]);
  ASSERT_NE(place, nullptr);
  EXPECT_EQ(place->digest, anchor.digest);
  EXPECT_EQ(to.arena->sealed()->round, kRound);
  EXPECT_TRUE(std::ranges::equal(to.arena->anchor(), from.arena->anchor()));
  EXPECT_TRUE(std::ranges::equal(to.arena->outer(), from.arena->outer()));
  EXPECT_FALSE(to.streams->outer_overwritten());
  EXPECT_GT(from.sender.bytes(), 2 * kElements * sizeof(float));
}

TEST(AnchorStreams, APartThatIsNotWhatWasAgreedOnAccusesItsSource) {
  End from;
  End to;
  const SealedAnchor anchor = from.holds(kRound, 7.0F);
  to.streams->receive({kRun, kRound, anchor.digest});
  EXPECT_THAT(to.streams->add_source({kSource, "paris", kLink}), IsEmpty());
  const AnchorStreams::Events events = carry(from, to, true);
  ASSERT_FALSE(events.empty());
  const auto* wrong = std::get_if<protocol::AnchorSourceWrong>(&events[0]);
  ASSERT_NE(wrong, nullptr);
  EXPECT_EQ(wrong->site, kSource);
  EXPECT_NE(wrong->reason.find("damaged on the way"), std::string::npos);
  EXPECT_FALSE(to.arena->sealed().has_value());
}

TEST(AnchorStreams, RequestsForAReplacedAnchorAreRefusedAsSuch) {
  End from;
  End to;
  const SealedAnchor anchor = from.holds(kRound, 7.0F);
  to.streams->receive({kRun, kRound, anchor.digest});
  EXPECT_THAT(to.streams->add_source({kSource, "paris", kLink}), IsEmpty());
  const auto asked = to.next<wire::FetchAnchor>();
  ASSERT_TRUE(asked.has_value());
  from.holds(RoundId(5), 9.0F);
  EXPECT_TRUE(from.streams->send({*asked, kLink}).ok());
  const auto moved = from.next<wire::AnchorMoved>();
  ASSERT_TRUE(moved.has_value());
  EXPECT_EQ(moved->round, RoundId(5));
}

TEST(AnchorStreams, ForgottenRequestsAndThoseOfAnotherRoundAreIgnored) {
  End from;
  End to;
  const SealedAnchor anchor = from.holds(kRound, 7.0F);
  to.streams->receive({kRun, kRound, anchor.digest});
  EXPECT_THAT(to.streams->add_source({kSource, "paris", kLink}), IsEmpty());
  to.streams->forget();
  EXPECT_THAT(carry(from, to), IsEmpty());
  EXPECT_FALSE(to.arena->sealed().has_value());
  EXPECT_THAT(to.streams->add_source({kSource, "paris", kLink}), IsEmpty()) << "nothing is wanted";
}

TEST(AnchorStreams, QuestionsBeyondTheModelOrWithoutEndAreRefused) {
  End from(false);
  from.holds(kRound, 7.0F);
  const auto ask = [&](wire::ChunkKind kind, ElementRange range) {
    return from.streams->send({{kRun, kRound, kind, range}, kLink});
  };
  EXPECT_FALSE(ask(wire::ChunkKind::kAnchor, {0, kElements + 1}).ok());
  EXPECT_FALSE(ask(wire::ChunkKind::kOuter, {0, 1}).ok()) << "there is none";
  Status status;
  int taken = 0;
  for (; taken < 1'000 && status.ok(); ++taken) status = ask(wire::ChunkKind::kAnchor, {0, 1});
  EXPECT_FALSE(status.ok());
  EXPECT_GT(taken, 256);
  EXPECT_EQ(from.transport.sent.size(), 32U) << "on their way at once";
  from.streams->link_closed(kLink);
  EXPECT_FALSE(from.streams->sent(from.transport.sent.front().token)) << "a transport does not tell of it any more";
  EXPECT_EQ(from.transport.sent.size(), 32U);
  EXPECT_FALSE(from.streams->sent(999'999));
}

TEST(AnchorStreams, QuestionsForMuchAtOnceAreRefused) {
  End from;
  from.holds(kRound, 7.0F);
  const auto ask = [&](wire::ChunkKind kind, std::uint64_t elements) {
    return from.streams->send({{kRun, kRound, kind, {0, elements}}, kLink});
  };
  for (const auto kind : {wire::ChunkKind::kAnchor, wire::ChunkKind::kOuter}) {
    EXPECT_TRUE(ask(kind, 4 * kTile).ok());
    EXPECT_NE(ask(kind, 4 * kTile + 1).message().find("[join.fetch-too-large]"), std::string::npos);
  }
  EXPECT_TRUE(ask(wire::ChunkKind::kAnchorDigests, kElements).ok()) << "16 of 64 tiles";
}

// Joiners that ask for parts of a megabyte.
class Joiners : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kLarge = std::uint64_t{4} * kDigestChunkElements;
  Joiners() : sender_(transport_), arena_(private_arena(kLarge)) {
    streams_.emplace(AnchorStreams::Parts{&clock_, arena_.get(), &sender_, nullptr, nullptr}, kLarge,
                     kDigestChunkElements);
    arena_->seal({kRun, kRound, {}});
  }
  void ask(std::uint64_t link, int parts) {
    for (int i = 0; i < parts; ++i) {
      EXPECT_TRUE(streams_->send({{kRun, kRound, wire::ChunkKind::kAnchor, {0, kLarge}}, LinkId{link}}).ok());
    }
    note();
  }
  // What has left since; nothing of it has been sent. Without its bytes, of which there are many.
  void note() {
    for (; !transport_.sent.empty(); transport_.sent.pop_front()) {
      tokens_[transport_.sent.front().link].push_back(transport_.sent.front().token);
    }
  }
  [[nodiscard]] std::size_t on_their_way(std::uint64_t link) { return tokens_[LinkId{link}].size(); }

  ManualClock clock_;
  testing::NotingTransport transport_;
  ChunkSender sender_;
  std::unique_ptr<ArenaWriter> arena_;
  std::optional<AnchorStreams> streams_;
  std::map<LinkId, std::vector<std::uint64_t>> tokens_;
};

TEST_F(Joiners, ShareThePartsInFlight) {
  ask(1, 64);
  ask(2, 64);
  EXPECT_EQ(on_their_way(1), 32U);
  EXPECT_EQ(on_their_way(2), 32U) << "the whole of what is shared";
  ask(3, 64);
  EXPECT_EQ(on_their_way(3), 21U) << "a third of it";
  EXPECT_TRUE(streams_->sent(tokens_[LinkId{1}].back()));
  note();
  EXPECT_EQ(on_their_way(1), 32U) << "it has more than its share";
  streams_->link_closed(LinkId{1});
  note();
  EXPECT_EQ(on_their_way(3), 32U) << "there are two by now";
}

TEST_F(Joiners, HoldABoundedTotalEvenIfTheyTakeNothing) {
  constexpr std::uint64_t kMost = AnchorStreams::kMostInAll / (kLarge * sizeof(float));
  for (std::uint64_t link = 1; link <= 200; ++link) ask(link, 40);
  std::size_t in_all = 0;
  for (const auto& [link, tokens] : tokens_) in_all += tokens.size();
  EXPECT_EQ(in_all, kMost);
  EXPECT_EQ(on_their_way(64), 1U) << "one in any case";
  EXPECT_EQ(on_their_way(200), 0U) << "it waits";
  for (std::uint64_t link = 1; link < 200; ++link) {
    streams_->link_closed(LinkId{link});
    note();
  }
  note();
  EXPECT_EQ(on_their_way(200), 32U);
}

// The system answers ENOMEM where there is no memory.
bool is_mapped(std::span<std::byte> memory) { return ::msync(memory.data(), memory.size(), MS_ASYNC) == 0; }

TEST_F(Joiners, LeaveNoSentPartInMemory) {
  ASSERT_TRUE(streams_->send({{kRun, kRound, wire::ChunkKind::kAnchor, {0, kLarge}}, LinkId{1}}).ok());
  testing::NotingTransport::Sent part = std::move(transport_.sent.front());
  transport_.sent.clear();
  const std::span<std::byte> bytes = part.message.payload->bytes();
  EXPECT_TRUE(is_mapped(bytes));
  EXPECT_TRUE(streams_->sent(part.token));
  part = {};
  EXPECT_FALSE(is_mapped(bytes));
}

TEST_F(Joiners, ThatTakeNothingMakeRoomForThoseThatWait) {
  for (std::uint64_t link = 1; link <= 100; ++link) ask(link, 40);
  EXPECT_EQ(on_their_way(100), 0U) << "it waits";
  EXPECT_EQ(streams_->stalled_receiver(), std::nullopt) << "they may be about to take some";
  clock_.advance(AnchorStreams::kTakesNothing - std::chrono::seconds(1));
  EXPECT_TRUE(streams_->sent(tokens_[LinkId{1}].back()));
  note();
  ask(101, 1);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(streams_->stalled_receiver(), LinkId{2}) << "it has as much as the first, which gets on";
  for (int closed = 0; on_their_way(100) == 0; ++closed) {
    ASSERT_LT(closed, 2) << "one makes room for many";
    streams_->link_closed(*streams_->stalled_receiver());
    note();
  }
  EXPECT_GT(on_their_way(101), 0U);
  EXPECT_EQ(streams_->stalled_receiver(), std::nullopt) << "nobody waits";
}

}  // namespace
}  // namespace collab
