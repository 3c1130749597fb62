// A site's processes: a PID namespace whose first process sets the site up, runs the command and ends with it.
//
// The first process is killed with the lab's main thread (PR_SET_PDEATHSIG), and with it the kernel kills every process
// of the namespace. So nothing of a site outlives the lab, not even after SIGKILL. Threads: start_site() is called from
// the main thread, before there are others.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/lab/fd.h"

namespace collab::lab {

// Exit statuses of the first process that are not the command's own.
inline constexpr int kSiteNotSetUp = 125;
inline constexpr int kCannotRun = 126;
inline constexpr int kNoSuchCommand = 127;

struct SiteCommand {
  std::string name;  // the hostname too
  int network = -1;  // the namespace's descriptor, borrowed
  std::string hosts_file;
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;  // over the lab's own
};

struct RunningSite {
  pid_t first_process = -1;
  Fd out, err;  // what the command prints
  Fd verdict;   // the command's wait status, an int, once it has ended; nothing when the site could not be set up
};

// The two ends of a pipe that no process writes to: at its end of file, the lab is gone.
struct LifeLine {
  Fd held_by_lab, watched_by_sites;
};
[[nodiscard]] Result<LifeLine> make_life_line();

[[nodiscard]] Result<RunningSite> start_site(const SiteCommand& site, const LifeLine& life);

}  // namespace collab::lab
