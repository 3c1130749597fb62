// The state of a connection, and the deadline for the next state.
//
//   connecting ──▶ securing ──▶ greeting ──▶ attached ──▶ draining ──▶ closed
//      (dialled)    (with TLS)    hello, welcome   frames     we said all; waits for the other side's end
//   accepted connections begin in securing: their first byte tells whether they use TLS. Any state may fail to closed.
//
// Threads: one at a time. Ownership: plain values, a connection's own. The code that dials or accepts sets the
// deadline.
#pragma once

#include <cstdint>
#include <optional>

#include "collab/clock.h"

namespace collab::tcp {

class Lifecycle {
 public:
  enum class State : std::uint8_t { kConnecting, kSecuring, kGreeting, kAttached, kDraining, kClosed };

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool is(State state) const { return state_ == state; }
  [[nodiscard]] bool ends() const { return state_ == State::kDraining || state_ == State::kClosed; }

  void secure() { state_ = State::kSecuring; }
  void greet() {
    if (state_ == State::kSecuring) state_ = State::kGreeting;
  }
  void attach(TimePoint now) {
    state_ = State::kAttached;
    attached_at_ = now;
  }
  void drain() { state_ = State::kDraining; }
  void close() { state_ = State::kClosed; }

  [[nodiscard]] std::optional<TimePoint> attached_at() const { return attached_at_; }
  // The deadline for the greeting, or for the end.
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  void wait_until(TimePoint deadline) { deadline_ = deadline; }

 private:
  State state_ = State::kConnecting;
  TimePoint deadline_ = kNever;
  std::optional<TimePoint> attached_at_;
};

}  // namespace collab::tcp
