// A helper's state at its node: when it offers itself for another round, and what its operator is told. At a site that
// trains it is off.
//
// Threads: the node's loop. Ownership: plain values.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "collab/clock.h"
#include "collab/status.h"

namespace collab {

class HelperState {
 public:
  static constexpr Duration kBetweenOffers = std::chrono::seconds(1);  // after a round that did not come about

  using Callback = std::function<void(const Status&)>;  // ok once it has joined; later the reason why it ended
  explicit HelperState(Callback told) : told_(std::move(told)) {}

  [[nodiscard]] bool on() const { return told_ != nullptr; }
  // It has not joined yet.
  [[nodiscard]] bool is_joining() const { return on() && !joined_; }
  void joined(TimePoint now) {
    joined_ = true;
    round_over(now);
    told_({});
  }
  void round_over(TimePoint now) { next_round_ = on() ? now : kNever; }
  void round_skipped(TimePoint now) { round_over(now + kBetweenOffers); }
  void ended(const Status& why) {
    if (on()) told_(why);
  }

  [[nodiscard]] TimePoint next_deadline() const { return next_round_; }
  // True once when it is time to offer itself.
  [[nodiscard]] bool is_due(TimePoint now) {
    if (now < next_round_) return false;
    next_round_ = kNever;
    return true;
  }

 private:
  Callback told_;
  bool joined_ = false;
  TimePoint next_round_ = kNever;
};

}  // namespace collab
