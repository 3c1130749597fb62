// Watches the sites until all have ended: passes on their output and the user's signals, reports which sites failed,
// and determines the exit status.
//
// Threads: the main thread. Ownership: owns the sites' output pipes.
#pragma once

#include <string>
#include <vector>

#include "tools/lab/site.h"

namespace collab::lab {

// Puts a prefix before each line. Holds an incomplete line until its rest arrives.
class Prefixer {
 public:
  Prefixer(std::string prefix, int to) : prefix_(std::move(prefix)), to_(to) {}
  // False: the output is no longer read.
  [[nodiscard]] bool add(std::string_view text);
  [[nodiscard]] bool finish();

 private:
  static constexpr std::size_t kLongestLine = 1 << 16;
  std::string prefix_;
  int to_;
  std::string unfinished_;
};

// How a process ended, from its wait status: "ended with status 3", "was killed by signal 9 (SIGKILL)".
[[nodiscard]] std::string describe_end(int wait_status);

// Blocks the signals that the supervisor waits for. Call it before any thread or site starts.
void block_signals();

class Supervisor {
 public:
  // `names`, padded to one width, become the lines' prefixes.
  Supervisor(std::vector<RunningSite> sites, const std::vector<std::string>& names, bool quiet);
  // Returns the exit status of the lab.
  [[nodiscard]] Result<int> wait();

 private:
  struct Site {
    std::string name;
    pid_t process;  // -1: has ended
    Fd verdict;
    std::string failure;  // how it ended, until reported
  };
  struct Stream {
    std::size_t site;
    Fd fd;
    Prefixer lines;
  };
  void read_signals(int fd);
  void collect();
  void pass_on(Stream& stream);
  void report_failures();
  [[nodiscard]] bool any_runs() const;
  void end_all(int number);
  void kill_all();

  bool quiet_;
  std::vector<Site> sites_;
  std::vector<Stream> streams_;
  int first_failure_ = 0;
  int ended_by_ = 0;             // the first signal that asked us to end
  std::int64_t kill_at_ms_ = 0;  // 0: not ending
};

}  // namespace collab::lab
