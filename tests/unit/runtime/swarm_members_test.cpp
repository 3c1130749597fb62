// The members of the swarm, for a thread that waits until there are none.
#include "core/runtime/swarm_members.h"

#include <gmock/gmock.h>

namespace collab {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(SwarmMembers, AWaitingCallIsToldWhoRemains) {
  SwarmMembers members;
  EXPECT_TRUE(members.wait_until_empty(seconds(0)).ok());
  members.set_members({"paris", "rank 2 of rome"});
  const Status waited = members.wait_until_empty(seconds(0));
  EXPECT_THAT(waited.message(), HasSubstr("still waiting for paris, rank 2 of rome to leave the swarm after 0 s"));
  members.set_members({});
  EXPECT_TRUE(members.wait_until_empty(seconds(0)).ok());
}

TEST(SwarmMembers, AreLookedAtOnceSitesOrRanksHaveChanged) {
  SwarmMembers members;
  EXPECT_FALSE(members.may_have_changed(0, 0));
  EXPECT_TRUE(members.may_have_changed(1, 0));
  EXPECT_TRUE(members.may_have_changed(1, 7));
  EXPECT_FALSE(members.may_have_changed(1, 7));
}

}  // namespace
}  // namespace collab
