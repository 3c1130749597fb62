// The messages of the collective hub, which serves collectives between ranks of different sites. Part of messages.h.
//
// Threads and ownership: plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "collab/types.h"

namespace collab::wire {

// ---- parts of several messages --------------------------------------------------------------------

// The number under which a hub asks a world's ranks to promise and accept. The larger term wins; with equal terms the
// larger hub.
struct Ballot {
  std::uint64_t term = 0;  // 0: none
  std::uint64_t hub = 0;   // drawn at random by the hub's process
  auto operator<=>(const Ballot&) const = default;
};

// One membership of a world: all ranks except those in `gone`, which only grows from one epoch to the next.
struct Epoch {
  std::uint64_t number = 0;  // 0: all ranks are members
  std::vector<RankId> gone;  // ascending
  bool operator==(const Epoch&) const = default;
};

// The steps of a group that are known to stand.
struct Completed {
  GroupId group;
  std::uint64_t steps = 0;
  bool operator==(const Completed&) const = default;
};

// "I hold a result of this step, given under this ballot."
struct Held {
  GroupId group;
  std::uint64_t step = 0;
  Ballot ballot;
  bool operator==(const Held&) const = default;
};

// ---- rank -> hub ---------------------------------------------------------------------------------

// First on a link of the collective hub: which rank comes, where the ranks of its world are, and what it remembers as
// an acceptor. With the hub's own ballot as `promised` it is a promise: it will accept nothing under an older ballot.
struct Enter {
  std::string swarm;                   // COLLAB_RUN: another swarm is refused
  std::uint64_t world = 0;             // drawn at random by the world's first rank
  RankId rank;                         // within the world
  std::vector<std::string> sites;      // names
  std::vector<std::uint32_t> site_of;  // for every rank of the world, an index into `sites`
  std::uint32_t candidates = 1;        // how many hubs this rank may dial
  bool returning = false;              // was at a hub before, so the others may need time to find this one
  AcceptorId acceptor{};               // drawn at random by this process, whose memory counts
  Ballot promised{};
  Epoch chosen{};           // the newest chosen epoch that it knows
  Ballot accepted_under{};  // term 0: it has accepted nothing after `chosen`
  Epoch accepted{};
  std::vector<Completed> completed{};
  std::vector<Held> held{};
  std::vector<GroupId> closed{};  // groups in which it no longer takes part
  bool operator==(const Enter&) const = default;
};

// Opens a group; sent again to every new hub. Two groups whose numbers differ only in the lowest bit are twins: a call
// belongs to one of them, never to both.
struct Assemble {
  GroupId group;
  std::vector<RankId> members;  // in the order of the group's ranks, each once
  GroupId parent{};             // if this is a pair that sends from members[0] to members[1]: its group; else 0
  std::uint32_t tag = 0;        // likewise, the tag; else 0
  bool operator==(const Assemble&) const = default;
};

struct Disband {
  GroupId group;
  bool operator==(const Disband&) const = default;
};

// What a step does when members are gone.
enum class Absence : std::uint8_t { kFails = 0, kProceeds = 1, kNeedsRoot = 2 };

// "I am in this call; this is my part." Its payload, if any, travels with it.
struct Contribute {
  GroupId group;
  std::uint64_t step = 0;  // counted from 1
  std::uint64_t call = 0;  // counts calls of this group and its twin alike at all their ranks; 0: none
  std::string operation;   // the same at all members: "all_reduce (sum) of 12 float32"
  std::string shape;       // for people
  Absence absence = Absence::kFails;
  std::uint32_t root = 0;             // index of the member that kNeedsRoot needs
  bool wants = true;                  // it wants the others' parts
  bool absent = false;                // it is alive but has nothing to give: the others go on without it
  std::uint32_t timeout_ms = 0;       // 0: none
  std::vector<std::uint64_t> splits;  // bytes for each member, one after another; empty: all of it for everyone
  bool operator==(const Contribute&) const = default;
};

// "I hold the result of this step that was given under this ballot."
struct ResultAck {
  GroupId group;
  std::uint64_t step = 0;
  Ballot ballot{};
  bool operator==(const ResultAck&) const = default;
};

// "I have accepted that epoch under that ballot." Answers AcceptEpoch.
struct AcceptedEpoch {
  Ballot ballot;
  std::uint64_t number = 0;
  bool operator==(const AcceptedEpoch&) const = default;
};

// "Tell me as soon as a member sends to me in this group, with this tag."
struct ResolveSender {
  GroupId group;
  std::uint32_t tag = 0;
  bool operator==(const ResolveSender&) const = default;
};

// ---- hub -> rank ---------------------------------------------------------------------------------

struct Entered {
  std::uint32_t heartbeat_ms = 1000;
  std::uint32_t grace_ms = 60000;
  Ballot ballot{};
  Epoch chosen{};
  bool operator==(const Entered&) const = default;
};

// "Promise me to follow no older ballot than this." Answered by Enter.
struct PrepareWorld {
  Ballot ballot;
  bool operator==(const PrepareWorld&) const = default;
};

// "Accept this as the next membership."
struct AcceptEpoch {
  Ballot ballot;
  Epoch epoch;
  bool operator==(const AcceptEpoch&) const = default;
};

// "This membership is chosen."
struct ChosenEpoch {
  Epoch epoch;
  bool operator==(const ChosenEpoch&) const = default;
};

// "All members hold the result of this step that you hold: it stands."
struct Stands {
  GroupId group;
  std::uint64_t step = 0;
  bool operator==(const Stands&) const = default;
};

// Answers ResolveSender; `from` is a member's index.
struct SenderResolved {
  GroupId group;
  std::uint32_t tag = 0;
  std::uint32_t from = 0;
  bool operator==(const SenderResolved&) const = default;
};

// One member's part of a step; its payload travels with it.
struct Part {
  GroupId group;
  std::uint64_t step = 0;
  std::uint32_t from = 0;
  bool operator==(const Part&) const = default;
};

// The end of a step, after its parts.
struct StepResult {
  GroupId group;
  std::uint64_t step = 0;
  Ballot ballot{};                    // under which it was decided
  bool stands = false;                // true: stands at once, because there is no other hub
  std::vector<std::uint32_t> absent;  // the step was completed without these members, ascending
  std::string error;                  // empty: success
  bool operator==(const StepResult&) const = default;
};

}  // namespace collab::wire
