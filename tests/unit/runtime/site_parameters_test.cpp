// What becomes of a site's parameters at a join and at the end of a round.
#include "core/runtime/site_parameters.h"

#include <gmock/gmock.h>

#include "core/runtime/tensors/host_vector.h"
#include "tests/unit/runtime/private_arena.h"

namespace collab {
namespace {

using ::testing::Each;

constexpr std::uint64_t kLength = 2 * kBlockElements;
constexpr std::uint64_t kTrainedSamples = 640;

class SiteParametersTest : public ::testing::Test {
 protected:
  SiteParametersTest() {
    std::ranges::fill(arena_->next_anchor(), 3.0F);
    arena_->seal({RunId(1), RoundId(4), {}});
  }
  [[nodiscard]] protocol::RoundDone done(std::uint64_t round, std::uint64_t samples) const {
    protocol::RoundDone done;
    done.round = RoundId(round);
    done.samples = samples;
    return done;
  }
  std::unique_ptr<ArenaWriter> arena_ = private_arena(kLength);
  std::vector<float> values_ = std::vector<float>(kLength, 1.0F);
  TrainingCopy copy_{values_, {}};
  SiteParameters behind_{*arena_, copy_, &copy_, 2};
};

TEST_F(SiteParametersTest, AJoinTakesTheAnchor) {
  HostVector plain(std::vector<float>(kLength, 1.0F));
  SiteParameters parameters(*arena_, plain, nullptr, 1);
  const Result<SealedAnchor> anchor = parameters.take_anchor();
  ASSERT_TRUE(anchor.ok());
  EXPECT_EQ(anchor->round, RoundId(4));
  EXPECT_THAT(plain.values(), Each(3.0F));
  EXPECT_FALSE(parameters.end_round().has_value()) << "there is no copy";
}

TEST_F(SiteParametersTest, AWaitingSiteWithAllItsWorkCountedTakesItsFragmentOfTheAnchor) {
  behind_.begin_round(false);
  ASSERT_TRUE(behind_.round_done(done(2, kTrainedSamples), kTrainedSamples).ok());
  const ElementRange fragment = behind_.fragments().range_of(kLength, RoundId(2));
  EXPECT_EQ(fragment, (ElementRange{kBlockElements, 2 * kBlockElements}));
  EXPECT_THAT(std::span(values_).first(kBlockElements), Each(1.0F));
  EXPECT_THAT(std::span(values_).last(kBlockElements), Each(3.0F));
}

TEST_F(SiteParametersTest, UncountedWorkStays) {
  behind_.begin_round(false);
  ASSERT_TRUE(behind_.round_done(done(2, kTrainedSamples - 1), kTrainedSamples).ok());
  EXPECT_THAT(values_, Each(1.0F));
}

TEST_F(SiteParametersTest, ASiteThatTrainsOnMergesInstead) {
  behind_.begin_round(true);
  EXPECT_TRUE(behind_.merges());
  ASSERT_TRUE(behind_.round_done(done(2, kTrainedSamples), kTrainedSamples).ok());
  EXPECT_THAT(values_, Each(1.0F));
  EXPECT_TRUE(behind_.end_round().has_value());
}

}  // namespace
}  // namespace collab
