// A site's processes: a PID namespace whose first process sets up the site, runs the command and ends with it.
//
// The first process dies with the lab's main thread (PR_SET_PDEATHSIG), and the kernel then kills every process of its
// namespace. So no process of a site outlives the lab, even if SIGKILL ends the lab. Threads: start_site() is called
// from the main thread, before there are others.
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
  std::string name;  // also the hostname
  int network = -1;  // the namespace's descriptor, borrowed
  std::string hosts_file;
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;  // added to the lab's own environment
};

struct RunningSite {
  pid_t first_process = -1;
  Fd out, err;  // the command's output
  Fd verdict;   // gets the command's wait status, an int; nothing if the site could not be set up
};

// The two ends of a pipe that no process writes to. End of file means that the lab is gone.
struct LifeLine {
  Fd held_by_lab, watched_by_sites;
};
[[nodiscard]] Result<LifeLine> make_life_line();

[[nodiscard]] Result<RunningSite> start_site(const SiteCommand& site, const LifeLine& life);

}  // namespace collab::lab
