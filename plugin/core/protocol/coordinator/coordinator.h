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

// A coordinator that runs takes each from the knobs in force (coordinator_server.cpp).
struct CoordinatorConfig {
  std::string swarm = default_config().run;
  RunId fresh_run;  // the run's number if the swarm is born here; later runs are larger
  Digest secret{};  // drawn, and never told: keys of pairs of sites are made with it
  TermId term{1};   // the lowest; a successor's is above all that its members have promised
  TermLimit terms;
  // Round 0 waits for this many, or for what the sites expect if that is more.
  std::uint32_t min_sites = default_config().min_sites;
  std::string init_from;  // the site whose parameters round 0 has; empty: what the sites say
  Duration heartbeat = default_config().heartbeat;
  Duration link_grace = default_config().link_grace;
  Duration join_timeout = default_config().join_timeout;
  Duration round_timeout = default_config().round_timeout;
  // An exchange in which nothing moves for the grace, and at least so long, stands still: a chunk is counted once it is
  // whole, and one of several on a slow line takes a while.
  Duration least_standstill = std::chrono::seconds(60);
  Duration straggler_grace = default_config().straggler_grace;  // a ready majority waits this long for the others
  Duration forget_after = Duration::max();  // then a minority goes on without the missing sites, as another run
  bool equal_shares = false;                // whatever the sites have measured

  // How long nothing of an exchange may move.
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
  // Some are ready for the round to come and wait for others: CallsUnderWay may be of use.
  [[nodiscard]] bool waits_for_sites() const;
  [[nodiscard]] bool knows(LinkId link) const;          // its site is a member, or waits to be one
  [[nodiscard]] bool keeps_join_of(LinkId link) const;  // it waits
  // True if the site of that name has a vote in the membership that is agreed on.
  [[nodiscard]] bool is_voter(const std::string& site) const;
  // Members whose ranks take part in that world's collectives, as they say themselves.
  [[nodiscard]] std::set<std::string> sites_of(std::uint64_t world) const;
  [[nodiscard]] std::size_t members() const;    // joining and active
  [[nodiscard]] std::uint64_t changes() const;  // of who is a member, so far
  // Ascending SiteId; then who waits for, or is on its way to, another generation.
  [[nodiscard]] std::vector<std::string> member_names() const;

 private:
  friend struct Inside;  // shows tests what it knows (tests/sim/explorer)
  std::unique_ptr<CoordinatorParts> parts_;
};

}  // namespace collab::protocol
