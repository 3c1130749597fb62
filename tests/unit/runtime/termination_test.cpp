// SIGTERM and SIGHUP first ask, and act after the limit. A much later one acts at once, and so does one to a forked
// child.
#include "core/runtime/termination.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <string>
#include <tuple>

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

bool ended_by(int number, int status) { return WIFSIGNALED(status) && WTERMSIG(status) == number; }
bool ended_by_sigterm(int status) { return ended_by(SIGTERM, status); }

// For ever: what ends it is a signal.
int stand_still() {
  while (pause() != 0) {
  }
  return 0;
}

TEST(Termination, IsARequestFirst) {
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
    return stand_still();
  })));
}

// systemd, a shutdown and `kill -- -GROUP` signal a launcher and its processes; the launcher passes its own on.
TEST(Termination, ASecondSignalSoonAfterIsTheSameRequest) {
  const int status = status_of([] {
    watch_for_termination(seconds(60));
    raise(SIGTERM);
    raise(SIGTERM);
    raise(SIGHUP);
    return termination_requested() ? 7 : 2;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Termination, ALaterOneActsAtOnce) {
  EXPECT_TRUE(ended_by_sigterm(status_of([] {
    watch_for_termination(seconds(60), milliseconds(0));
    raise(SIGTERM);
    raise(SIGTERM);
    return 0;
  })));
}

TEST(Termination, AClosedTerminalIsTheSameRequest) {
  EXPECT_TRUE(ended_by(SIGHUP, status_of([] {
                         watch_for_termination(seconds(60));
                         raise(SIGHUP);
                         if (!termination_requested() || termination_signal() != std::string("SIGHUP")) return 1;
                         carry_out_termination();
                         return 0;
                       })));
}

TEST(Termination, AnIgnoredHangUpStaysIgnored) {
  const int status = status_of([] {
    std::signal(SIGHUP, SIG_IGN);
    const bool watching = watch_for_termination(seconds(60));
    raise(SIGHUP);
    return watching && !termination_requested() ? 7 : 1;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Termination, HooksRunBeforeTheLimit) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const int status = status_of([&] {
    const TerminationHook word([&] { std::ignore = write(pipe[1], "w", 1); });
    {
      const TerminationHook gone([&] { std::ignore = write(pipe[1], "g", 1); });
    }
    watch_for_termination(seconds(2));
    raise(SIGTERM);
    return stand_still();
  });
  EXPECT_TRUE(ended_by_sigterm(status));
  close(pipe[1]);
  std::array<char, 3> said{};
  EXPECT_EQ(read(pipe[0], said.data(), said.size()), 1);
  EXPECT_EQ(said[0], 'w') << "and nothing of who has left before";
  close(pipe[0]);
}

TEST(Termination, AHookThatHangsDoesNotKeepTheProcess) {
  EXPECT_TRUE(ended_by_sigterm(status_of([] {
    const TerminationHook word([] { stand_still(); });
    watch_for_termination(milliseconds(50));
    raise(SIGTERM);
    return stand_still();
  })));
}

TEST(Termination, CarryingItOutEndsTheProcessBySigterm) {
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

TEST(Termination, AChildThatServesIsEndedByItsParentOnly) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    end_by_parent_only();
    raise(SIGTERM);
    raise(SIGHUP);
    std::ignore = write(pipe[1], "w", 1);
    stand_still();
  }
  char outlived = 0;
  close(pipe[1]);
  EXPECT_EQ(read(pipe[0], &outlived, 1), 1);
  close(pipe[0]);
  kill(child, SIGTERM);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
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
