// Time as a parameter: the protocol never reads a clock. Its callers pass it the time.
//
// Threads: Clock implementations are safe to call from any thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace collab {

// Monotonic time of this process, in microseconds from an arbitrary origin.
struct Monotonic {
  using duration = std::chrono::microseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Monotonic>;
  static constexpr bool is_steady = true;
};
using Duration = Monotonic::duration;
using TimePoint = Monotonic::time_point;
inline constexpr TimePoint kNever = TimePoint::max();

[[nodiscard]] constexpr double seconds_of(Duration time) { return std::chrono::duration<double>(time).count(); }

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;
};

// std::chrono::steady_clock behind the interface.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override {
    return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
};

// A clock that stands still until the caller moves it; for tests and simulations.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }
  void set(TimePoint to) { now_ = to; }

 private:
  TimePoint now_{};
};

}  // namespace collab
