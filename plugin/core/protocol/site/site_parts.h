// The parts of a site, and what all of them may use: configuration, time, and the list of actions.
//
//   coordinator   the link to a coordinator: finding one, being heard by it, losing it
//   membership    this site's way into the swarm and out of it
//   inquiry       whether another candidate leads a better swarm
//   acceptor      what this site has promised and accepted
//   writes        writes of its record, and messages held back until it is durable
//   roster        the members, and their keys
//   peers         links to other sites
//   held          the anchor in place here, and the sites that wait to fetch it
//   installation  another anchor on its way into place
//   round         ready, an attempt, done, the commit
//   optimizer     a copy of the optimizer's state, from another member
//
// Each part has private fields. To change another part's fields, it calls that part over `all_`. Site (site.h) routes
// events to them.
//
// Threads: one caller at a time. Ownership: plain values; parts refer to this struct, so it stays where it is.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/protocol/agreement/acceptor.h"
#include "core/protocol/formatting.h"
#include "core/protocol/site/anchor_installation.h"
#include "core/protocol/site/coordinator_link.h"
#include "core/protocol/site/held_anchor.h"
#include "core/protocol/site/inquiry.h"
#include "core/protocol/site/optimizer_fetch.h"
#include "core/protocol/site/peer_links.h"
#include "core/protocol/site/record_writes.h"
#include "core/protocol/site/site.h"
#include "core/protocol/site/site_membership.h"
#include "core/protocol/site/site_roster.h"
#include "core/protocol/site/site_round.h"

namespace collab::protocol {

struct SiteParts {
  explicit SiteParts(SiteConfig c);
  SiteParts(const SiteParts&) = default;  // its parts refer to the original until bind() is called
  SiteParts& operator=(const SiteParts&) = delete;
  ~SiteParts() = default;

  SiteConfig config;
  CoordinatorLink coordinator{};
  SiteMembership membership{};
  Inquiry inquiry{};
  Acceptor acceptor{};
  RecordWrites writes{};
  SiteRoster roster{};
  PeerLinks peers{};
  HeldAnchor held{};
  AnchorInstallation installation{};
  SiteRound round{};
  OptimizerFetch optimizer{};

  // The state of the step under way.
  TimePoint now{};
  std::vector<SiteAction> out{};

  void note(Note::Level level, std::string event, std::string text) {
    out.emplace_back(make_note(level, std::move(event), std::move(text)));
  }
  [[nodiscard]] std::string name_of(SiteId site) const;
  void bind();  // parts call each other over this struct
};

}  // namespace collab::protocol
