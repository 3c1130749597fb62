// The parts of one world of a hub.
//
//   ranks       which ranks are here, are silent, have left or are gone
//   memory      what ranks remember as acceptors, and what the hub may hold for each
//   membership  agrees on which ranks are gone: a chain of memberships under a ballot
//   groups      the groups of ranks, each with its steps (hub_group.h), and the ranks that wait for a sender in one
//
// Each part has private fields and changes no other's: it asks the part that owns them, over `world_`.
//
// Threads: one caller at a time. Ownership: plain values; parts refer to this struct, so it stays where it is.
#pragma once

#include <cstdint>
#include <string>

#include "core/protocol/collectives/hub_groups.h"
#include "core/protocol/collectives/hub_membership.h"
#include "core/protocol/collectives/hub_memory.h"
#include "core/protocol/collectives/hub_ranks.h"

namespace collab::protocol {

struct HubParts;

struct HubWorld {
  HubWorld(HubParts& all, const wire::Enter& first, std::string first_host, const wire::Ballot& ballot, HubTotal& parts,
           HubTotal& memory);
  HubWorld(const HubWorld&) = delete;
  HubWorld& operator=(const HubWorld&) = delete;
  ~HubWorld() = default;

  HubParts& hub;
  const std::uint64_t number;
  const std::string host;  // of the rank that came first
  const bool only_hub;     // there is no other hub: this one decides alone, at once
  HubRanks ranks;
  HubMemory memory;
  HubMembership membership;
  HubGroups groups;

  [[nodiscard]] std::string why_refused(const wire::Enter& message) const;
  [[nodiscard]] TimePoint next_deadline() const;
  void on_enter(LinkId link, const wire::Enter& message);
  void on_message(RankId rank, const HubReceived& event);
  void on_tick();
  void send(RankId rank, wire::Message message, Payload payload = {});  // only if it has a link
  void refuse(RankId rank, const std::string& why);
};

}  // namespace collab::protocol
