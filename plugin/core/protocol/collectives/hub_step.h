// One step of a group at the hub: the parts that have arrived, and the result once it is decided.
//
// Threads: one caller at a time. Ownership: plain values; payloads are shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/collectives/hub_actions.h"
#include "core/protocol/collectives/hub_agenda.h"
#include "core/protocol/collectives/hub_budget.h"

namespace collab::protocol {

// One member's part.
struct HubPart {
  wire::Contribute contribute;  // with its splits as running sums: the end of each
  Payload payload;
  TimePoint since{};
  TimePoint deadline = kNever;
  HubCharge charge;       // charged to the rank that contributed it
  std::string lacking{};  // why its bytes had no room: the step fails once all have contributed
};

[[nodiscard]] std::string call_text(const wire::Contribute& contribute);  // for people

class HubStep {
 public:
  [[nodiscard]] const std::map<std::uint32_t, HubPart>& parts() const { return parts_; }  // by member
  [[nodiscard]] bool has(std::uint32_t member) const { return parts_.contains(member); }
  [[nodiscard]] const std::optional<wire::StepResult>& result() const { return result_; }
  [[nodiscard]] bool has_failed() const { return result_ && !result_->error.empty(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  // of payloads
  // The first member in this call; none: no part belongs to the call.
  [[nodiscard]] std::optional<std::uint32_t> find_call(std::uint64_t call) const;
  // A member whose part belongs to another call than the first part.
  [[nodiscard]] std::optional<std::uint32_t> stray() const;
  // The overdue part that has waited longest; null: none is overdue.
  [[nodiscard]] const HubPart* overdue(TimePoint now) const;
  // The parts for `member`, each with the member that gives it.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, Payload>> parts_for(std::uint32_t member) const;

  // A member for which the step waited at the last look. Most likely it still waits for it.
  [[nodiscard]] std::uint32_t& hint() { return hint_; }
  void watch(HubAgenda& agenda, const HubAgenda::Step& step) { watch_.begin(agenda, step); }  // before parts are added
  void add(std::uint32_t member, HubPart part);
  void decide(wire::StepResult result, TimePoint now);
  [[nodiscard]] TimePoint decided_at() const { return decided_at_; }
  void pass_charges(const HubBudget& from, HubBudget& to);
  void note_late(TimePoint now);

 private:
  std::map<std::uint32_t, HubPart> parts_;
  std::set<std::uint32_t> givers_;                        // members whose parts have a payload
  std::map<std::uint64_t, std::uint32_t> first_in_call_;  // kept after a re-contribution
  std::size_t bytes_ = 0;
  std::uint32_t hint_ = 0;
  bool mixed_ = false;                      // some part differed from the first one
  std::optional<wire::StepResult> result_;  // under the world's ballot
  TimePoint deadline_ = kNever;             // the earliest of its parts'
  TimePoint decided_at_ = kNever;
  bool late_ = false;  // past a deadline, but cannot be ended yet
  HubWatch watch_;     // until it is decided
};

}  // namespace collab::protocol
