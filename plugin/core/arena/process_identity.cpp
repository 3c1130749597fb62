#include "core/arena/process_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace collab::arena {
namespace {

struct ProcStat {
  char state = '?';
  std::uint64_t start_ticks = 0;
};

// The command name in field 2 may hold spaces and parentheses: fields are counted from the last ')'.
std::optional<ProcStat> read_stat(std::uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(close + 1));
  ProcStat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start_ticks;
  if (!fields) return std::nullopt;
  return stat;
}

// The part of the identity that all processes of this machine and container share.
ProcessIdentity read_environment() {
  ProcessIdentity self;
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) == 0) self.pid_namespace = info.st_ino;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  boot >> id;
  std::copy_n(id.begin(), std::min(id.size(), self.boot_id.size() - 1), self.boot_id.begin());
  return self;
}

const ProcessIdentity& own_identity() {
  static const ProcessIdentity here = read_environment();
  return here;
}

}  // namespace

ProcessIdentity this_process() {
  ProcessIdentity self = own_identity();
  self.pid = static_cast<std::uint32_t>(::getpid());
  if (const auto stat = read_stat(self.pid)) self.start_ticks = stat->start_ticks;
  return self;
}

Liveness liveness_of(const ProcessIdentity& process) {
  const ProcessIdentity& self = own_identity();
  if (process.boot_id != self.boot_id) return Liveness::kOtherBoot;
  if (process.pid_namespace != self.pid_namespace) return Liveness::kCannotTell;
  if (process.pid == 0) return Liveness::kGone;
  const auto stat = read_stat(process.pid);
  if (!stat) {
    // There is no /proc entry. If /proc is not mounted at all, ask the kernel another way.
    if (read_stat(static_cast<std::uint32_t>(::getpid()))) return Liveness::kGone;
    return ::kill(static_cast<pid_t>(process.pid), 0) == 0 || errno == EPERM ? Liveness::kAlive : Liveness::kGone;
  }
  if (stat->state == 'Z' || stat->state == 'X') return Liveness::kGone;
  if (process.start_ticks != 0 && stat->start_ticks != process.start_ticks) return Liveness::kGone;
  return Liveness::kAlive;
}

}  // namespace collab::arena
