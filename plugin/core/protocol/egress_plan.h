// Makes a budget of bytes last (COLLAB_EGRESS_GB): the period between rounds grows before it is spent.
//
// Unit of time: the interval, one COLLAB_SYNC_EVERY. What is left is to last for as many intervals again as have passed
// so far. While that holds with a round an interval, nothing changes: about until half is spent. From there on the
// period grows with 1 / (what is left)^2, up to kMostIntervals, so that a budget lasts eight times as long as it would
// without. One round is kept back for the end of the training.
// Pure. Threads: one caller at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/wire/limits.h"
#include "core/wire/messages.h"

namespace collab::protocol {

// What outlives a process.
struct Egress {
  std::uint64_t spent = 0;      // bytes
  std::uint64_t intervals = 0;  // that these have lasted for
  std::uint64_t round = 0;      // bytes of a round, as lately
  bool operator==(const Egress&) const = default;
};

class EgressPlan {
 public:
  // `budget` in bytes; 0: none, and nothing is planned. `before`: by earlier processes of this site.
  explicit EgressPlan(std::uint64_t budget, Egress before = {}) : budget_(budget), before_(before), now_(before) {}

  [[nodiscard]] bool on() const { return budget_ != 0; }
  [[nodiscard]] std::uint64_t budget() const { return budget_; }
  [[nodiscard]] const Egress& so_far() const { return now_; }
  [[nodiscard]] std::uint64_t left() const { return budget_ - std::min(budget_, now_.spent); }

  // By this process, in all: rounds, and what it has lent between them.
  void sent(std::uint64_t total) { now_.spent = before_.spent + total; }

  // A round has come about, `intervals` after the one before. Its exchange took `bytes`, which are among those sent.
  void round_ended(std::uint64_t bytes, std::uint32_t intervals) {
    now_.round = std::max(bytes, now_.round - now_.round / 4);  // attempts that fail cost more
    now_.intervals += intervals;
  }

  // What a round takes, and so how many can be paid.
  [[nodiscard]] bool known() const { return now_.round != 0; }

  // That can still be paid, the one for the end not counted.
  [[nodiscard]] std::uint64_t rounds_left() const {
    const std::uint64_t rounds = left() / std::max<std::uint64_t>(1, now_.round);
    return rounds - std::min<std::uint64_t>(1, rounds);
  }

  // Until the next round: at least 1.
  [[nodiscard]] std::uint32_t intervals() const {
    if (!on() || !known()) return 1;
    const std::uint64_t rounds = rounds_left();
    if (rounds == 0) return wire::kMaxIntervals;
    const std::uint64_t wanted = (now_.intervals + rounds - 1) / rounds;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, wire::kMaxIntervals));
  }

  // To go with a round that is about to be sent, `so_far` intervals after the one before: what to do after it.
  [[nodiscard]] wire::Budget told(std::uint32_t so_far) const {
    EgressPlan after = *this;
    after.now_.spent += now_.round;
    after.now_.intervals += so_far;
    return {after.intervals(), now_.spent, budget_, known() ? after.rounds_left() : 0};
  }

  // Not even the last one can be paid.
  [[nodiscard]] bool over() const { return on() && left() < std::max<std::uint64_t>(1, now_.round); }

 private:
  std::uint64_t budget_;
  Egress before_;
  Egress now_;
};

}  // namespace collab::protocol
