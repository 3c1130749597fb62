// The parts of a coordinator, and what all of them may use: configuration, time, and the list of what is to be done.
//
//   leadership     whether this candidate leads, under which term
//   agreed         the membership as of the anchor, and who is enough
//   generation     which model of the script is trained
//   admission      who may come in, under which name
//   membership     who is here: links, heartbeats, roster
//   anchor         which anchor the swarm starts from
//   installer      who gives the anchor to whom; each member's state
//   gate           whether an attempt may start
//   slices         who owns which part of the vector
//   period         how many steps until the next round, where the leader chooses
//   round          attempts, and the commit
//   digests        whether sites hold the same anchor, and the same mean
//   exclusions     who is left out of the round
//   contributions  what rounds say of who contributed
//
// Each part has private fields and changes no other's: it asks the part that owns them, over `all_`. Coordinator
// (coordinator.h) routes events to them.
//
// Threads: one caller at a time. Ownership: plain values; parts refer to this struct, so it stays where it is.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/protocol/agreement/agreed_membership.h"
#include "core/protocol/coordinator/admission.h"
#include "core/protocol/coordinator/anchor_choice.h"
#include "core/protocol/coordinator/anchor_installer.h"
#include "core/protocol/coordinator/contributions.h"
#include "core/protocol/coordinator/coordinator.h"
#include "core/protocol/coordinator/digest_check.h"
#include "core/protocol/coordinator/exclusions.h"
#include "core/protocol/coordinator/generation_gate.h"
#include "core/protocol/coordinator/leadership.h"
#include "core/protocol/coordinator/membership.h"
#include "core/protocol/coordinator/period.h"
#include "core/protocol/coordinator/round.h"
#include "core/protocol/coordinator/round_gate.h"
#include "core/protocol/coordinator/slice_owners.h"

namespace collab::protocol {

struct CoordinatorParts {
  explicit CoordinatorParts(CoordinatorConfig c);
  // The copy's parts refer to the one that was copied until it is bound.
  CoordinatorParts(const CoordinatorParts&) = default;
  CoordinatorParts& operator=(const CoordinatorParts&) = delete;
  ~CoordinatorParts() = default;

  CoordinatorConfig config;
  AgreedMembership agreed{};
  Leadership leadership;
  GenerationGate generation{};
  Admission admission{};
  Membership membership{};
  AnchorChoice anchor{};
  AnchorInstaller installer{};
  RoundGate gate{};
  SliceOwners slices{};
  Period period{};
  Round round{};
  DigestCheck digests{};
  Exclusions exclusions{};
  Contributions contributions{};

  // The state of the step under way.
  TimePoint now{};
  std::vector<CoordinatorAction> out{};
  bool idle = false;     // nothing has become possible
  bool changed = false;  // somebody was removed, look again

  [[nodiscard]] Members& members() { return membership.members(); }
  void send(const Member& to, wire::Message message) { out.emplace_back(Send{to.link, std::move(message)}); }
  void note(Note::Level level, std::string event, std::string text,
            std::vector<std::pair<std::string, std::string>> fields = {}) {
    out.emplace_back(make_note(level, std::move(event), std::move(text), std::move(fields)));
  }
  void forget_swarm();  // nobody is here, or all that was agreed on is of another model
  void bind();          // parts ask each other over this struct
};

// What a status query is told.
[[nodiscard]] SwarmStatus status_of(const CoordinatorParts& all, TimePoint at);

}  // namespace collab::protocol
