// How the ranks of a site on one machine hear of a call's result.
#include "core/runtime/site_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "core/runtime/tensors/host_vector.h"

namespace collab {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::uint32_t kRanks = 3;
constexpr milliseconds kLong{20'000};

// A leader and the ranks 1 and 2 around an arena of this process.
class ArenaChannel : public ::testing::Test {
 protected:
  ArenaChannel() {
    const ArenaSpec spec{.key = {"run", "channel" + std::to_string(::getpid()), {}},
                         .elements = 4,
                         .outer_state = false,
                         .ranks = kRanks,
                         .shared = true,
                         .job = {},
                         .places = {}};
    Result<std::unique_ptr<ArenaWriter>> created = create_arena(spec);
    EXPECT_TRUE(created.ok()) << created.status().to_string();
    arena_ = std::move(*created);
    for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
      Result<std::unique_ptr<ArenaReader>> opened = open_arena(spec, kLong);
      EXPECT_TRUE(opened.ok()) << opened.status().to_string();
      followers_.push_back(make_arena_follower_channel(std::move(*opened), rank, parameters_, {}, kLong));
    }
  }
  std::unique_ptr<SiteChannel> leader(milliseconds limit) { return make_arena_leader_channel(*arena_, kRanks, limit); }

  std::vector<float> values_ = std::vector<float>(4);
  HostVector parameters_{values_};
  std::unique_ptr<ArenaWriter> arena_;
  std::vector<std::unique_ptr<SiteChannel>> followers_;
};

TEST_F(ArenaChannel, ARankHearsWhatTheLeaderDecided) {
  CallResult decided;
  decided.round = RoundId(7);
  decided.period = 300;
  decided.took_anchor = decided.leaving = decided.skipped = true;
  ASSERT_TRUE(leader(kLong)->share(1, decided).ok());
  const Result<CallResult> heard = followers_[0]->share(1, {});
  ASSERT_TRUE(heard.ok()) << heard.status().to_string();
  EXPECT_EQ(heard->round, decided.round);
  EXPECT_EQ(heard->period, decided.period);
  EXPECT_TRUE(heard->skipped && heard->took_anchor && heard->leaving);
  EXPECT_FALSE(heard->alone || heard->in_flight);
}

// Else it would wait as long as the longest wait of a leader, for hours.
TEST_F(ArenaChannel, ARankThatWaitsHearsThatAnotherDidNotCome) {
  ASSERT_TRUE(followers_[0]->report({.call = 1, .digest = {}, .samples = 5}).ok());
  const Result<std::vector<ArenaWriter::RankReport>> reports =
      leader(milliseconds(50))->report({.call = 1, .digest = {}, .samples = 0});
  ASSERT_FALSE(reports.ok());
  const Result<CallResult> heard = followers_[0]->share(1, {});
  ASSERT_TRUE(heard.ok()) << heard.status().to_string();
  EXPECT_THAT(heard->error, HasSubstr("rank 2 of site"));
  EXPECT_EQ(heard->error, reports.status().message());
}

// Users look an error up by its code, which stands last.
TEST_F(ArenaChannel, AnErrorThatIsTooLongKeepsItsCode) {
  CallResult failed;
  failed.error = std::string(3 * kCallResultBytes, 'e') + " [round.not-finite]";
  ASSERT_TRUE(leader(kLong)->share(1, failed).ok());
  const Result<CallResult> heard = followers_[0]->share(1, {});
  ASSERT_TRUE(heard.ok()) << heard.status().to_string();
  EXPECT_LT(heard->error.size(), kCallResultBytes);
  EXPECT_THAT(heard->error, ::testing::EndsWith("eee [round.not-finite]"));
}

// On GPUs a rank's gradients are no sign that the leader has come so far, too.
TEST_F(ArenaChannel, ARankThatIsAheadWaitsForTheLeadersAnnouncement) {
  const auto leads = leader(kLong);
  ASSERT_TRUE(leads->announcement(0, 4).ok());
  EXPECT_FALSE(followers_[0]->is_ahead(6));
  EXPECT_EQ(followers_[0]->announcement(0, 6).value(), 0U);
  EXPECT_TRUE(followers_[0]->is_ahead(7));
  auto heard = std::async(std::launch::async, [&] { return followers_[0]->announcement(0, 7); });
  EXPECT_TRUE(leads->announcement(7, 5).ok());
  EXPECT_EQ(heard.get().value(), 7U);
}

}  // namespace
}  // namespace collab
