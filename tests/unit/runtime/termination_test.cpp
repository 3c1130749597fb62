// SIGTERM is a wish first and acts after the limit; a second one, and one to a forked child, act at once.
#include "core/runtime/termination.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace collab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Runs `body` in a process of its own; the wait status it ended with.
int status_of(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

bool ended_by_sigterm(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM; }

TEST(Termination, IsAWishFirst) {
  const int status = status_of([] {
    if (!watch_for_termination(seconds(60)) || termination_requested()) return 1;
    raise(SIGTERM);
    return termination_requested() ? 7 : 2;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Termination, ActsWhenTheLimitHasPassed) {
  EXPECT_TRUE(ended_by_sigterm(status_of([] {
    watch_for_termination(milliseconds(50));
    raise(SIGTERM);
    while (pause() != 0) {
    }
    return 0;
  })));
}

TEST(Termination, ASecondSignalActsAtOnce) {
  EXPECT_TRUE(ended_by_sigterm(status_of([] {
    watch_for_termination(seconds(60));
    raise(SIGTERM);
    raise(SIGTERM);
    return 0;
  })));
}

TEST(Termination, CanBeCarriedOut) {
  EXPECT_TRUE(ended_by_sigterm(status_of([] {
    watch_for_termination(seconds(60));
    raise(SIGTERM);
    carry_out_termination();
    return 0;
  })));
}

TEST(Termination, AForkedChildIsEndedAtOnce) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer calls no signal handler in a process forked from one with several threads";
#endif
  const int status = status_of([] {
    watch_for_termination(seconds(60));
    const bool ended = ended_by_sigterm(status_of([] {
      raise(SIGTERM);
      return 0;
    }));
    return ended && !termination_requested() ? 7 : 1;
  });
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Termination, AHandlerThatIsThereIsLeftAlone) {
  const int status = status_of([] {
    std::signal(SIGTERM, SIG_IGN);
    const bool watching = watch_for_termination(seconds(60));
    raise(SIGTERM);
    return !watching && !termination_requested() ? 7 : 1;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace collab
