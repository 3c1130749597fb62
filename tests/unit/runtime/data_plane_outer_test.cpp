// The outer step in a site's data plane: by how much it moves the anchor. The other site is played by the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/runtime/data_plane_by_hand.h"

namespace collab {
namespace {

using namespace testing;

class OuterStepOfASite : public DataPlaneByHand {
 protected:
  [[nodiscard]] std::vector<float> anchor() const { return {arena_->anchor().begin(), arena_->anchor().end()}; }
  // Of the anchor, in the last commit.
  [[nodiscard]] std::vector<float> moves() const {
    std::vector<float> moves;
    for (std::size_t i = 0; i < kElements; ++i) moves.push_back(arena_->scratch()[i] - arena_->anchor()[i]);
    return moves;
  }
  // Nobody else is there.
  DataPlane::Applied run_alone() {
    attempt_ = AttemptId(attempt_.value + 1);
    const wire::StartAttempt start{.term = TermId(1),
                                   .run = RunId(3),
                                   .round = round(),
                                   .attempt = attempt_,
                                   .participants = {{kSelf, "self", 1, attempt_}},
                                   .slices = {{kSelf, {0, kElements}}}};
    EXPECT_EQ(plane_->start({start, kSelf, {LinkId(0)}}).size(), 1U);
    const auto applied =
        plane_->apply({{TermId(1), RunId(3), round(), attempt_, {kSelf}}, protocol::Base::kParameters});
    EXPECT_TRUE(applied.ok()) << applied.status().to_string();
    return applied.ok() ? *applied : DataPlane::Applied{};
  }
  [[nodiscard]] DataPlane::Applied run_together(double weight = 1) {
    start(attempt_.value + 1, weight);
    complete();
    return commit(protocol::Base::kParameters);
  }
};

// A site without weight is done with an exchange that may yet be committed. If no coordinator is there for long, it
// gives the host's other ranks its parameters meanwhile.
TEST_F(OuterStepOfASite, AMeanOutlivesParametersThatArePublishedBeforeItsCommit) {
  std::vector<std::vector<float>> anchors;
  for (const bool publishes : {false, true}) {
    random_ = Prng(51);
    begin(CodecId::kFp32);
    start(1, 0);
    complete();
    if (publishes) {
      ASSERT_TRUE(plane_->publish_parameters().ok());
      EXPECT_EQ(std::vector<float>(arena_->published().begin(), arena_->published().end()), vector_.values);
    }
    commit(protocol::Base::kOldAnchor);
    anchors.push_back(anchor());
  }
  EXPECT_EQ(anchors[0], anchors[1]);
}

TEST_F(OuterStepOfASite, AMeanThatIsTooLongIsShrunkToTheClip) {
  outer_.clip = 0.25F;
  begin(CodecId::kFp32);
  const DataPlane::Applied applied = run_together();
  EXPECT_GT(applied.clipped_norm, 0.5) << "of normal deltas of 0.01";
  EXPECT_LT(applied.clipped_norm, 1.5);
  EXPECT_NEAR(norm_of(moves()), 0.25, 1e-4) << "but for the anchor's rounding";
  EXPECT_EQ(vector_.values, anchor());
}

TEST_F(OuterStepOfASite, AShorterMeanIsTakenBitForBit) {
  std::vector<std::vector<float>> anchors;
  for (const float clip : {0.0F, 100.0F}) {
    random_ = Prng(51);
    outer_.clip = clip;
    begin(CodecId::kInt8);
    EXPECT_EQ(run_together().clipped_norm, 0);
    anchors.push_back(anchor());
  }
  EXPECT_EQ(anchors[0], anchors[1]);
}

TEST_F(OuterStepOfASite, BuffersAreNeitherCountedNorShrunk) {
  outer_.clip = 0.25F;
  outer_elements_ = 8192 + 100;
  begin(CodecId::kFp32);
  EXPECT_GT(run_together().clipped_norm, 0.25);
  const std::vector<float> moved = moves();
  EXPECT_NEAR(norm_of(std::span(moved).first(outer_elements_)), 0.25, 1e-4);
  EXPECT_GT(norm_of(std::span(moved).subspan(outer_elements_)), 0.4);
}

// A running statistic follows the data at each site: put on top of what the others' did, it would go twice as far.
class BuffersOfASiteThatIsMoved : public OuterStepOfASite, public ::testing::WithParamInterface<protocol::Base> {
 protected:
  void begin_with_buffers() {
    outer_elements_ = 8192 + 100;
    begin(CodecId::kFp32);
    start(1);
    complete();
    if (GetParam() == protocol::Base::kSnapshot) {
      ASSERT_TRUE(plane_->take_snapshot().ok());
    }
    if (GetParam() != protocol::Base::kParameters) train();
  }
  void expect_buffers_on_the_anchor() {
    const auto border = static_cast<std::ptrdiff_t>(outer_elements_);
    const std::vector<float> now = anchor();
    EXPECT_TRUE(std::equal(vector_.values.begin() + border, vector_.values.end(), now.begin() + border));
    if (GetParam() != protocol::Base::kParameters) {
      EXPECT_NE(vector_.values[outer_elements_ - 1], now[outer_elements_ - 1]) << "what it trained alone stays";
    }
  }
};

TEST_P(BuffersOfASiteThatIsMoved, AreTheNewAnchorAfterAMissedRound) {
  begin_with_buffers();
  plane_->cancel();
  std::ranges::fill(arena_->scratch(), 0.5F);  // as a transfer would
  arena_->seal({RunId(3), round(), {}});
  ASSERT_TRUE(plane_->rebase(GetParam()).ok());
  expect_buffers_on_the_anchor();
}

TEST_P(BuffersOfASiteThatIsMoved, AreTheNewAnchorAfterACommit) {
  begin_with_buffers();
  commit(GetParam());
  expect_buffers_on_the_anchor();
}
INSTANTIATE_TEST_SUITE_P(Bases, BuffersOfASiteThatIsMoved,
                         ::testing::Values(protocol::Base::kOldAnchor, protocol::Base::kSnapshot,
                                           protocol::Base::kParameters));

TEST_F(OuterStepOfASite, ALoneModelStaysItselfUnlessItIsClipped) {
  outer_.clip = 100;
  begin(CodecId::kFp32);
  const std::vector<float> trained = vector_.values;
  EXPECT_EQ(run_alone().change, ParameterChange::kUnchanged);
  EXPECT_EQ(anchor(), trained) << "bit for bit";
  outer_.clip = 0.25F;
  begin(CodecId::kFp32);
  EXPECT_EQ(run_alone().change, ParameterChange::kToAnchor);
  EXPECT_NEAR(norm_of(moves()), 0.25, 1e-4);
  EXPECT_EQ(vector_.values, anchor());
}

// A call at a device costs more than to look through a tile of a digest.
TEST_F(OuterStepOfASite, ParametersElsewhereAreReadAndWrittenInTheirOwnTiles) {
  tile_elements_ = 1024;
  vector_.tile_elements = 8192;
  vector_.elsewhere = true;
  begin(CodecId::kFp32);
  EXPECT_EQ(run_together().change, ParameterChange::kToAnchor);
  EXPECT_EQ(vector_.values, anchor());
  EXPECT_THAT(vector_.written_at_once, ::testing::ElementsAre(8192U, 8192U));
  train();
  start(2);
  complete();
  EXPECT_EQ(commit(protocol::Base::kOldAnchor).change, ParameterChange::kRebased);
  EXPECT_THAT(vector_.written_at_once, ::testing::ElementsAre(8192U, 8192U, 8192U, 8192U));
  run_alone();
  EXPECT_EQ(vector_.values, anchor());
  EXPECT_THAT(vector_.read_at_once, ::testing::Each(8192U));
}

TEST_F(OuterStepOfASite, TheRateFollowsTheContributors) {
  outer_ = {.id = OuterId::kNesterov, .lr = 0, .momentum = 0.9F, .period = 30};
  begin(CodecId::kFp32);
  EXPECT_EQ(run_together().outer_lr, auto_outer_lr(2, 30));
  const std::vector<float> moved = moves();
  for (std::size_t i = 0; i < kElements; ++i) {  // the first step: momentum is the mean
    const float mean = arena_->outer()[i];
    ASSERT_NEAR(moved[i], 0.6F * (mean + 0.9F * mean), 1e-6) << i;
  }
  train();
  EXPECT_EQ(run_together(0).outer_lr, auto_outer_lr(1, 30)) << "one of them has nothing";
  train();
  EXPECT_EQ(run_alone().outer_lr, auto_outer_lr(1, 30));
}

}  // namespace
}  // namespace collab
