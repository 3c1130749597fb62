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

constexpr std::int64_t kGraceMs = 30'000;  // between passing a signal on and SIGKILL: who leaves a swarm says goodbye
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
    running_.push_back(sites[i].first_process);
    streams_.push_back({std::move(sites[i].out), Prefixer(prefix, STDOUT_FILENO)});
    streams_.push_back({std::move(sites[i].err), Prefixer(prefix, STDERR_FILENO)});
  }
}

Result<int> Supervisor::wait() {
  const sigset_t set = watched_signals();
  const Fd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.open()) return system_error("cannot wait for signals");
  while (!running_.empty() || !streams_.empty()) {
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
      if (!quiet_ && !running_.empty()) {
        std::fputs("lab: the commands are asked to end, and have 30 s; asked again, the lab kills them\n", stderr);
      }
      end_all(ended_by_ == SIGINT ? SIGINT : SIGTERM);
    } else {
      kill_all();  // asked twice
    }
  }
}

void Supervisor::collect() {
  int status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (std::erase(running_, ended) == 0) continue;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (first_failure_ == 0) first_failure_ = code;
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
  for (const pid_t process : running_) ::kill(process, number);
  kill_at_ms_ = now_ms() + kGraceMs;
}

void Supervisor::kill_all() {
  for (const pid_t process : running_) ::kill(process, SIGKILL);
  kill_at_ms_ = now_ms() + kAgainMs;
}

}  // namespace collab::lab
