// What this process has sent and received, and what that leaves of COLLAB_EGRESS_BUDGET_GB: in numbers, fields of
// events and words.
//
// Threads: over(), spent() and bytes_...() for any; else the loop's. Ownership: plain values.
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
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }

  // By this process, in all; `beside`: what it has sent of optimizer states, which counts for the budget alone.
  void count(std::uint64_t sent, std::uint64_t received, std::uint64_t beside);
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
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
};

}  // namespace collab
