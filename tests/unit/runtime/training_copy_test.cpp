// What a round behind the training leaves in the copy, and how the merge changes parameters that have moved on.
#include "core/runtime/tensors/training_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/outer/outer.h"
#include "core/runtime/tensors/host_vector.h"

namespace collab {
namespace {

using ::testing::ElementsAre;

constexpr std::uint64_t kTrained = 3;  // of four elements; the last is a buffer
using Values = std::vector<float>;

const Values kSnapshot{1, 2, 3, 4};
const Values kMean{2, 2, 1, 7};
const Values kAnchor{2.5F, 2, 0, 7};
const Values kMovedOn{1.25F, 2.5F, 3, 9};  // by 0.25, 0.5, 0 since the snapshot

struct Merging {
  explicit Merging(Merge merge) : copy(values, {.merge = merge, .trained = kTrained}) { copy.begin_round(true); }
  Values merged(const Values& anchor) {
    const auto [how, range] = copy.end_round(anchor);
    change = how;
    HostVector parameters(kMovedOn);
    EXPECT_TRUE(merge_copy(parameters, change, copy.values(), copy.settings(), range).ok());
    return parameters.values();
  }
  Values values = kSnapshot;
  TrainingCopy copy;
  ParameterChange change{};
};

TEST(TrainingCopy, ARoundMovesParametersByItsChangeAndPartOfTheirDistanceFromTheMean) {
  Merging round({MergeRule::kRebase, 0.5});
  round.copy.displace(0, kAnchor, kMean);
  EXPECT_THAT(round.merged(kAnchor), ElementsAre(1.25F + 0.5F + 0.5F, 2.5F, 3 - 1 - 1, 7)) << "a buffer is the mean";
  EXPECT_EQ(round.change, ParameterChange::kMoved);
}

TEST(TrainingCopy, AFactorOfOneAddsTheProgressSinceTheTriggerToTheAnchor) {
  Merging round({MergeRule::kRebase, 1});
  round.copy.displace(0, kAnchor, kMean);
  EXPECT_THAT(round.merged(kAnchor), ElementsAre(2.5F + 0.25F, 2 + 0.5F, 0, 7));
}

TEST(TrainingCopy, AMixKeepsAPartOfTheParameters) {
  Merging round({MergeRule::kMix, 0.25});
  round.copy.displace(0, kAnchor, kMean);
  EXPECT_THAT(round.merged(kAnchor), ElementsAre(0.25F * 1.25F + 0.75F * 2.5F, 0.25F * 2.5F + 0.75F * 2, 0.25F * 3, 7));
  EXPECT_EQ(round.change, ParameterChange::kMixed);
}

TEST(TrainingCopy, AnUntouchedCopyChangesNothing) {
  Merging round({MergeRule::kRebase, 0.5});
  EXPECT_EQ(round.merged(kAnchor), kMovedOn);
  EXPECT_EQ(round.change, ParameterChange::kUnchanged);
}

TEST(TrainingCopy, AnOrdinaryWriteMovesParametersByWhatItChanged) {
  for (const MergeRule rule : {MergeRule::kRebase, MergeRule::kMix}) {
    Merging round({rule, 0.5});
    round.copy.before_write();
    ASSERT_TRUE(round.copy.write(0, Values{3, 3, 3, 3}).ok());
    EXPECT_THAT(round.merged(kAnchor), ElementsAre(1.25F + 2, 2.5F + 1, 3, 7));
    EXPECT_EQ(round.change, ParameterChange::kMoved);
  }
}

TEST(TrainingCopy, ACommitAfterARebaseAddsBothMoves) {
  Merging round({MergeRule::kRebase, 0.5});
  round.copy.before_write();
  ASSERT_TRUE(round.copy.write(0, Values{0, 0, 0, 0}).ok());  // by -1, -2, -3
  round.copy.displace(0, kAnchor, kMean);                     // then by 0.5 + 1, 1, -1 + 0.5
  EXPECT_THAT(round.merged(kAnchor), ElementsAre(1.25F - 1 + 1.5F, 2.5F - 2 + 1, 3 - 3 - 0.5F, 7));
}

TEST(TrainingCopy, AFragmentTouchesOnlyItsElements) {
  const std::span<const float> anchor = std::span(kAnchor).subspan(1, 1);
  const std::span<const float> mean = std::span(kMean).subspan(1, 1);
  Merging moved({MergeRule::kRebase, 1});
  moved.copy.displace(1, anchor, mean);
  EXPECT_THAT(moved.merged(kAnchor), ElementsAre(1.25F, 2 + 0.5F, 3, 9)) << "the buffer is of another fragment";
  Merging mixed({MergeRule::kMix, 0.25});
  mixed.copy.displace(1, anchor, mean);
  EXPECT_THAT(mixed.merged(kAnchor), ElementsAre(1.25F, 0.25F * 2.5F + 0.75F * 2, 3, 9));
  Merging buffer({MergeRule::kMix, 0.25});
  buffer.copy.displace(3, std::span(kAnchor).last(1), std::span(kMean).last(1));
  EXPECT_THAT(buffer.merged(kAnchor), ElementsAre(1.25F, 2.5F, 3, 7));
}

TEST(TrainingCopy, AFragmentThatIsMixedAfterARebaseLeavesTheOthersRebased) {
  Merging round({MergeRule::kMix, 0.25});
  round.copy.before_write();
  ASSERT_TRUE(round.copy.write(0, Values{0, 0, 0, 0}).ok());  // by -1, -2, -3
  round.copy.displace(1, std::span(kAnchor).subspan(1, 1), std::span(kMean).subspan(1, 1));
  EXPECT_THAT(round.merged(kAnchor), ElementsAre(1.25F - 1, 2.5F + 0.75F * (2 - 2), 3 - 3, 7));
}

TEST(TrainingCopy, AWriteOfAFragmentLeavesTheBuffersOfOthers) {
  Merging round({MergeRule::kRebase, 0.5});
  round.copy.before_write({0, 2});
  ASSERT_TRUE(round.copy.write(0, Values{3, 3}).ok());  // by 2 and 1
  EXPECT_THAT(round.merged(kAnchor), ElementsAre(1.25F + 2, 2.5F + 1, 3, 9));
}

TEST(TrainingCopy, UnfitParametersAreTheAnchorWhateverWasTrained) {
  Merging round({MergeRule::kRebase, 0.5});
  round.copy.before_write();
  round.copy.took_anchor();
  ASSERT_TRUE(round.copy.write(0, kAnchor).ok());
  EXPECT_EQ(round.merged(kAnchor), kAnchor);
  EXPECT_EQ(round.change, ParameterChange::kTakeCopy);
}

TEST(TrainingCopy, ARoundThatIsWaitedForLeavesTheParametersThemselves) {
  Merging round({MergeRule::kRebase, 0.5});
  round.copy.begin_round(false);
  round.copy.before_write();
  ASSERT_TRUE(round.copy.write(0, kAnchor).ok());
  EXPECT_EQ(round.merged(kAnchor), kAnchor);
  EXPECT_EQ(round.change, ParameterChange::kTakeCopy);
}

TEST(TrainingCopy, TakesTheCurrentParameters) {
  Values values(4);
  TrainingCopy copy(values, {});
  HostVector parameters(kMovedOn);
  ASSERT_TRUE(copy.take(parameters).ok());
  EXPECT_EQ(values, kMovedOn);
}

// Nothing is lost or counted twice: what the sites keep of their differences from the mean adds up to nothing, by the
// weights they had, and what is left is the outer step.
TEST(TrainingCopy, OverTheContributorsTheDifferencesAddUpToNothing) {
  constexpr std::size_t kSites = 3;
  constexpr std::size_t kElements = 64;
  const std::vector<double> weights{0.5, 0.3, 0.2};
  for (const OuterConfig& outer :
       {OuterConfig{OuterId::kAverage, 1.0F, 0}, OuterConfig{OuterId::kNesterov, 0.7F, 0.9F}}) {
    for (const double factor : {0.0, 0.5, 1.0}) {
      Values old_anchor(kElements);
      std::vector<Values> snapshots(kSites, Values(kElements));
      Values mean_delta(kElements);
      for (std::size_t i = 0; i < kElements; ++i) {
        old_anchor[i] = std::sin(static_cast<float>(i));
        for (std::size_t site = 0; site < kSites; ++site) {
          snapshots[site][i] = old_anchor[i] + 0.01F * std::cos(static_cast<float>(i * (site + 2)));
          mean_delta[i] += static_cast<float>(weights[site]) * (old_anchor[i] - snapshots[site][i]);
        }
      }
      Values mean = mean_delta;
      outer_step({OuterId::kAverage, 1.0F, 0}, old_anchor, mean, {});
      Values anchor = mean_delta;
      Values state(has_outer_state(outer.id) ? kElements : 0);
      outer_step(outer, old_anchor, anchor, state);
      std::vector<double> moved(kElements);
      for (std::size_t site = 0; site < kSites; ++site) {
        Values values = snapshots[site];
        TrainingCopy copy(values, {.merge = {MergeRule::kRebase, factor}});
        copy.begin_round(true);
        copy.displace(0, anchor, mean);
        ASSERT_EQ(copy.end_round(anchor).change, ParameterChange::kMoved);
        for (std::size_t i = 0; i < kElements; ++i) moved[i] += weights[site] * static_cast<double>(values[i]);
      }
      for (std::size_t i = 0; i < kElements; ++i) {
        EXPECT_NEAR(moved[i], static_cast<double>(anchor[i]) - static_cast<double>(mean[i]), 1e-6);
      }
    }
  }
}

// As GPU tensors are read: not in place.
class Remote final : public ParameterVector {
 public:
  explicit Remote(Values values) : values_(std::move(values)) {}
  [[nodiscard]] std::uint64_t size() const override { return values_.size(); }
  [[nodiscard]] std::span<float> view(std::uint64_t, std::uint64_t) override { return {}; }
  Status read(std::uint64_t offset, std::span<float> out) override {
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  Status write(std::uint64_t offset, std::span<const float> in) override {
    std::ranges::copy(in, values_.begin() + static_cast<std::ptrdiff_t>(offset));
    return {};
  }
  Values values_;
};

TEST(TrainingCopy, ParametersThatDoNotLieInHostMemoryAreMergedAlike) {
  const Values copy{0.5F, -1, 2, 8};
  for (const ParameterChange change : {ParameterChange::kMoved, ParameterChange::kMixed, ParameterChange::kTakeCopy}) {
    const MergeSettings settings{.merge = {MergeRule::kMix, 0.25}, .trained = kTrained};
    HostVector here(kMovedOn);
    Remote there(kMovedOn);
    ASSERT_TRUE(merge_copy(here, change, copy, settings).ok());
    ASSERT_TRUE(merge_copy(there, change, copy, settings).ok());
    EXPECT_EQ(there.values_, here.values());
    EXPECT_NE(there.values_, kMovedOn);
  }
}

TEST(TrainingCopy, AChangeThatTakesNoCopyIsRefused) {
  HostVector parameters(kMovedOn);
  EXPECT_FALSE(merge_copy(parameters, ParameterChange::kToAnchor, kAnchor, {}).ok());
  EXPECT_FALSE(change_parameters(parameters, ParameterChange::kMoved, kAnchor, {}).ok());
  EXPECT_FALSE(merge_copy(parameters, ParameterChange::kMoved, {}, {}).ok());
  EXPECT_EQ(parameters.values(), kMovedOn);
}

}  // namespace
}  // namespace collab
