// The coordinator: decides which sites take part in a round, and when it is committed. It never touches tensors.
//
// Pure: no socket, thread, clock or random source. Threads: one caller at a time. Ownership: its own state.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "collab/config.h"
#include "collab/swarm_status.h"
#include "core/protocol/actions.h"
#include "core/protocol/agreement/term_limit.h"

namespace collab::protocol {

struct CoordinatorParts;

// A running coordinator takes each field from the knobs in force (coordinator_server.cpp).
struct CoordinatorConfig {
  std::string swarm = default_config().run;
  RunId fresh_run;  // the run's number if the swarm is founded here; later runs are larger
  Digest secret{};  // random and never sent; keys of pairs of sites are derived from it
  TermId term{1};   // the lowest to lead; a successor's is above all that its members promised
  TermLimit terms;
  // Round 0 waits for this many sites, or for the number that the sites expect if that is larger.
  std::uint32_t min_sites = default_config().min_sites;
  std::string init_from;  // round 0 has this site's parameters; empty: as the sites say
  Duration heartbeat = default_config().heartbeat;
  Duration link_grace = default_config().link_grace;
  Duration join_timeout = default_config().join_timeout;
  Duration round_timeout = default_config().round_timeout;
  // An exchange stands still if nothing moves for the grace and for at least this long. A chunk counts only once it is
  // complete, which takes a while if several share a slow line.
  Duration least_standstill = std::chrono::seconds(60);
  Duration straggler_grace = default_config().straggler_grace;  // a ready majority waits this long for the others
  Duration forget_after = Duration::max();  // a minority then goes on without the missing sites, as another run
  bool equal_shares = false;                // ignore the rates that sites have measured

  // How long an exchange may go without any progress.
  [[nodiscard]] Duration standstill() const { return std::max(link_grace, least_standstill); }
};

class Coordinator {
 public:
  explicit Coordinator(CoordinatorConfig config);
  ~Coordinator();
  Coordinator(Coordinator&&) noexcept;
  Coordinator& operator=(Coordinator&&) noexcept;
  // A copy of this machine in the same state; from then on the two are independent.
  Coordinator(const Coordinator& other);
  Coordinator& operator=(const Coordinator& other);

  [[nodiscard]] std::vector<CoordinatorAction> step(TimePoint now, const CoordinatorEvent& event);
  // Deliver a Tick at or after this time; kNever when nothing is awaited.
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] SwarmStatus status(TimePoint now) const;
  [[nodiscard]] std::string status_json(TimePoint now) const;
  // Some sites are ready for the next round and wait for others, so CallsUnderWay may help.
  [[nodiscard]] bool waits_for_sites() const;
  [[nodiscard]] bool knows(LinkId link) const;          // its site is a member, or waits to be one
  [[nodiscard]] bool keeps_join_of(LinkId link) const;  // its site waits to be one
  // True if the site of that name has a vote in the agreed membership, or in that of the attempt in flight.
  [[nodiscard]] bool is_voter(const std::string& site) const;
  // Members whose ranks take part in that world's collectives, as they say themselves.
  [[nodiscard]] std::set<std::string> sites_of(std::uint64_t world) const;
  [[nodiscard]] std::size_t members() const;    // joining and active
  [[nodiscard]] std::uint64_t changes() const;  // of the set of members, so far
  // By ascending SiteId; then the sites that wait for another generation, or are on their way to it.
  [[nodiscard]] std::vector<std::string> member_names() const;

 private:
  friend struct Inside;  // lets tests read the state (tests/sim/explorer)
  std::unique_ptr<CoordinatorParts> parts_;
};

}  // namespace collab::protocol
