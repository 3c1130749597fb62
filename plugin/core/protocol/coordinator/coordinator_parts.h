// The parts of a coordinator, and what all of them may use: configuration, time, and the list of actions.
//
//   leadership     whether this candidate leads, under which term
//   agreed         the membership as of the anchor, and its quorums
//   generation     which model of the script is trained
//   admission      which sites are let in, under which names
//   membership     which sites are here: links, heartbeats, roster
//   anchor         which anchor the swarm starts from
//   installer      which member sends the anchor to which; each member's state
//   gate           whether an attempt may start
//   slices         which site owns which part of the vector
//   period         how many steps until the next round, if the leader chooses
//   round          attempts, and the commit
//   digests        whether sites hold the same anchor, and the same mean
//   exclusions     which sites are left out of the round
//   contributions  what rounds show about the contributors
//
// Each part has private fields. To change another part's fields, it calls that part over `all_`. Coordinator
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
  // The parts of a copy refer to the original until bind() is called.
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
  bool idle = false;     // the event made nothing possible
  bool changed = false;  // a member was removed: look again

  [[nodiscard]] Members& members() { return membership.members(); }
  void send(const Member& to, wire::Message message) { out.emplace_back(Send{to.link, std::move(message)}); }
  void note(Note::Level level, std::string event, std::string text,
            std::vector<std::pair<std::string, std::string>> fields = {}) {
    out.emplace_back(make_note(level, std::move(event), std::move(text), std::move(fields)));
  }
  void forget_swarm();  // no site is here, or all that was agreed on belongs to another model
  void bind();          // parts call each other over this struct
};

// The answer to a status query.
[[nodiscard]] SwarmStatus status_of(const CoordinatorParts& all, TimePoint at);

}  // namespace collab::protocol
