// The parts of a site, and what all of them may use: configuration, time, and the list of what is to be done.
//
//   coordinator   the link to a coordinator: finding one, being heard by it, losing it
//   membership    this site's way into the swarm and out of it
//   inquiry       whether another candidate leads a swarm that it is better to be in
//   acceptor      what this site has promised and accepted
//   writes        its record on the way to be durable, and what is said once it is
//   roster        who is a member, and the keys of members
//   peers         links to other sites
//   held          the anchor in place here, and who waits to be given it
//   installation  another anchor on its way into place
//   round         ready, an attempt, done, the commit
//   optimizer     a copy of the optimizer's state, from another member
//
// Each part has private fields and changes no other's: it asks the part that owns them, over `all_`. Site (site.h)
// routes events to them.
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
  SiteParts(const SiteParts&) = default;  // the copy's parts refer to the one that was copied until it is bound
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
  void bind();  // parts ask each other over this struct
};

}  // namespace collab::protocol
