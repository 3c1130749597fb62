// The messages of the meeting: collectives between ranks of different sites, by way of a hub. Part of messages.h.
//
// Threads and ownership: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collab/types.h"

namespace collab::wire {

// ---- rank -> hub ---------------------------------------------------------------------------------

// First on a link of the meeting: who comes, and where the ranks of its world stand.
struct Enter {
  std::string swarm;                   // COLLAB_RUN: refuses a stranger's swarm
  std::uint64_t world = 0;             // drawn at random by the world's first rank
  RankId rank;                         // within the world
  std::vector<std::string> sites;      // names
  std::vector<std::uint32_t> site_of;  // index into `sites`, of every rank of the world
  std::uint32_t candidates = 1;        // how many hubs this rank may turn to
  bool returning = false;              // it was with a hub before: the others may take as long to find this one
  std::vector<RankId> gone;            // whom an earlier hub has left out; ascending
  bool operator==(const Enter&) const = default;
};

// Opens a group, at every hub anew: who is in it, how many of its steps this rank has completed. Two groups whose
// numbers differ in the lowest bit are twins: a call of one is never made in the other.
struct Assemble {
  GroupId group;
  std::vector<RankId> members;  // in the order of the group's ranks, each once
  std::uint64_t completed = 0;
  GroupId parent{};       // of a pair that sends from members[0] to members[1]: the group it was made for, and
  std::uint32_t tag = 0;  // the tag; else 0
  bool operator==(const Assemble&) const = default;
};

struct Disband {
  GroupId group;
  bool operator==(const Disband&) const = default;
};

// What a step does when members are gone.
enum class Absence : std::uint8_t { kFails = 0, kGoesOn = 1, kNeedsRoot = 2 };

// "I am in this call; this is my part." Its payload, if any, travels with it.
struct Bring {
  GroupId group;
  std::uint64_t step = 0;  // counted from 1
  std::uint64_t call = 0;  // of the calls of this group and its twin, counted alike at all ranks of both; 0: none
  std::string operation;   // the same at all members: "all_reduce (sum) of 12 float32"
  std::string shape;       // for people
  Absence absence = Absence::kFails;
  std::uint32_t root = 0;             // whose absence matters, a member's index
  bool wants = true;                  // it is to be given the others' parts
  bool absent = false;                // it is alive but has nothing to give: the others do without it
  std::uint32_t timeout_ms = 0;       // 0: none
  std::vector<std::uint64_t> splits;  // bytes for each member, one after another; empty: all of it for everyone
  bool operator==(const Bring&) const = default;
};

// "I hold the outcome of this step."
struct Taken {
  GroupId group;
  std::uint64_t step = 0;
  bool operator==(const Taken&) const = default;
};

// Tell me as soon as anybody sends to me in this group, with this tag.
struct Seek {
  GroupId group;
  std::uint32_t tag = 0;
  bool operator==(const Seek&) const = default;
};

// ---- hub -> rank ---------------------------------------------------------------------------------

struct Entered {
  std::uint32_t heartbeat_ms = 1000;
  std::uint32_t grace_ms = 60000;
  bool operator==(const Entered&) const = default;
};

// A successor asks for a step that this rank has completed and others have not: its own Bring, the Pieces it was
// given, and the Outcome, in this order.
struct Recall {
  GroupId group;
  std::uint64_t step = 0;
  bool operator==(const Recall&) const = default;
};

// Answers Seek: a member's index.
struct Found {
  GroupId group;
  std::uint32_t tag = 0;
  std::uint32_t from = 0;
  bool operator==(const Found&) const = default;
};

// ---- both ways -----------------------------------------------------------------------------------

// One member's part of a step; its payload travels with it.
struct Piece {
  GroupId group;
  std::uint64_t step = 0;
  std::uint32_t from = 0;
  bool operator==(const Piece&) const = default;
};

// The end of a step, after its pieces. To a hub: of what it has recalled.
struct Outcome {
  GroupId group;
  std::uint64_t step = 0;
  std::vector<std::uint32_t> absent;  // members it was completed without, ascending
  std::vector<RankId> gone;           // of the world, as the hub has it; ascending
  std::string error;                  // empty: it went well
  bool operator==(const Outcome&) const = default;
};

}  // namespace collab::wire
