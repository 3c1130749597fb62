// The collective hub serves collectives and sends between ranks of one world at several sites. The sites only need to
// dial out.
//
// One primitive: a numbered step within a group. Every living member brings its part. The hub checks that all members
// are in the same operation, and gives each the parts it wants (hub_group.h has the drawing).
//
// Hubs that succeed each other agree on which ranks are gone (a chain of memberships, hub_membership.h), and on each
// step's result (hub_group.h). The ranks are acceptors, in memory. This is Paxos; the proof is in
// docs/protocol/collectives.md.
// A rank is silent if nothing was heard from it for the link grace. It is gone for good once a membership is chosen
// without it.
// Pure: no socket, thread, clock or random source. Threads: one caller at a time. Ownership: its own state; payloads
// are shared until every living member has taken the step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "collab/config.h"
#include "core/protocol/collectives/hub_actions.h"

namespace collab::protocol {

struct HubConfig {
  std::string swarm = default_config().run;
  Duration heartbeat = default_config().heartbeat;
  Duration link_grace = default_config().link_grace;
  Duration join_timeout = default_config().join_timeout;  // how long to wait for ranks that have never come
  std::uint64_t hub = 1;  // drawn at random by its process, so no two hubs share a ballot
};

struct HubParts;

class CollectiveHub {
 public:
  explicit CollectiveHub(HubConfig config);
  ~CollectiveHub();

  [[nodiscard]] std::vector<HubAction> step(TimePoint now, const HubEvent& event);
  // Deliver a Tick at or after this time; kNever when nothing is awaited.
  [[nodiscard]] TimePoint next_deadline() const;
  // Whether messages on this link are for the collective hub, because a rank has entered over it.
  [[nodiscard]] bool knows(LinkId link) const;
  // Ranks that have entered and neither left nor gone: "rank 2 of paris".
  [[nodiscard]] std::vector<std::string> present() const;
  // Sites whose ranks have brought their part of a step and wait for others.
  // SitesOf gives the sites that claim the world themselves, because a rank may name any site as its own.
  using SitesOf = std::function<std::set<std::string>(std::uint64_t world)>;
  [[nodiscard]] CallsUnderWay calls_under_way(const SitesOf& sites_of) const;
  // Counts changes of present(), and events that may have changed calls_under_way().
  [[nodiscard]] std::uint64_t changes() const;
  [[nodiscard]] std::uint64_t changes_of_calls() const;
  // Bytes that the hub holds for ranks, as counted against their budgets.
  [[nodiscard]] std::size_t held() const;
  // Bytes of parts that are held, for tests of the bound.
  [[nodiscard]] std::size_t bytes_held() const;
  [[nodiscard]] std::size_t steps_known() const;  // steps that are kept, for tests of the bound
  // How many ranks, groups, members and steps were looked at so far, for tests of an event's cost.
  [[nodiscard]] std::uint64_t looked_at() const;

 private:
  std::unique_ptr<HubParts> parts_;
};

}  // namespace collab::protocol
