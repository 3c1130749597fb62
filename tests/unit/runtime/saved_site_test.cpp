// What a site begins with, of what earlier processes have left on its disk.
#include "core/runtime/saved_site.h"

#include <gmock/gmock.h>

#include "core/base/digest.h"
#include "core/runtime/leader.h"
#include "tests/unit/runtime/in_own_folder.h"
#include "tests/unit/runtime/whole_state.h"

namespace collab {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class SavedSiteTest : public testing::InOwnFolder {
 protected:
  static constexpr std::uint64_t kLength = 100;
  SavedSiteTest() {
    options_.site = "paris";
    options_.config.run = "gpt2";
    options_.config.outer_optimizer = OuterId::kAverage;
    options_.config.state_dir = folder_;
    options_.record.dir = folder_;
  }

  // As a process of this site has left it: all ones, of round 5.
  void leave(std::uint64_t elements = kLength) {
    const ArenaSpec spec = arena_spec(options_, elements);
    const std::vector<float> anchor(elements, 1.0F);
    StateHeader header;
    header.swarm = "gpt2";
    header.site = "paris";
    header.run = RunId(7);
    header.round = RoundId(5);
    header.digest = digest_of_state(digest_of_vector(anchor), {});
    header.fingerprint = spec.key.fingerprint;
    header.elements = elements;
    header.egress = {.spent = 1000, .round = 10};
    const Status written = write_state(state_path(folder_, "paris"), header, anchor, {});
    ASSERT_TRUE(written.ok()) << written.to_string();
  }
  [[nodiscard]] std::unique_ptr<ArenaWriter> arena() const {
    auto made = create_arena(arena_spec(options_, kLength));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }

  SessionOptions options_;
};

TEST_F(SavedSiteTest, ASiteWithoutSavedFilesBeginsAfresh) {
  const auto memory = arena();
  SavedSite remains(options_);
  ASSERT_TRUE(remains.find(*memory, kLength).ok());
  EXPECT_NE(remains.known().acceptor, AcceptorId(0)) << "a memory begins";
  EXPECT_EQ(remains.state(), std::nullopt);
  EXPECT_FALSE(memory->sealed().has_value());
  EXPECT_TRUE(remains.take_record().has_value());
  EXPECT_FALSE(remains.take_record().has_value()) << "once";
}

TEST_F(SavedSiteTest, TheAnchorOfTheStateFileIsSealed) {
  leave();
  const auto memory = arena();
  SavedSite remains(options_);
  ASSERT_TRUE(remains.find(*memory, kLength).ok());
  ASSERT_TRUE(memory->sealed().has_value());
  EXPECT_EQ(memory->sealed()->round, RoundId(5));
  EXPECT_THAT(memory->anchor(), Each(1.0F));
  EXPECT_EQ(remains.state()->round, RoundId(5));
  EXPECT_FALSE(remains.state_ended());
  EXPECT_EQ(remains.egress().spent, 1000U);
}

// It was killed after rounds that it had not saved.
TEST_F(SavedSiteTest, RoundsOfTheArenaBeyondTheStateFileCountAsSent) {
  leave();
  const auto memory = arena();
  memory->seal({RunId(7), RoundId(8), {}});
  SavedSite remains(options_);
  ASSERT_TRUE(remains.find(*memory, kLength).ok());
  EXPECT_EQ(remains.egress().spent, 1030U);
  options_.egress_spent = 2000;
  EXPECT_EQ(remains.egress().spent, 2000U) << "by earlier sessions of this process";
}

TEST_F(SavedSiteTest, AStateOfAnotherModelOrRunIsRefused) {
  leave(kLength + 1);
  const auto memory = arena();
  EXPECT_THAT(SavedSite(options_).find(*memory, kLength).message(), HasSubstr("[state.other-model]"));
  leave();
  options_.config.run = "another";
  EXPECT_THAT(SavedSite(options_).find(*memory, kLength).message(), HasSubstr("set COLLAB_RUN=gpt2"));
  options_.run_of_rendezvous = true;
  EXPECT_TRUE(SavedSite(options_).find(*memory, kLength).ok());
}

}  // namespace
}  // namespace collab
