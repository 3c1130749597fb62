// One group of a world's ranks at the hub, and its steps.
//
//         Contribute of some              Contribute of all living, alike         ResultAck by all living
//   (none) ---------------> collecting ------------------------------> decided --------------------> it stands: Stands
//                               |                                         ^
//                               +--- a difference, a time-out, a member --+     with one hub it stands when decided
//                                    that is needed and gone: an error
//
// A step's result stands when all members that are not gone hold it under one ballot. So one member that does not hold
// it proves that no result stands. Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/protocol/collectives/hub_step.h"

namespace collab::protocol {

struct HubWorld;

class HubGroup {
 public:
  HubGroup(HubWorld& world, const wire::Assemble& message, HubCharge charge);

  [[nodiscard]] GroupId id() const { return open_.group; }
  [[nodiscard]] const std::vector<RankId>& members() const { return open_.members; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(open_.members.size()); }
  [[nodiscard]] GroupId parent() const { return open_.parent; }  // of a pair
  [[nodiscard]] std::uint32_t tag() const { return open_.tag; }
  [[nodiscard]] std::optional<std::uint32_t> member_of(RankId rank) const;
  [[nodiscard]] bool is_open_at(std::uint32_t member) const { return assembled_[member]; }
  [[nodiscard]] bool is_abandoned() const;   // all members are away, or have closed it
  [[nodiscard]] bool waits_to_send() const;  // its first member has brought a part that waits
  [[nodiscard]] std::size_t bytes_held() const;
  [[nodiscard]] std::size_t steps() const { return steps_.size(); }
  [[nodiscard]] std::string in_call_text(std::uint32_t member, const wire::Contribute& in) const;
  // The part of a member in this call that has no result yet; `in` is that member. Null: there is none.
  [[nodiscard]] const wire::Contribute* find_call(std::uint64_t call, std::uint32_t& in) const;
  void collect_calls(std::uint64_t step, CallsUnderWay& calls) const;

  void assemble(std::uint32_t member);
  // True if the part is now held. Otherwise it was refused, or is no longer needed.
  [[nodiscard]] bool contribute(std::uint32_t member, const wire::Contribute& message, const Payload& payload);
  // Whether there is no room for this part.
  [[nodiscard]] bool lacks_room(std::uint32_t member, const wire::Contribute& message, std::size_t bytes) const;
  // A member that has not taken so much that this part cannot be held. The call then fails.
  [[nodiscard]] std::optional<RankId> find_slow_receiver(std::uint32_t member, const wire::Contribute& message,
                                                         std::size_t bytes) const;
  // Parts charged to `member` that are held only because another member has not taken them are charged to that one.
  void pass_charges(std::uint32_t member);
  [[nodiscard]] bool is_late(std::uint32_t member) const;  // lacks a result that was decided a grace ago
  void on_result_ack(std::uint32_t member, const wire::ResultAck& message);
  void give_up(const std::string& why);    // fails every step from now on
  void send_errors(std::uint32_t member);  // errors that the member does not know
  void catch_up();                         // learns what its members hold
  void settle();                           // a member is gone
  void settle(std::uint64_t step);
  void on_due(std::uint64_t step);  // the step's deadline has passed

 private:
  // The knowledge about a step that this hub has not decided.
  enum class Phase : std::uint8_t {
    kOpen,     // a member here does not hold a result: none stands
    kUnknown,  // all members here hold a result; others are still to come
    kHeld,     // all members hold the same result: it stands
    kStands,   // a member has completed the step
  };
  [[nodiscard]] bool is_away(std::uint32_t member) const;
  [[nodiscard]] std::uint64_t completed_by(std::uint32_t member) const;
  // Whether a living member has not reached any of the steps shortly before this one.
  [[nodiscard]] bool is_far_ahead(std::uint64_t step) const;
  // Whether is_so(member) is true for any member. `hint` is tried first, and is set to the member found.
  template <typename F>
  [[nodiscard]] bool any_member(std::uint32_t& hint, F is_so) const;
  // Empty: the part may be held.
  [[nodiscard]] std::string why_bad(std::uint32_t member, const wire::Contribute& message, std::size_t bytes) const;
  [[nodiscard]] std::string why_not_held(std::uint32_t member, const wire::Contribute& message,
                                         std::size_t bytes) const;
  [[nodiscard]] std::string unacknowledged_text(RankId slow, const wire::Contribute& message) const;
  // Whether this part may make the step fail: it is within its rank's bound, but other ranks hold so much that it has
  // no room.
  [[nodiscard]] bool is_crowded_out(std::uint32_t member, const wire::Contribute& message, std::size_t bytes) const;
  [[nodiscard]] std::string why_failed(const wire::Contribute& call, const std::vector<std::uint32_t>& absent) const;
  [[nodiscard]] std::size_t held_in_step(std::uint32_t member, std::uint64_t step) const;
  [[nodiscard]] bool lacks(std::uint32_t member, std::uint64_t number) const;  // not held, though decided here
  [[nodiscard]] bool has_stood(std::uint64_t number) const;
  [[nodiscard]] Phase phase_of(std::uint64_t number) const;
  void hold(std::uint32_t member, HubPart part);
  std::optional<HubCharge> charge_without_bytes(std::uint32_t member, const wire::Contribute& message);
  void fail_for(std::uint32_t member, const wire::Contribute& message, const std::string& why);  // holds no bytes
  void try_to_decide(std::uint64_t number);
  void time_out(std::uint64_t number);
  void fail(std::uint64_t number, std::string error);
  void decide(std::uint64_t number, wire::StepResult result);
  void answer(std::uint64_t number, std::uint32_t member);
  void conclude(std::uint64_t number);
  void stand(std::uint64_t number);
  void complete(std::uint32_t member, std::uint64_t step);
  void send_too_late(std::uint64_t number, std::uint32_t member);

  HubWorld& world_;
  wire::Assemble open_;
  HubCharge charge_;  // charged to the rank that opened the group first
  std::map<RankId, std::uint32_t> places_;
  std::vector<bool> assembled_;      // the members that have opened it
  std::vector<std::uint64_t> came_;  // the last step that each member has contributed to
  std::map<std::uint64_t, HubStep> steps_;
  std::uint64_t newest_decided_ = 0;
  std::uint64_t newest_stood_ = 0;            // at this hub
  mutable std::uint64_t most_completed_ = 0;  // upper bound over all members
  mutable std::uint64_t recalls_ = 0;         // recalls() when most_completed_ was computed
  mutable std::uint32_t here_ = 0;            // hint: a member that was not away
  mutable std::uint32_t holds_nothing_ = 0;   // hint: a member that held no result
  std::string given_up_;                      // why every step fails; empty: the group goes on
};

// How much a part counts against its rank's budget.
[[nodiscard]] std::size_t cost_of(const wire::Contribute& contribute, std::size_t bytes);
[[nodiscard]] std::string calls_differ(const std::string& one, const std::string& other);  // texts of in_call_text()

}  // namespace collab::protocol
