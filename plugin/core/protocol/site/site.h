// A site's side of the protocol: joins, reports ready, takes part in attempts, applies commits, leaves.
//
// Pure: no socket, thread, clock or random source. Threads: one caller at a time. Ownership: its own state.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collab/config.h"
#include "core/protocol/actions.h"
#include "core/protocol/agreement/term_limit.h"

namespace collab::protocol {

struct SiteParts;

struct SiteConfig {
  std::vector<std::string> coordinators;  // addresses, for messages; DialCoordinator gives an index into it
  Duration join_timeout = default_config().join_timeout;
  Duration round_timeout = default_config().round_timeout;
  Duration link_grace = default_config().link_grace;  // until a coordinator announces the one that counts
  WeightBy weight = default_config().weight;
  TermLimit terms{};
};

class Site {
 public:
  explicit Site(SiteConfig config);
  ~Site();
  Site(Site&&) noexcept;
  Site& operator=(Site&&) noexcept;
  // A copy of this machine in the same state; from then on the two are independent.
  Site(const Site& other);
  Site& operator=(const Site& other);

  [[nodiscard]] std::vector<SiteAction> step(TimePoint now, const SiteEvent& event);
  [[nodiscard]] TimePoint next_deadline() const;
  // The member that said Hello on this link, if any: the only `from` its chunks may carry.
  [[nodiscard]] std::optional<SiteId> peer_of(LinkId link) const;
  [[nodiscard]] bool knows(LinkId link) const;  // its peer has said Hello
  // The link to the coordinator where it is a member, and the interval of heartbeats there. While an action takes long,
  // the runtime sends them.
  [[nodiscard]] std::optional<LinkId> member_at() const;
  [[nodiscard]] Duration heartbeat() const;
  // The record as it stands now. It is kept with the anchor, which never travels without it.
  [[nodiscard]] wire::Record record() const;
  // What a blocked caller waits for, as a sentence: "round 3: waiting for paris (not ready)".
  [[nodiscard]] std::string waiting_for(TimePoint now) const;

 private:
  friend struct Inside;  // lets tests read the state (tests/sim/explorer)
  std::unique_ptr<SiteParts> parts_;
};

}  // namespace collab::protocol
