// What the hub of a meeting knows. Private to meeting*.cpp.
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
#include "core/protocol/collectives/hub_limits.h"
#include "core/protocol/collectives/hub_budget.h"
#include "core/protocol/quorum.h"

namespace collab::protocol {

// One member's part of a step.
struct MeetingPart {
  wire::Bring bring;
  Payload payload;
  TimePoint since{};
  TimePoint deadline = kNever;
  MeetingCharge charge;  // of who has brought it
};

struct MeetingStep {
  std::map<std::uint32_t, MeetingPart> parts;  // by member
  std::optional<wire::Outcome> decided;        // under the room's ballot
  bool late = false;                           // past a deadline, and not to be ended yet
};

struct MeetingGroup {
  GroupId id;
  std::vector<RankId> members;
  GroupId parent;
  std::uint32_t tag = 0;
  std::vector<bool> assembled;  // the members that have opened it
  std::map<std::uint64_t, MeetingStep> steps;
  std::uint64_t newest_decided = 0;
  std::string given_up;                  // why every step of it fails; empty: it goes on
  std::shared_ptr<MeetingShare> opener;  // of who has opened it first
  MeetingCharge charge;                  // its
};

struct MeetingRank {
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
  std::shared_ptr<MeetingShare> parts;   // what the hub holds of it
  std::shared_ptr<MeetingShare> memory;  // what the hub remembers for it
  std::size_t entered_with = 0;          // entries of `completed` and `held` that it has named
  MeetingCharge named;                   // for those, and for `closed`
  [[nodiscard]] bool away() const { return left || !gone.empty(); }
};

// Who is gone: the proposer's side of a chain of memberships, each decided by the one before.
struct MeetingRegister {
  wire::Ballot ballot;
  wire::Epoch chosen;           // the newest that is known
  wire::Ballot reported_under;  // the newest ballot under which an acceptor has accepted `reported`; no term: none
  wire::Epoch reported;
  std::optional<wire::Epoch> proposal;  // under the ballot, after `chosen`
  std::set<std::uint32_t> accepted_by;
  bool leads = false;  // enough have promised the ballot, and what older ones may have chosen is chosen
};

// The newest step of a group that is known to stand.
struct MeetingStood {
  std::uint64_t step = 0;
  MeetingCharge charge;  // of who has said so, or has opened the group
};

// A rank, and in which group and with which tag it looks for a sender.
using MeetingSeek = std::pair<RankId, std::pair<GroupId, std::uint32_t>>;

// One world.
struct MeetingRoom {
  std::vector<std::string> sites;
  std::vector<std::uint32_t> site_of;
  std::vector<MeetingRank> ranks;
  std::map<GroupId, MeetingGroup> groups;
  std::map<GroupId, MeetingStood> stood;
  std::map<MeetingSeek, MeetingCharge> seeks;
  MeetingRegister epochs;
  bool only_hub = true;              // it decides alone, at once
  std::set<std::uint32_t> suspects;  // silent, and judged together
  TimePoint hold = kNever;           // others may have fallen silent with the first: until then nobody is judged
  TimePoint unseen = kNever;         // ranks that have not come by then are silent
  TimePoint heard{};                 // of any of its ranks
};

// How a step stands that this hub has not decided.
enum class Standing : std::uint8_t {
  kOpen,     // a member that is here does not hold it: no outcome of it stands
  kUnknown,  // all that are here hold it, others are still to come
  kHeld,     // all hold the same: it stands
  kStood,    // a member has completed it
};

struct Meeting::State {
  MeetingConfig config;
  TimePoint now{};
  std::uint64_t rooms_begun = 0;
  std::map<std::uint64_t, MeetingRoom> rooms;
  std::map<LinkId, std::pair<std::uint64_t, RankId>> links;
  std::set<LinkId> hung_up;  // until they are closed
  std::vector<MeetingAction> actions;
  std::shared_ptr<MeetingHeld> parts = std::make_shared<MeetingHeld>(MeetingHeld{kMaxRankParts, kMaxHubParts});
  std::shared_ptr<MeetingHeld> memory = std::make_shared<MeetingHeld>(MeetingHeld{kMaxRankMemory, kMaxHubMemory});

  // ---- collective_hub.cpp: who is there
  void received(const MeetingReceived& event);
  void enter(LinkId link, const wire::Enter& message);
  MeetingRoom* room_for(LinkId link, const wire::Enter& message);
  [[nodiscard]] std::string make_room(const wire::Enter& message);
  [[nodiscard]] std::string why_refused(const MeetingRoom& room, const wire::Enter& message) const;
  void gather(MeetingRoom& room, bool returning);
  void note_memory(MeetingRoom& room, const wire::Enter& message);
  [[nodiscard]] bool is_named(MeetingRoom& room, const wire::Enter& message);
  void note_closed(MeetingRank& rank) const;
  [[nodiscard]] bool remembers(MeetingRoom& room, RankId rank, std::size_t bytes, const std::string& what);
  void refuse(LinkId link, const std::string& why);
  void hang_up(LinkId link, const std::string& why);
  void leave(MeetingRoom& room, RankId rank, const std::string& why);
  void closed(LinkId link);
  void tick();
  [[nodiscard]] TimePoint judged_at(const MeetingRoom& room, std::uint32_t rank) const;
  [[nodiscard]] TimePoint deserted_at(const MeetingRoom& room) const;
  void send(LinkId link, wire::Message message, Payload payload = {});
  void note(Note::Level level, const char* event, std::string text);

  // ---- hub_register.cpp: who is gone
  void raise(MeetingRoom& room, std::uint64_t term);
  void advance(MeetingRoom& room);
  void admit(MeetingRoom& room);
  void propose(MeetingRoom& room, const wire::Epoch& epoch);
  void accepted(MeetingRoom& room, RankId rank, const wire::AcceptedEpoch& message);
  void choose(MeetingRoom& room, const wire::Epoch& epoch);
  void mark_gone(MeetingRoom& room, const std::vector<RankId>& ranks, const std::string& why);
  void judge_silent(MeetingRoom& room);
  void judge_quorum(MeetingRoom& room);
  void dismiss(MeetingRoom& room, const std::string& why);
  [[nodiscard]] bool is_promised(const MeetingRoom& room) const;
  [[nodiscard]] bool is_accepted(const MeetingRoom& room) const;
  [[nodiscard]] std::vector<wire::Voter> missing(const MeetingRoom& room) const;
  [[nodiscard]] bool is_lone(const MeetingRoom& room) const;
  [[nodiscard]] bool is_silent(const MeetingRoom& room, std::uint32_t rank) const;
  [[nodiscard]] wire::Epoch next_epoch(const MeetingRoom& room) const;

  // ---- hub_steps.cpp: what they do together
  void assemble(MeetingRoom& room, RankId rank, const wire::Assemble& message);
  void disband(MeetingRoom& room, RankId rank, const wire::Disband& message);
  void bring(MeetingRoom& room, RankId rank, const wire::Bring& message, const BufferPtr& payload);
  [[nodiscard]] std::string why_not_held(const MeetingRoom& room, const MeetingGroup& group, std::uint32_t member,
                                         const wire::Bring& message, std::size_t bytes) const;
  void taken(MeetingRoom& room, RankId rank, const wire::Taken& message);
  void seek(MeetingRoom& room, RankId rank, const wire::Seek& message);
  void compare_with_twin(MeetingRoom& room, MeetingGroup& group, std::uint64_t number, std::uint32_t member);
  void give_up(MeetingRoom& room, MeetingGroup& group, const std::string& why);
  void tell_seeker(MeetingRoom& room, const MeetingGroup& pair);

  // ---- hub_results.cpp: how a step ends
  void catch_up(MeetingRoom& room, RankId rank);  // it is in
  void catch_up(MeetingRoom& room, MeetingGroup& group);
  void recheck(MeetingRoom& room);  // somebody is gone, or time has passed
  void settle_all(MeetingRoom& room, MeetingGroup& group);
  void settle(MeetingRoom& room, MeetingGroup& group, std::uint64_t number);
  void try_to_decide(MeetingRoom& room, MeetingGroup& group, std::uint64_t number);
  void time_out(MeetingRoom& room, MeetingGroup& group, std::uint64_t number);
  void note_late(MeetingRoom& room);
  void decide(MeetingRoom& room, MeetingGroup& group, std::uint64_t number, wire::Outcome outcome);
  void fail(MeetingRoom& room, MeetingGroup& group, std::uint64_t number, std::string error);
  void answer(MeetingRoom& room, MeetingGroup& group, std::uint64_t number, std::uint32_t member);
  void conclude(MeetingRoom& room, MeetingGroup& group, std::uint64_t number);
  void stand(MeetingRoom& room, MeetingGroup& group, std::uint64_t number);
  void pass_on(MeetingRoom& room, MeetingGroup& group, std::uint64_t number);
};

[[nodiscard]] std::string rank_in_words(const MeetingRoom& room, RankId rank);
[[nodiscard]] std::string left_out_in_words(const MeetingRoom& room, RankId rank);
[[nodiscard]] std::string call_in_words(const wire::Bring& bring);
[[nodiscard]] std::string differ(const MeetingRoom& room, RankId a, const wire::Bring& in_a, RankId b,
                                 const wire::Bring& in_b);
[[nodiscard]] MeetingGroup* group_of(MeetingRoom& room, GroupId id);
[[nodiscard]] std::optional<std::uint32_t> member_of(const MeetingGroup& group, RankId rank);
[[nodiscard]] bool is_away(const MeetingRoom& room, const MeetingGroup& group, std::uint32_t member);
[[nodiscard]] std::uint64_t newest_stood(const MeetingRoom& room, GroupId group);
[[nodiscard]] std::string in_bytes(std::size_t bytes);  // "16 MiB", "100 bytes"
[[nodiscard]] std::uint64_t completed_by(const MeetingRoom& room, const MeetingGroup& group, std::uint32_t member);

}  // namespace collab::protocol
