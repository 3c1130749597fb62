#include "tools/lab/supervisor.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <ctime>

namespace collab::lab {
namespace {

constexpr std::int64_t kGraceMs = 30'000;  // from passing a signal on to SIGKILL: sites need time to leave
constexpr std::int64_t kAgainMs = 5'000;   // from one SIGKILL to the next

std::int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set, number);
  return set;
}

bool write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(to, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

bool Prefixer::add(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      unfinished_ += text;
      break;
    }
    out += prefix_ + unfinished_ + std::string(text.substr(0, end + 1));
    unfinished_.clear();
    text.remove_prefix(end + 1);
  }
  if (unfinished_.size() > kLongestLine) {
    out += prefix_ + unfinished_ + "\n";
    unfinished_.clear();
  }
  return write_all(to_, out);
}

bool Prefixer::finish() { return unfinished_.empty() || add("\n"); }

std::string describe_end(int wait_status) {
  if (WIFEXITED(wait_status)) return "ended with status " + std::to_string(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  const char* const name = ::sigabbrev_np(number);
  return "was killed by signal " + std::to_string(number) + (name != nullptr ? " (SIG" + std::string(name) + ")" : "");
}

void block_signals() {
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

Supervisor::Supervisor(std::vector<RunningSite> sites, const std::vector<std::string>& names, bool quiet)
    : quiet_(quiet) {
  std::size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const std::string prefix = names[i] + std::string(width - names[i].size(), ' ') + " | ";
    sites_.push_back({names[i], sites[i].first_process, std::move(sites[i].verdict), {}});
    streams_.push_back({i, std::move(sites[i].out), Prefixer(prefix, STDOUT_FILENO)});
    streams_.push_back({i, std::move(sites[i].err), Prefixer(prefix, STDERR_FILENO)});
  }
}

Result<int> Supervisor::wait() {
  const sigset_t set = watched_signals();
  const Fd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.open()) return system_error("cannot wait for signals");
  while (any_runs() || !streams_.empty()) {
    std::vector<pollfd> waits{{signals.get(), POLLIN, 0}};
    for (const Stream& stream : streams_) waits.push_back({stream.fd.get(), POLLIN, 0});
    int timeout = -1;
    if (kill_at_ms_ != 0) timeout = static_cast<int>(std::max<std::int64_t>(kill_at_ms_ - now_ms(), 0));
    if (::poll(waits.data(), waits.size(), timeout) < 0 && errno != EINTR) return system_error("cannot wait");
    if (waits[0].revents != 0) read_signals(signals.get());
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (waits[i + 1].revents != 0) pass_on(streams_[i]);
    }
    std::erase_if(streams_, [](const Stream& stream) { return !stream.fd.open(); });
    report_failures();
    if (kill_at_ms_ != 0 && now_ms() >= kill_at_ms_) kill_all();
  }
  return ended_by_ != 0 ? 128 + ended_by_ : first_failure_;
}

void Supervisor::read_signals(int fd) {
  signalfd_siginfo info{};
  while (::read(fd, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      collect();
    } else if (ended_by_ == 0) {
      ended_by_ = static_cast<int>(info.ssi_signo);
      if (!quiet_ && any_runs()) {
        std::fputs("lab: the commands were asked to end, and have 30 s; if asked again, the lab kills them\n", stderr);
      }
      end_all(ended_by_ == SIGINT ? SIGINT : SIGTERM);
    } else {
      kill_all();  // the second signal kills
    }
  }
}

void Supervisor::collect() {
  int status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto site = std::ranges::find(sites_, ended, &Site::process);
    if (site == sites_.end()) continue;
    site->process = -1;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (first_failure_ == 0) first_failure_ = code;
    int of_command = 0;
    if (::read(site->verdict.get(), &of_command, sizeof of_command) == sizeof of_command) status = of_command;
    // A site that was asked to end has not failed.
    if (status != 0 && ended_by_ == 0) site->failure = describe_end(status);
  }
}

bool Supervisor::any_runs() const {
  return std::ranges::any_of(sites_, [](const Site& site) { return site.process != -1; });
}

// Reports a failure after the site's last line, which may give the reason.
void Supervisor::report_failures() {
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    std::string& failure = sites_[i].failure;
    if (failure.empty() || std::ranges::any_of(streams_, [i](const Stream& stream) { return stream.site == i; })) {
      continue;
    }
    std::fprintf(stderr, "lab: %s %s\n", sites_[i].name.c_str(), failure.c_str());
    failure.clear();
  }
}

void Supervisor::pass_on(Stream& stream) {
  std::array<char, 1 << 16> buffer;
  const ssize_t got = ::read(stream.fd.get(), buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) return;
  const bool heard = got > 0 ? stream.lines.add({buffer.data(), static_cast<std::size_t>(got)}) : stream.lines.finish();
  if (got <= 0) stream.fd.reset();
  if (!heard && ended_by_ == 0) {
    ended_by_ = SIGPIPE;
    end_all(SIGTERM);
  }
}

void Supervisor::end_all(int number) {
  for (const Site& site : sites_) {
    if (site.process != -1) ::kill(site.process, number);
  }
  kill_at_ms_ = now_ms() + kGraceMs;
}

void Supervisor::kill_all() {
  for (const Site& site : sites_) {
    if (site.process != -1) ::kill(site.process, SIGKILL);
  }
  kill_at_ms_ = now_ms() + kAgainMs;
}

}  // namespace collab::lab
