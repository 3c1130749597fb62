// The bytes that this process has sent and received, and what is left of COLLAB_EGRESS_BUDGET_GB: as numbers, as event
// fields and in words.
//
// Threads: over(), spent() and bytes_...() any; else the loop's. Ownership: plain values.
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
  // `gigabytes` 0: no limit. `before`: what earlier processes of this site have sent.
  EgressWatch(double gigabytes, protocol::Egress before);

  // The budget does not cover another round. Updated between rounds.
  [[nodiscard]] bool over() const { return over_; }
  [[nodiscard]] std::uint64_t spent() const { return spent_; }
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }

  // The totals of this process. `beside`: bytes of optimizer states that it has sent; they count for the budget alone.
  void count(std::uint64_t sent, std::uint64_t received, std::uint64_t beside);
  void round_ended(std::uint64_t bytes) { budget_.round_ended(bytes); }
  // A note if spending has passed a mark. Called between rounds.
  [[nodiscard]] std::optional<protocol::Note> news();

  [[nodiscard]] const protocol::Egress& so_far() const { return budget_.so_far(); }
  [[nodiscard]] bool half_spent() const { return budget_.half_spent(); }
  [[nodiscard]] JsonFields fields() const;  // none without a budget
  [[nodiscard]] std::string text() const;   // empty without a budget

 private:
  protocol::EgressBudget budget_;
  std::atomic<std::uint64_t> spent_{0};
  std::atomic<bool> over_{false};
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
};

}  // namespace collab
