// What a collective hub knows. Private to collective_hub*.cpp and hub_*.cpp.
//
// Threads: one caller at a time. Ownership: plain values; payloads are shared.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/collectives/collective_hub.h"
#include "core/protocol/collectives/hub_budget.h"
#include "core/protocol/collectives/hub_limits.h"
#include "core/protocol/quorum.h"

namespace collab::protocol {

// One member's part of a step.
struct HubPart {
  wire::Contribute contribute;
  Payload payload;
  TimePoint since{};
  TimePoint deadline = kNever;
  HubCharge charge;  // of who has brought it
};

struct HubStep {
  std::map<std::uint32_t, HubPart> parts;   // by member
  std::optional<wire::StepResult> decided;  // under the room's ballot
  bool late = false;                        // past a deadline, and not to be ended yet
};

struct HubGroup {
  GroupId id;
  std::vector<RankId> members;
  GroupId parent;
  std::uint32_t tag = 0;
  std::vector<bool> assembled;  // the members that have opened it
  std::map<std::uint64_t, HubStep> steps;
  std::uint64_t newest_decided = 0;
  std::string given_up;               // why every step of it fails; empty: it goes on
  std::shared_ptr<HubBudget> opener;  // of who has opened it first
  HubCharge charge;                   // its
};

struct HubRank {
  AcceptorId acceptor{};  // the process; 0: it has never come
  LinkId link{};          // 0: none now
  TimePoint heard{};
  bool entered = false;   // since this hub waits for the ranks of its world
  bool asked = false;     // on this link, for the ballot
  bool promised = false;  // the ballot
  bool in = false;        // it was told Entered under the ballot, on this link: what it said below counts
  bool left = false;
  std::string gone;  // why; empty: it is not
  std::map<GroupId, std::uint64_t> completed;
  std::map<GroupId, std::map<std::uint64_t, wire::Ballot>> held;  // by step
  std::set<GroupId> closed;
  std::shared_ptr<HubBudget> parts;   // what the hub holds of it
  std::shared_ptr<HubBudget> memory;  // what the hub remembers for it
  std::size_t entered_with = 0;       // entries of `completed` and `held` that it has named
  HubCharge named;                    // for those, and for `closed`
  [[nodiscard]] bool away() const { return left || !gone.empty(); }
};

// Who is gone: the proposer's side of a chain of memberships, each decided by the one before.
struct HubRegister {
  wire::Ballot ballot;
  wire::Epoch chosen;           // the newest that is known
  wire::Ballot reported_under;  // the newest ballot under which an acceptor has accepted `reported`; no term: none
  wire::Epoch reported;
  std::optional<wire::Epoch> proposal;  // under the ballot, after `chosen`
  std::set<std::uint32_t> accepted_by;
  bool leads = false;  // enough have promised the ballot, and what older ones may have chosen is chosen
};

// The newest step of a group that is known to stand.
struct HubStood {
  std::uint64_t step = 0;
  HubCharge charge;  // of who has said so, or has opened the group
};

// A rank, and in which group and with which tag it looks for a sender.
using HubSeek = std::pair<RankId, std::pair<GroupId, std::uint32_t>>;

// One world.
struct HubWorld {
  std::vector<std::string> sites;
  std::vector<std::uint32_t> site_of;
  std::vector<HubRank> ranks;
  std::map<GroupId, HubGroup> groups;
  std::map<GroupId, HubStood> stood;
  std::map<HubSeek, HubCharge> resolving;
  HubRegister epochs;
  bool only_hub = true;              // it decides alone, at once
  std::set<std::uint32_t> suspects;  // silent, and judged together
  TimePoint hold = kNever;           // others may have fallen silent with the first: until then nobody is judged
  TimePoint unseen = kNever;         // ranks that have not come by then are silent
  TimePoint heard{};                 // of any of its ranks
};

// How a step stands that this hub has not decided.
enum class StepPhase : std::uint8_t {
  kOpen,     // a member that is here does not hold it: no outcome of it stands
  kUnknown,  // all that are here hold it, others are still to come
  kHeld,     // all hold the same: it stands
  kStood,    // a member has completed it
};

struct CollectiveHub::State {
  HubConfig config;
  TimePoint now{};
  std::uint64_t rooms_begun = 0;
  std::map<std::uint64_t, HubWorld> rooms;
  std::map<LinkId, std::pair<std::uint64_t, RankId>> links;
  std::set<LinkId> hung_up;  // until they are closed
  std::vector<HubAction> actions;
  std::shared_ptr<HubHeld> parts = std::make_shared<HubHeld>(HubHeld{kMaxRankParts, kMaxHubParts});
  std::shared_ptr<HubHeld> memory = std::make_shared<HubHeld>(HubHeld{kMaxRankMemory, kMaxHubMemory});

  // ---- collective_hub.cpp: who is there
  void received(const HubReceived& event);
  void enter(LinkId link, const wire::Enter& message);
  HubWorld* room_for(LinkId link, const wire::Enter& message);
  [[nodiscard]] std::string make_room(const wire::Enter& message);
  [[nodiscard]] std::string why_refused(const HubWorld& room, const wire::Enter& message) const;
  void gather(HubWorld& room, bool returning);
  void note_memory(HubWorld& room, const wire::Enter& message);
  [[nodiscard]] bool is_named(HubWorld& room, const wire::Enter& message);
  void note_closed(HubRank& rank) const;
  [[nodiscard]] bool remembers(HubWorld& room, RankId rank, std::size_t bytes, const std::string& what);
  void refuse(LinkId link, const std::string& why);
  void hang_up(LinkId link, const std::string& why);
  void leave(HubWorld& room, RankId rank, const std::string& why);
  void closed(LinkId link);
  void tick();
  [[nodiscard]] TimePoint judged_at(const HubWorld& room, std::uint32_t rank) const;
  [[nodiscard]] TimePoint deserted_at(const HubWorld& room) const;
  void send(LinkId link, wire::Message message, Payload payload = {});
  void note(Note::Level level, const char* event, std::string text);

  // ---- hub_register.cpp: who is gone
  void raise(HubWorld& room, std::uint64_t term);
  void advance(HubWorld& room);
  void admit(HubWorld& room);
  void propose(HubWorld& room, const wire::Epoch& epoch);
  void accepted(HubWorld& room, RankId rank, const wire::AcceptedEpoch& message);
  void choose(HubWorld& room, const wire::Epoch& epoch);
  void mark_gone(HubWorld& room, const std::vector<RankId>& ranks, const std::string& why);
  void judge_silent(HubWorld& room);
  void judge_quorum(HubWorld& room);
  void dismiss(HubWorld& room, const std::string& why);
  [[nodiscard]] bool is_promised(const HubWorld& room) const;
  [[nodiscard]] bool is_accepted(const HubWorld& room) const;
  [[nodiscard]] std::vector<wire::Voter> missing(const HubWorld& room) const;
  [[nodiscard]] bool is_lone(const HubWorld& room) const;
  [[nodiscard]] bool is_silent(const HubWorld& room, std::uint32_t rank) const;
  [[nodiscard]] wire::Epoch next_epoch(const HubWorld& room) const;

  // ---- hub_steps.cpp: what they do together
  void assemble(HubWorld& room, RankId rank, const wire::Assemble& message);
  void disband(HubWorld& room, RankId rank, const wire::Disband& message);
  void contribute(HubWorld& room, RankId rank, const wire::Contribute& message, const BufferPtr& payload);
  [[nodiscard]] std::string why_not_held(const HubWorld& room, const HubGroup& group, std::uint32_t member,
                                         const wire::Contribute& message, std::size_t bytes) const;
  void taken(HubWorld& room, RankId rank, const wire::ResultAck& message);
  void resolve(HubWorld& room, RankId rank, const wire::ResolveSender& message);
  void compare_with_twin(HubWorld& room, HubGroup& group, std::uint64_t number, std::uint32_t member);
  void give_up(HubWorld& room, HubGroup& group, const std::string& why);
  void tell_resolver(HubWorld& room, const HubGroup& pair);

  // ---- hub_results.cpp: how a step ends
  void catch_up(HubWorld& room, RankId rank);  // it is in
  void catch_up(HubWorld& room, HubGroup& group);
  void recheck(HubWorld& room);  // somebody is gone, or time has passed
  void settle_all(HubWorld& room, HubGroup& group);
  void settle(HubWorld& room, HubGroup& group, std::uint64_t number);
  void try_to_decide(HubWorld& room, HubGroup& group, std::uint64_t number);
  void time_out(HubWorld& room, HubGroup& group, std::uint64_t number);
  void note_late(HubWorld& room);
  void decide(HubWorld& room, HubGroup& group, std::uint64_t number, wire::StepResult result);
  void fail(HubWorld& room, HubGroup& group, std::uint64_t number, std::string error);
  void answer(HubWorld& room, HubGroup& group, std::uint64_t number, std::uint32_t member);
  void conclude(HubWorld& room, HubGroup& group, std::uint64_t number);
  void stand(HubWorld& room, HubGroup& group, std::uint64_t number);
  void pass_on(HubWorld& room, HubGroup& group, std::uint64_t number);
};

[[nodiscard]] std::string rank_text(const HubWorld& room, RankId rank);
[[nodiscard]] std::string left_out_text(const HubWorld& room, RankId rank);
[[nodiscard]] std::string call_text(const wire::Contribute& contribute);
[[nodiscard]] std::string differ(const HubWorld& room, RankId a, const wire::Contribute& in_a, RankId b,
                                 const wire::Contribute& in_b);
[[nodiscard]] HubGroup* group_of(HubWorld& room, GroupId id);
[[nodiscard]] std::optional<std::uint32_t> member_of(const HubGroup& group, RankId rank);
[[nodiscard]] bool is_away(const HubWorld& room, const HubGroup& group, std::uint32_t member);
[[nodiscard]] std::uint64_t newest_stood(const HubWorld& room, GroupId group);
[[nodiscard]] std::string in_bytes(std::size_t bytes);  // "16 MiB", "100 bytes"
[[nodiscard]] std::uint64_t completed_by(const HubWorld& room, const HubGroup& group, std::uint32_t member);

}  // namespace collab::protocol
