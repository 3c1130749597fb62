// The collective hub: collectives and sends between ranks of a world that stand at several sites, each of which needs
// only to dial out.
//
// One primitive: a numbered step within a group. Every living member brings its part; the hub compares what they say
// they are doing and gives each the parts it wants (hub_group.h has the drawing).
//
// Two things are agreed on between hubs that succeed each other, with the ranks as acceptors in memory (Paxos; the
// argument is in docs/protocol/collectives.md): who is gone, a chain of memberships (hub_membership.h); and
// a step's result (hub_group.h).
// A rank is silent when nothing has been heard from it for the link grace; gone, for good, when the next membership is
// chosen without it.
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
  Duration join_timeout = default_config().join_timeout;  // ranks that have never come are waited for as long
  std::uint64_t hub = 1;                                  // drawn at random by its process: no two ballots are the same
};

struct HubParts;

class CollectiveHub {
 public:
  explicit CollectiveHub(HubConfig config);
  ~CollectiveHub();

  [[nodiscard]] std::vector<HubAction> step(TimePoint now, const HubEvent& event);
  // Deliver a Tick at or after this time; kNever when nothing is awaited.
  [[nodiscard]] TimePoint next_deadline() const;
  // Whether what comes on this link is for the collective hub: a rank has entered by it.
  [[nodiscard]] bool knows(LinkId link) const;
  // Ranks that have entered and neither left nor gone: "rank 2 of paris".
  [[nodiscard]] std::vector<std::string> present() const;
  // Sites whose ranks have brought their part of a step to which others are still to come.
  // Gives the sites that say themselves that they are in that world, because a rank may name any site as its own.
  using SitesOf = std::function<std::set<std::string>(std::uint64_t world)>;
  [[nodiscard]] CallsUnderWay calls_under_way(const SitesOf& sites_of) const;
  // How often who is present has changed; and what calls are under way, as far as that may differ.
  [[nodiscard]] std::uint64_t changes() const;
  [[nodiscard]] std::uint64_t changes_of_calls() const;
  // Bytes that ranks make it hold, by what they count as.
  [[nodiscard]] std::size_t held() const;
  // Bytes of parts that are held, for tests of the bound.
  [[nodiscard]] std::size_t bytes_held() const;
  [[nodiscard]] std::size_t steps_known() const;  // likewise
  // Ranks, groups, members and steps that were looked at so far, for tests of what an event costs.
  [[nodiscard]] std::uint64_t looked_at() const;

 private:
  std::unique_ptr<HubParts> parts_;
};

}  // namespace collab::protocol
