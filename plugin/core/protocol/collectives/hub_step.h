// One step of a group at the hub: the parts that have come to it, and the result once it is decided.
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
  wire::Contribute contribute;  // its splits as running sums: where each one ends
  Payload payload;
  TimePoint since{};
  TimePoint deadline = kNever;
  HubCharge charge;       // charged to the rank that contributed it
  std::string lacking{};  // why its bytes have no room here: the step fails once all have come
};

[[nodiscard]] std::string call_text(const wire::Contribute& contribute);  // for people

class HubStep {
 public:
  [[nodiscard]] const std::map<std::uint32_t, HubPart>& parts() const { return parts_; }  // by member
  [[nodiscard]] bool has(std::uint32_t member) const { return parts_.contains(member); }
  [[nodiscard]] const std::optional<wire::StepResult>& result() const { return result_; }
  [[nodiscard]] bool has_failed() const { return result_ && !result_->error.empty(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  // of payloads
  // The first member in this call; none: no part is of it.
  [[nodiscard]] std::optional<std::uint32_t> find_call(std::uint64_t call) const;
  // A member whose part belongs to another call than the first part.
  [[nodiscard]] std::optional<std::uint32_t> stray() const;
  // The part that has waited longest, of those whose time is over; null: none.
  [[nodiscard]] const HubPart* overdue(TimePoint now) const;
  // What `member` is given: from whom, and what.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, Payload>> parts_for(std::uint32_t member) const;

  // A member for which it waited when it was last looked at: most likely it still does.
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
  bool mixed_ = false;                      // a part that came was not like the first one
  std::optional<wire::StepResult> result_;  // under the world's ballot
  TimePoint deadline_ = kNever;             // the first of its parts'
  TimePoint decided_at_ = kNever;
  bool late_ = false;  // past a deadline, and not to be ended yet
  HubWatch watch_;     // until it is decided
};

}  // namespace collab::protocol
