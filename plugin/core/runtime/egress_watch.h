// COLLAB_EGRESS_BUDGET_GB in this process: what is spent of it, in numbers, fields of events and words.
//
// Threads: over() and spent() for any; else the loop's. Ownership: plain values.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "core/protocol/actions.h"
#include "core/protocol/site/egress_budget.h"
#include "core/runtime/events_file.h"

namespace collab {

class EgressWatch {
 public:
  // 0 `gigabytes`: any number. `before`: by earlier processes of this site.
  EgressWatch(double gigabytes, protocol::Egress before);

  // It does not pay for another round. Known between rounds.
  [[nodiscard]] bool over() const { return over_; }
  [[nodiscard]] std::uint64_t spent() const { return spent_; }

  // By this process, in all.
  void sent(std::uint64_t bytes);
  void round_ended(std::uint64_t bytes) { budget_.round_ended(bytes); }
  // What is to be said where a mark was passed. To be asked between rounds.
  [[nodiscard]] std::optional<protocol::Note> news();

  [[nodiscard]] const protocol::Egress& so_far() const { return budget_.so_far(); }
  [[nodiscard]] bool half_spent() const { return budget_.half_spent(); }
  [[nodiscard]] JsonFields fields() const;  // none without a budget
  [[nodiscard]] std::string text() const;   // empty without one

 private:
  protocol::EgressBudget budget_;
  std::atomic<std::uint64_t> spent_{0};
  std::atomic<bool> over_{false};
};

}  // namespace collab
