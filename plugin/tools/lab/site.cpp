#include "tools/lab/site.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace collab::lab {
namespace {

[[noreturn]] void give_up(const std::string& what) {
  const std::string text = "lab: " + what + ": " + std::strerror(errno) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(kSiteNotSetUp);
}

void mount_or_give_up(const char* what, const char* where, const char* type, unsigned long flags, const char* data) {
  if (::mount(what, where, type, flags, data) != 0) give_up(std::string("cannot mount ") + where + " in a site");
}

// Mounts a file over /etc/hosts. The file is in a tmpfs that no process sees afterwards.
void mount_hosts_file(const std::string& text) {
  mount_or_give_up("tmpfs", "/dev/shm", "tmpfs", 0, "mode=700");
  const char* path = "/dev/shm/hosts";
  const int file = ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0 || ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    give_up("cannot write a site's hosts file");
  }
  ::close(file);
  mount_or_give_up(path, "/etc/hosts", nullptr, MS_BIND, nullptr);
  ::umount2("/dev/shm", MNT_DETACH);
}

void make_machine(const SiteCommand& site) {
  if (::setns(site.network, CLONE_NEWNET) != 0) give_up("cannot enter a site's network");
  if (::unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC) != 0) give_up("cannot make a site's namespaces");
  if (::sethostname(site.name.data(), site.name.size()) != 0) give_up("cannot set a site's hostname");
  mount_or_give_up("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  mount_or_give_up("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  mount_hosts_file(site.hosts_file);
  mount_or_give_up("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
  // /sys shows the network interfaces of the process that mounted it. Containers may forbid this mount, and few
  // programs look there.
  if (::mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0) {
    ::mount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  }
}

[[noreturn]] void run_command(const SiteCommand& site) {
  ::setsid();  // the terminal's Ctrl-C goes to the lab, which passes it on
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) std::signal(number, SIG_DFL);
  ::close_range(3, ~0U, 0);
  for (const auto& [name, value] : site.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : site.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int why = errno;
  const std::string text = "lab: cannot run '" + site.arguments[0] + "': " + std::strerror(why) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(why == ENOENT ? kNoSuchCommand : kCannotRun);
}

// The loop of the first process: reaps orphans, passes signals on, and ends with the command. Its own exit status could
// not tell a killed command from one that exits with 128 or more, so the lab gets the whole wait status.
[[noreturn]] void look_after(pid_t command, const sigset_t& signals, int verdict) {
  while (true) {
    const int number = ::sigwaitinfo(&signals, nullptr);
    if (number == SIGINT || number == SIGTERM) ::kill(-command, number);
    if (number != SIGCHLD) continue;
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended != command) continue;
      [[maybe_unused]] const ssize_t written = ::write(verdict, &status, sizeof status);
      ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
  }
}

[[noreturn]] void be_first_process(const SiteCommand& site, const LifeLine& life, int out, int err, int verdict) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(life.held_by_lab.get());
  pollfd gone{life.watched_by_sites.get(), POLLIN, 0};
  if (::poll(&gone, 1, 0) != 0) ::_exit(kSiteNotSetUp);  // the lab ended before PR_SET_PDEATHSIG was set
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (::dup2(nothing, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) ::_exit(kSiteNotSetUp);
  make_machine(site);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&signals, number);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const pid_t command = ::fork();
  if (command < 0) give_up("cannot fork in a site");
  if (command == 0) run_command(site);
  constexpr int kVerdict = 3;
  ::dup2(verdict, kVerdict);
  ::close_range(kVerdict + 1, ~0U, 0);
  look_after(command, signals, kVerdict);
}

Result<LifeLine> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  return LifeLine{Fd(ends[1]), Fd(ends[0])};
}

}  // namespace

Result<LifeLine> make_life_line() { return make_pipe(); }

Result<RunningSite> start_site(const SiteCommand& site, const LifeLine& life) {
  Result<LifeLine> out = make_pipe();
  if (!out.ok()) return out.status();
  Result<LifeLine> err = make_pipe();
  if (!err.ok()) return err.status();
  Result<LifeLine> verdict = make_pipe();
  if (!verdict.ok()) return verdict.status();
  // Like fork(), but the child is the first process of a new PID namespace.
  const auto process = static_cast<pid_t>(::syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (process < 0) return system_error("cannot start a process in a PID namespace");
  if (process == 0) {
    be_first_process(site, life, out->held_by_lab.get(), err->held_by_lab.get(), verdict->held_by_lab.get());
  }
  return RunningSite{process, std::move(out->watched_by_sites), std::move(err->watched_by_sites),
                     std::move(verdict->watched_by_sites)};
}

}  // namespace collab::lab
