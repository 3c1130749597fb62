// How far a connection is, and by when it is to be further.
//
//   connecting ──▶ securing ──▶ greeting ──▶ attached ──▶ draining ──▶ closed
//      (dialled)    (with TLS)    hello, welcome   frames     we said all; waits for the other side's end
//   accepted connections begin in securing: their first byte tells whether it is TLS. Any state may fail to closed.
//
// Threads: one at a time. Ownership: plain values, a connection's own; the code that dials or accepts says by when.
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
  // By when it is to have greeted, or ended.
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  void wait_until(TimePoint deadline) { deadline_ = deadline; }

 private:
  State state_ = State::kConnecting;
  TimePoint deadline_ = kNever;
  std::optional<TimePoint> attached_at_;
};

}  // namespace collab::tcp
