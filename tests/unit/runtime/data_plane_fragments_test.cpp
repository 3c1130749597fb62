// A round of one fragment in a site's data plane: what it changes, and what it leaves alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/runtime/data_plane_by_hand.h"

namespace collab {
namespace {

using namespace testing;

constexpr ElementRange kFirst{0, kElements / 2};
constexpr ElementRange kSecond{kElements / 2, kElements};

class FragmentsOfASite : public DataPlaneByHand {
 protected:
  // The first half of the fragment is ours.
  DataPlane::Events start_fragment(ElementRange range, double weight = 1) {
    attempt_ = AttemptId(attempt_.value + 1);
    ours_ = {range.begin, range.begin + range.size() / 2};
    theirs_ = {ours_.end, range.end};
    const wire::StartAttempt start{.term = TermId(1),
                                   .run = RunId(3),
                                   .round = round(),
                                   .attempt = attempt_,
                                   .participants = {{kSelf, "self", weight, attempt_}, {kPeer, "peer", 1, attempt_}},
                                   .slices = {{kSelf, ours_}, {kPeer, theirs_}}};
    return plane_->start({start, kSelf, {LinkId(0), link_}});
  }
  void exchange(ElementRange range) {
    start_fragment(range);
    EXPECT_THAT(arrives(wire::ChunkKind::kContribution, ours_), IsEmpty());
    ASSERT_EQ(arrives(wire::ChunkKind::kMean, theirs_).size(), 1U);
  }
  [[nodiscard]] std::vector<float> anchor() const { return {arena_->anchor().begin(), arena_->anchor().end()}; }
  [[nodiscard]] static std::vector<float> part(const std::vector<float>& of, ElementRange range) {
    return {of.begin() + static_cast<std::ptrdiff_t>(range.begin), of.begin() + static_cast<std::ptrdiff_t>(range.end)};
  }
  void expect_digest_of_all(const Digest& state) const {
    const Digest outer = arena_->outer().empty() ? Digest{} : digest_of_vector(arena_->outer());
    EXPECT_EQ(state, digest_of_state(digest_of_vector(arena_->anchor()), outer));
    EXPECT_EQ(arena_->sealed()->digest, state);
  }
  // That the swarm's anchor has moved on without us is what the other slot and the sealed one say.
  void swarm_goes_on() {
    const std::vector<float> before = anchor();
    const std::vector<float> moves = normal_vector(random_, kElements, 1e-2);
    for (std::size_t i = 0; i < kElements; ++i) arena_->scratch()[i] = before[i] + moves[i];
    arena_->seal({RunId(3), RoundId(9), digest_of_vector(arena_->scratch()), {}});
  }
  ElementRange ours_;
  ElementRange theirs_;
};

TEST_F(FragmentsOfASite, ARoundMovesOneFragmentAndLeavesTheRest) {
  for (const OuterId outer : {OuterId::kAverage, OuterId::kNesterov}) {
    outer_ = {.id = outer, .lr = outer == OuterId::kNesterov ? 0.7F : 1.0F, .momentum = 0.9F};
    begin(CodecId::kFp32);
    for (const ElementRange range : {kFirst, kSecond, kFirst}) {
      const ElementRange rest = range == kFirst ? kSecond : kFirst;
      const std::vector<float> before = anchor();
      const std::vector<float> trained = vector_.values;
      exchange(range);
      const DataPlane::Applied applied = commit(protocol::Base::kParameters);
      EXPECT_EQ(applied.change, ParameterChange::kToAnchor);
      EXPECT_EQ(applied.range, range);
      EXPECT_EQ(part(anchor(), rest), part(before, rest));
      EXPECT_EQ(part(vector_.values, rest), part(trained, rest)) << "what is trained there counts later";
      EXPECT_NE(part(anchor(), range), part(before, range));
      EXPECT_EQ(part(vector_.values, range), part(anchor(), range));
      expect_digest_of_all(applied.state);
      train();
    }
  }
}

TEST_F(FragmentsOfASite, BoundsOfAFragmentNeedNotBeThoseOfTiles) {
  begin(CodecId::kInt8);
  const ElementRange odd{3 * 1024, 7 * 1024};
  const std::vector<float> before = anchor();
  exchange(odd);
  expect_digest_of_all(commit(protocol::Base::kParameters).state);
  EXPECT_EQ(part(anchor(), {0, odd.begin}), part(before, {0, odd.begin}));
  EXPECT_EQ(part(anchor(), {odd.end, kElements}), part(before, {odd.end, kElements}));
  exchange(kSecond);
  expect_digest_of_all(commit(protocol::Base::kParameters).state);
}

TEST_F(FragmentsOfASite, ACommitAfterTheSiteHasTrainedOnKeepsWhatItTrained) {
  begin(CodecId::kFp32);
  exchange(kSecond);
  const std::vector<float> contributed = vector_.values;
  ASSERT_TRUE(plane_->take_snapshot().ok());
  train();
  const std::vector<float> trained = vector_.values;
  EXPECT_EQ(commit(protocol::Base::kSnapshot).range, kSecond);
  EXPECT_EQ(part(vector_.values, kFirst), part(trained, kFirst));
  for (std::size_t i = kSecond.begin; i < kSecond.end; ++i) {
    ASSERT_EQ(vector_.values[i], anchor()[i] + (trained[i] - contributed[i])) << i;
  }
}

TEST_F(FragmentsOfASite, AContributionToARoundThatWentOnWithoutUsIsNotAppliedTwice) {
  begin(CodecId::kFp32);
  exchange(kFirst);
  const std::vector<float> old_anchor = anchor();
  const std::vector<float> trained = vector_.values;
  swarm_goes_on();
  ASSERT_TRUE(plane_->rebase(protocol::Base::kParameters).ok());
  EXPECT_EQ(part(vector_.values, kFirst), part(anchor(), kFirst)) << "it is in the anchor";
  for (std::size_t i = kSecond.begin; i < kSecond.end; ++i) {
    ASSERT_EQ(vector_.values[i], anchor()[i] + (trained[i] - old_anchor[i])) << "it is in none " << i;
  }
}

TEST_F(FragmentsOfASite, AnUncertainContributionIsSubtractedFromItsFragmentAlone) {
  begin(CodecId::kFp32);
  exchange(kFirst);
  const std::vector<float> old_anchor = anchor();
  const std::vector<float> contributed = vector_.values;
  ASSERT_TRUE(plane_->take_snapshot().ok());
  train();
  const std::vector<float> trained = vector_.values;
  swarm_goes_on();
  ASSERT_TRUE(plane_->rebase(protocol::Base::kSnapshot).ok());
  for (std::size_t i = 0; i < kElements; ++i) {
    const float base = i < kFirst.end ? contributed[i] : old_anchor[i];
    ASSERT_EQ(vector_.values[i], anchor()[i] + (trained[i] - base)) << i;
  }
}

TEST_F(FragmentsOfASite, AnUnfitSiteTakesTheWholeAnchor) {
  begin(CodecId::kFp32);
  start_fragment(kSecond, 0);
  EXPECT_THAT(arrives(wire::ChunkKind::kContribution, ours_), IsEmpty());
  ASSERT_EQ(arrives(wire::ChunkKind::kMean, theirs_).size(), 1U);
  const DataPlane::Applied applied = commit(protocol::Base::kUnfit);
  EXPECT_EQ(applied.range, kWholeVector);
  EXPECT_EQ(vector_.values, anchor());
}

TEST_F(FragmentsOfASite, TheResidualOfAnotherFragmentStays) {
  begin(CodecId::kInt4);
  exchange(kFirst);
  commit(protocol::Base::kParameters);
  const std::vector<float> after_first = left_out();
  const std::vector<ElementRange> of_mean = plane_->residual().units().of_mean;
  train();
  exchange(kSecond);
  commit(protocol::Base::kParameters);
  EXPECT_EQ(part(left_out(), kFirst), part(after_first, kFirst));
  EXPECT_NE(part(left_out(), kSecond), part(after_first, kSecond));
  ASSERT_EQ(of_mean.size(), 1U);
  EXPECT_EQ(plane_->residual().units().of_mean, (std::vector<ElementRange>{of_mean[0], ours_}))
      << "in units of the mean, as they were";
}

TEST_F(FragmentsOfASite, TheClipIsOfTheFragmentsMean) {
  outer_.clip = 0.1F;
  begin(CodecId::kFp32);
  exchange(kSecond);
  EXPECT_GT(commit(protocol::Base::kParameters).clipped_norm, 0.1);
  std::vector<float> moved;
  for (std::size_t i = 0; i < kElements; ++i) moved.push_back(arena_->scratch()[i] - arena_->anchor()[i]);
  EXPECT_NEAR(norm_of(moved), 0.1, 1e-4);
}

}  // namespace
}  // namespace collab
