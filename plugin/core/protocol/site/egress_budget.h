// How much a site may send (COLLAB_EGRESS_BUDGET_GB), and how much it has sent. The budget binds only that site.
//
// Pure. Threads: one caller at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace collab::protocol {

// What outlives a process.
struct Egress {
  std::uint64_t spent = 0;  // bytes
  std::uint64_t round = 0;  // bytes that a round takes, as of late
  bool operator==(const Egress&) const = default;
};

class EgressBudget {
 public:
  // The result of news() if the next round does not fit.
  static constexpr unsigned kOver = 100;

  // `total` in bytes; 0: no limit. `before`: sent by earlier processes of this site, which have reported it.
  explicit EgressBudget(std::uint64_t total, Egress before = {})
      : total_(total), before_(before), now_(before), told_(percent()) {}

  [[nodiscard]] bool on() const { return total_ != 0; }
  [[nodiscard]] std::uint64_t total() const { return total_; }
  [[nodiscard]] const Egress& so_far() const { return now_; }
  [[nodiscard]] std::uint64_t left() const { return total_ - std::min(total_, now_.spent); }

  // `bytes`: sent by this process in all, for rounds and to joiners between them.
  void sent(std::uint64_t bytes) { now_.spent = before_.spent + bytes; }

  // A round has ended. Its exchange took `bytes`, which sent() includes.
  void round_ended(std::uint64_t bytes) {
    now_.round = std::max(bytes, now_.round - now_.round / 4);  // attempts that fail cost more
  }

  // Whether the cost of a round is known, and how many rounds are left at that cost.
  [[nodiscard]] bool known() const { return now_.round != 0; }
  [[nodiscard]] std::uint64_t rounds_left() const { return left() / std::max<std::uint64_t>(1, now_.round); }

  [[nodiscard]] bool half_spent() const { return percent() >= 50; }
  // The next round does not fit.
  [[nodiscard]] bool over() const { return on() && rounds_left() == 0; }

  // The highest mark that was passed and is not reported yet: 50, 80 or 95 percent, or kOver. 0: none.
  [[nodiscard]] unsigned news() {
    const unsigned reached = over() ? kOver : percent();
    if (reached <= told_) return 0;
    told_ = reached;
    return reached;
  }

 private:
  // The highest mark that was reached; 0: none.
  [[nodiscard]] unsigned percent() const {
    for (const unsigned mark : {95U, 80U, 50U}) {
      const std::uint64_t bytes = total_ / 100 * mark + (total_ % 100 * mark + 99) / 100;
      if (on() && now_.spent >= bytes) return mark;
    }
    return 0;
  }

  std::uint64_t total_;
  Egress before_;
  Egress now_;
  unsigned told_;
};

}  // namespace collab::protocol
