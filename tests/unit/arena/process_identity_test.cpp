// A pid is not a process: start time, boot and namespace tell them apart.
#include "core/arena/process_identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace collab::arena {
namespace {

TEST(ProcessIdentity, WeAreAlive) {
  const ProcessIdentity self = this_process();
  EXPECT_EQ(self.pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_NE(self.start_ticks, 0U);
  EXPECT_EQ(self, this_process());
  EXPECT_EQ(liveness_of(self), Liveness::kAlive);
}

TEST(ProcessIdentity, ALaterProcessWithOurPidIsNotUs) {
  ProcessIdentity other = this_process();
  other.start_ticks += 1;
  EXPECT_EQ(liveness_of(other), Liveness::kGone);
}

TEST(ProcessIdentity, AProcessOfAnEarlierBootIsGoneWhateverItsPid) {
  ProcessIdentity other = this_process();
  other.boot_id[0] = other.boot_id[0] == 'a' ? 'b' : 'a';
  EXPECT_EQ(liveness_of(other), Liveness::kOtherBoot);
}

TEST(ProcessIdentity, AProcessOfAnotherContainerCannotBeJudged) {
  ProcessIdentity other = this_process();
  other.pid_namespace += 1;
  EXPECT_EQ(liveness_of(other), Liveness::kCannotTell);
}

TEST(ProcessIdentity, APidThatIsNoProcessIsGone) {
  ProcessIdentity other = this_process();
  other.pid = 0x7FFF'FFFF;
  EXPECT_EQ(liveness_of(other), Liveness::kGone);
}

}  // namespace
}  // namespace collab::arena
