// Chunks that come before their attempt, after it, or after it is complete.
#include <memory>

#include "tests/unit/runtime/data_plane_by_hand.h"

namespace collab {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataPlaneEarly : public DataPlaneByHand {
 protected:
  void SetUp() override {
    begin(CodecId::kFp32);
    theirs_ = normal_vector(random_, kElements, 1e-2);
  }
  // What the peer sends, the same whenever it does.
  DataPlane::Events contributes(std::uint32_t attempt) {
    return comes(wire::ChunkKind::kContribution, kOurs, round(), attempt);
  }
  DataPlane::Events sends_mean(std::uint32_t attempt) {
    return comes(wire::ChunkKind::kMean, kTheirs, round(), attempt);
  }
  DataPlane::Events comes(wire::ChunkKind kind, ElementRange range, RoundId round, std::uint32_t attempt,
                          RunId run = RunId(3)) {
    const std::span<const float> values = std::span(theirs_).subspan(range.begin, range.size());
    const std::vector<std::byte> bytes = *payload_of(codec_for(CodecId::kFp32), values);
    const BufferPtr payload = pool_->take(bytes.size());
    std::ranges::copy(bytes, payload->bytes().begin());
    last_ = payload;
    return plane_->on_chunk(
        link_, kPeer, {kind, run, round, AttemptId(attempt), kPeer, range, CodecId::kFp32, hash64(bytes)}, payload);
  }
  // More than is kept.
  void floods(std::uint32_t attempt) {
    const std::size_t parts = plane_->early().bound() / (kOurs.size() * sizeof(float)) + 1;
    for (std::size_t i = 0; i < parts; ++i) {
      EXPECT_THAT(contributes(attempt), IsEmpty());
      ASSERT_LE(plane_->early().bytes(), plane_->early().bound());
    }
  }
  // With the parameters of the first attempt; whose slice is whose may differ from it.
  DataPlane::Events goes_on(std::uint32_t attempt, bool swapped) {
    attempt_ = AttemptId(attempt);
    const wire::StartAttempt start{.term = TermId(1),
                                   .run = RunId(3),
                                   .round = round(),
                                   .attempt = attempt_,
                                   .participants = {{kSelf, "self", 1, AttemptId(1)}, {kPeer, "peer", 1, AttemptId(1)}},
                                   .slices = {{swapped ? kPeer : kSelf, kOurs}, {swapped ? kSelf : kPeer, kTheirs}}};
    return plane_->start({start, kSelf, {LinkId(0), link_}});
  }
  static bool is_complete(const DataPlane::Events& events) {
    return events.size() == 1 && std::holds_alternative<protocol::ExchangeComplete>(events[0]);
  }
  // The mean of both in our slice, the peer's word in its own.
  void expect_committed(const std::vector<float>& anchor, const std::vector<float>& parameters) {
    for (std::size_t i = 0; i < kElements; ++i) {
      const float delta = i < kOurs.end ? (anchor[i] - parameters[i] + theirs_[i]) / 2 : theirs_[i];
      ASSERT_NEAR(arena_->anchor()[i], anchor[i] - delta, 1e-6) << "element " << i;
    }
  }
  [[nodiscard]] std::vector<float> anchor() const { return {arena_->anchor().begin(), arena_->anchor().end()}; }

  std::vector<float> theirs_;
  std::weak_ptr<Buffer> last_;  // payload that came
};

TEST_F(DataPlaneEarly, CountInTheAttemptTheyAreOf) {
  const std::vector<float> before = anchor();
  const std::vector<float> trained = vector_.values;
  EXPECT_THAT(contributes(1), IsEmpty());
  EXPECT_THAT(sends_mean(1), IsEmpty());
  EXPECT_GT(plane_->early().bytes(), kElements * sizeof(float));
  EXPECT_TRUE(is_complete(start(1)));
  EXPECT_EQ(plane_->early().bytes(), 0U);
  commit(protocol::Base::kParameters);
  expect_committed(before, trained);
  EXPECT_TRUE(last_.expired());
}

// Rounds and attempts of another run are numbered alike.
TEST_F(DataPlaneEarly, ChunksOfAnotherRunCountInNoAttempt) {
  const std::vector<float> before = anchor();
  const std::vector<float> trained = vector_.values;
  EXPECT_THAT(comes(wire::ChunkKind::kContribution, kOurs, round(), 1, RunId(2)), IsEmpty());
  EXPECT_THAT(comes(wire::ChunkKind::kMean, kTheirs, round(), 1, RunId(2)), IsEmpty());
  EXPECT_EQ(plane_->early().bytes(), 0U);
  EXPECT_THAT(start(1), IsEmpty());
  for (const wire::ChunkKind kind : {wire::ChunkKind::kContribution, wire::ChunkKind::kMean}) {
    const ElementRange range = kind == wire::ChunkKind::kMean ? kTheirs : kOurs;
    EXPECT_THAT(comes(kind, range, round(), 1, RunId(2)), IsEmpty()) << "neither taken nor the peer's fault";
    EXPECT_THAT(comes(kind, range, round(), 2, RunId(2)), IsEmpty());
  }
  EXPECT_EQ(plane_->early().bytes(), 0U);
  EXPECT_THAT(contributes(1), IsEmpty());
  EXPECT_TRUE(is_complete(sends_mean(1)));
  commit(protocol::Base::kParameters);
  expect_committed(before, trained);
}

// What waited for the next round of a run that the site has left since.
TEST_F(DataPlaneEarly, WaitingChunksAreDroppedWhenAnotherRunsAnchorIsInstalled) {
  EXPECT_THAT(contributes(1), IsEmpty());
  EXPECT_GT(plane_->early().bytes(), 0U);
  ASSERT_TRUE(plane_->keep_anchor({RunId(4), RoundId(0), {}}).ok());
  EXPECT_EQ(plane_->early().bytes(), 0U);
}

TEST_F(DataPlaneEarly, AFloodFailsTheAttemptAndTheNextOneIsWhole) {
  const std::vector<float> before = anchor();
  const std::vector<float> trained = vector_.values;
  floods(1);
  EXPECT_EQ(plane_->early().bytes(), 0U);
  EXPECT_TRUE(last_.expired());
  EXPECT_THAT(transport_.closed, IsEmpty()) << "the attempt may still wait for that link";
  const protocol::ExchangeFailed failed = failure_of(start(1));
  EXPECT_EQ(failed.peer, kPeer);
  EXPECT_THAT(failed.reason, HasSubstr("before their attempt could begin here"));
  EXPECT_THAT(transport_.closed, ElementsAre(kLink));
  // It sends all of it again, over another link, and all of that counts.
  plane_->link_closed(kLink);
  link_ = LinkId(6);
  EXPECT_THAT(contributes(2), IsEmpty());
  EXPECT_THAT(start(2), IsEmpty());
  EXPECT_TRUE(is_complete(sends_mean(2)));
  commit(protocol::Base::kParameters);
  expect_committed(before, trained);
}

TEST_F(DataPlaneEarly, ACompleteAttemptSurvivesAFlood) {
  const std::vector<float> before = anchor();
  const std::vector<float> trained = vector_.values;
  start(1);
  EXPECT_THAT(contributes(1), IsEmpty());
  EXPECT_TRUE(is_complete(sends_mean(1)));
  floods(2);
  EXPECT_THAT(transport_.closed, IsEmpty());
  commit(protocol::Base::kParameters);
  expect_committed(before, trained);
  // The link may not be used: what was dropped came over it.
  EXPECT_EQ(failure_of(start(1)).peer, kPeer);
}

TEST_F(DataPlaneEarly, DamagedOrDuplicateChunksDoNotSpoilACompleteAttempt) {
  const std::vector<float> before = anchor();
  const std::vector<float> trained = vector_.values;
  start(1);
  plane_->cancel();
  start(2);
  EXPECT_THAT(contributes(2), IsEmpty());
  EXPECT_TRUE(is_complete(sends_mean(2)));
  EXPECT_THAT(contributes(2), IsEmpty());
  EXPECT_THAT(sends_mean(2), IsEmpty());
  EXPECT_THAT(transport_.closed, IsEmpty());
  const wire::Chunk damaged{
      wire::ChunkKind::kContribution, RunId(3), round(), AttemptId(1), kPeer, kOurs, CodecId::kFp32, 1};
  EXPECT_THAT(plane_->on_chunk(kLink, kPeer, damaged, pool_->take(kOurs.size() * sizeof(float))), IsEmpty());
  EXPECT_THAT(transport_.closed, ElementsAre(kLink));
  commit(protocol::Base::kParameters);
  expect_committed(before, trained);
}

TEST_F(DataPlaneEarly, MemoryIsGivenBackWhenTheRoundIsPast) {
  EXPECT_THAT(comes(wire::ChunkKind::kContribution, kOurs, round(), 9), IsEmpty());  // is never formed here
  const std::weak_ptr<Buffer> of_this = last_;
  EXPECT_THAT(comes(wire::ChunkKind::kContribution, kOurs, RoundId(round().value + 1), 1), IsEmpty());
  const std::weak_ptr<Buffer> of_next = last_;
  run_round();
  EXPECT_TRUE(of_this.expired());
  EXPECT_FALSE(of_next.expired());
  EXPECT_THAT(start(1), IsEmpty());
  EXPECT_TRUE(is_complete(sends_mean(1)));
  commit(protocol::Base::kParameters);
  EXPECT_TRUE(of_next.expired());
  EXPECT_EQ(plane_->early().bytes(), 0U);
}

// Its sender may know of the first and the third attempt alone.
TEST_F(DataPlaneEarly, LateChunksCountOnceTheSliceIsOursAgain) {
  const std::vector<float> before = anchor();
  const std::vector<float> trained = vector_.values;
  EXPECT_THAT(goes_on(1, false), IsEmpty());
  EXPECT_THAT(goes_on(2, true), IsEmpty());
  EXPECT_THAT(contributes(1), IsEmpty());
  EXPECT_THAT(goes_on(3, false), IsEmpty());
  EXPECT_TRUE(is_complete(sends_mean(3)));
  commit(protocol::Base::kParameters);
  expect_committed(before, trained);
}

TEST_F(DataPlaneEarly, AtMostTwoVectorsOfLateChunksAreKept) {
  EXPECT_THAT(goes_on(1, false), IsEmpty());
  EXPECT_THAT(goes_on(2, true), IsEmpty());
  const auto late = [&](std::uint64_t i) { return comes(wire::ChunkKind::kContribution, {i, kOurs.end}, round(), 1); };
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_THAT(late(i), IsEmpty());
  const protocol::ExchangeFailed failed = failure_of(late(4));
  EXPECT_EQ(failed.peer, kPeer);
  EXPECT_THAT(failed.reason, HasSubstr("add up to more than 2 vectors"));
}

}  // namespace
}  // namespace collab
