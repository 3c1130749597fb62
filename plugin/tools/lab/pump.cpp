#include "tools/lab/pump.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "tools/lab/host_network.h"

namespace collab::lab {
namespace {

constexpr int kReadsATurn = 64;
constexpr Time kLongestSleep = std::chrono::seconds(1);

timespec to_timespec(Time time) {
  return {.tv_sec = static_cast<time_t>(time.count() / 1'000'000'000), .tv_nsec = time.count() % 1'000'000'000};
}

// Delays are only as exact as our wake-ups. So this thread runs before ordinary threads if allowed, and without timer
// slack.
void hurry() {
  sched_param priority{};
  priority.sched_priority = 1;
  if (::pthread_setschedparam(::pthread_self(), SCHED_RR, &priority) != 0) {
    ::setpriority(PRIO_PROCESS, 0,
                  -10);  // also refused to ordinary users; then only an idle machine gives exact delays
  }
  ::prctl(PR_SET_TIMERSLACK, 1000);
}

}  // namespace

Pump::Pump(const NetworkSpec& spec, std::vector<int> tuns, std::vector<ScriptStep> script,
           std::function<void(const ScriptStep&)> say, std::FILE* capture)
    : network_(spec),
      tuns_(std::move(tuns)),
      script_(std::move(script)),
      say_(std::move(say)),
      capture_(capture),
      by_host_(tuns_.size()) {}

Status Pump::prepare() {
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.open()) return system_error("cannot make an eventfd");
  begin_ = now();
  return {};
}

void Pump::run() {
  hurry();
  while (!stop_.load(std::memory_order_acquire) && failure_.empty()) {
    const Time at = now() - begin_;
    run_script(at);
    const bool received = take_in(at);
    const bool delivered = give_out(at);
    sleep_until_due(at, received || delivered);
  }
  elapsed_ = now() - begin_;
  if (capture_ != nullptr) std::fflush(capture_);
}

void Pump::stop() {
  stop_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

bool Pump::take_in(Time now) {
  bool any = false;
  for (HostIndex host = 0; host < tuns_.size(); ++host) {
    incoming_.clear();
    const Status read = read_packets(tuns_[host], kReadsATurn, incoming_);
    if (!read.ok()) failure_ = read.message();
    any = any || !incoming_.empty();
    for (Packet& packet : incoming_) network_.send(now, host, std::move(packet));
  }
  return any;
}

bool Pump::give_out(Time now) {
  network_.advance(now, due_);
  for (const Delivery& delivery : due_) {
    if (capture_ != nullptr) record(delivery);
    by_host_[delivery.to].push_back(&delivery.packet);
  }
  for (HostIndex host = 0; host < tuns_.size(); ++host) {
    write_packets(tuns_[host], by_host_[host]);
    by_host_[host].clear();
  }
  const bool any = !due_.empty();
  due_.clear();
  return any;
}

void Pump::run_script(Time now) {
  for (; next_step_ < script_.size() && script_[next_step_].at <= now; ++next_step_) {
    network_.apply(now, script_[next_step_].change);
    say_(script_[next_step_]);
  }
}

void Pump::sleep_until_due(Time now, bool busy) {
  if (busy) {
    const timespec until = to_timespec(begin_ + now + kQuantum);
    ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    return;
  }
  Time due = std::min(network_.next(), now + kLongestSleep);
  if (next_step_ < script_.size()) due = std::min(due, script_[next_step_].at);
  const Time left = std::max(due - (this->now() - begin_), Time::zero());
  std::vector<pollfd> waits{{wake_.get(), POLLIN, 0}};
  for (const int tun : tuns_) waits.push_back({tun, POLLIN, 0});
  const timespec longest = to_timespec(left);
  ::ppoll(waits.data(), waits.size(), &longest, nullptr);
}

Time Pump::now() const {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

Status begin_capture(std::FILE* file) {
  const std::uint32_t header[6] = {0xA1B2'3C4D, 2 | 4 << 16, 0, 0, 0x4'0000, 101};  // times in ns, LINKTYPE_RAW
  if (std::fwrite(header, sizeof header, 1, file) != 1) return system_error("cannot write the capture");
  return {};
}

void Pump::record(const Delivery& delivery) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(delivery.at);
  const auto size = static_cast<std::uint32_t>(delivery.packet.bytes.size());
  const std::uint32_t header[4] = {static_cast<std::uint32_t>(seconds.count()),
                                   static_cast<std::uint32_t>((delivery.at - seconds).count()), size, size};
  if (std::fwrite(header, sizeof header, 1, capture_) != 1 ||
      std::fwrite(delivery.packet.bytes.data(), 1, size, capture_) != size) {
    failure_ = "the capture cannot be written";
  }
}

}  // namespace collab::lab
