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

#include "core/protocol/meeting.h"

namespace collab::protocol {

// One member's part of a step.
struct MeetingPart {
  wire::Bring bring;
  Payload payload;
  TimePoint since{};
  TimePoint deadline = kNever;
};

struct MeetingStep {
  std::uint64_t number = 0;
  std::map<std::uint32_t, MeetingPart> parts;  // by member
  std::map<std::uint32_t, Payload> loose;      // parts of members that are gone, from one that was given them
  std::set<std::uint32_t> asked;               // members that have completed it, to whom a Recall went
  std::set<std::uint32_t> awaited;             // those of them that have not answered
  std::optional<wire::Outcome> decided;        // here, or by an earlier hub
  bool complete = false;                       // it can be answered
};

struct MeetingGroup {
  GroupId id;
  std::vector<RankId> members;
  GroupId parent;
  std::uint32_t tag = 0;
  std::map<std::uint32_t, std::uint64_t> completed;  // by member, once it has assembled
  std::set<std::uint32_t> disbanded;
  std::map<std::uint64_t, MeetingStep> steps;
  std::string given_up;  // why every step of it fails; empty: it goes on
};

struct MeetingRank {
  LinkId link{};  // 0: none now
  TimePoint heard{};
  bool entered = false;
  bool left = false;
  std::string gone;  // why; empty: it is not
  [[nodiscard]] bool away() const { return left || !gone.empty(); }
};

// One world.
struct MeetingRoom {
  std::vector<std::string> sites;
  std::vector<std::uint32_t> site_of;
  std::vector<MeetingRank> ranks;
  std::map<GroupId, MeetingGroup> groups;
  std::set<std::pair<RankId, std::pair<GroupId, std::uint32_t>>> seeks;  // who looks for a sender, in (group, tag)
  bool only_hub = true;
  std::string minority;       // why it may not go on without those that are gone; empty: it may
  TimePoint hold = kNever;    // others may have fallen silent with the first: until then nobody is left out
  TimePoint unseen = kNever;  // ranks that have not come by then are gone
};

struct Meeting::State {
  MeetingConfig config;
  TimePoint now{};
  std::map<std::uint64_t, MeetingRoom> rooms;
  std::map<LinkId, std::pair<std::uint64_t, RankId>> links;
  std::vector<MeetingAction> actions;

  // ---- meeting.cpp: who is there
  void received(const MeetingReceived& event);
  void enter(LinkId link, const wire::Enter& message);
  void refuse(LinkId link, const std::string& why);
  void leave(MeetingRoom& room, RankId rank, const std::string& why);
  void mark_gone(MeetingRoom& room, RankId rank, const std::string& why);
  void closed(LinkId link);
  void tick();
  void look_for_silent(MeetingRoom& room);
  void send(LinkId link, wire::Message message, Payload payload = {});
  void note(Note::Level level, const char* event, std::string text);

  // ---- meeting_steps.cpp: what they do together
  void assemble(MeetingRoom& room, RankId rank, const wire::Assemble& message);
  void disband(MeetingRoom& room, RankId rank, const wire::Disband& message);
  void bring(MeetingRoom& room, RankId rank, const wire::Bring& message, const BufferPtr& payload);
  void piece(MeetingRoom& room, RankId rank, const wire::Piece& message, const BufferPtr& payload);
  void recalled(MeetingRoom& room, RankId rank, const wire::Outcome& message);
  void taken(MeetingRoom& room, RankId rank, const wire::Taken& message);
  void seek(MeetingRoom& room, RankId rank, const wire::Seek& message);
  void recheck(MeetingRoom& room);  // somebody is gone
  void time_out(MeetingRoom& room);

  void compare_with_twin(MeetingRoom& room, MeetingGroup& group, MeetingStep& step, std::uint32_t member);
  void give_up(MeetingRoom& room, MeetingGroup& group, const std::string& why);
  void recall(MeetingRoom& room, MeetingGroup& group, MeetingStep& step);
  void settle(MeetingRoom& room, MeetingGroup& group, MeetingStep& step);
  void decide(MeetingRoom& room, MeetingGroup& group, MeetingStep& step, wire::Outcome outcome);
  void fail(MeetingRoom& room, MeetingGroup& group, MeetingStep& step, std::string error);
  void answer(MeetingRoom& room, MeetingGroup& group, MeetingStep& step, std::uint32_t member);
  void forget_taken(MeetingRoom& room, MeetingGroup& group);
  void tell_seeker(MeetingRoom& room, const MeetingGroup& pair);
};

[[nodiscard]] std::string rank_in_words(const MeetingRoom& room, RankId rank);
[[nodiscard]] MeetingGroup* group_of(MeetingRoom& room, GroupId id);
[[nodiscard]] std::optional<std::uint32_t> member_of(const MeetingGroup& group, RankId rank);

}  // namespace collab::protocol
