// Chooses the anchor from which the swarm starts: which sites to wait for, whose anchor to take, and which sites to
// tell that their state is not used.
//
//   gathering --enough sites, and the COLLAB_INIT_FROM site unless a site holds an anchor--> chosen
//       |  chosen in this order:     the newest anchor that this leader's electors know
//       |                            the newest that any site holds; in a founded swarm the highest (run, round)
//       |                            the parameters of the site that COLLAB_INIT_FROM names
//       |                            those of the lowest site that resumed, else of the lowest site
//       +--COLLAB_JOIN_TIMEOUT--> most are here, or a site holds an anchor: chosen
//                                 else sites that asked for more than has come are refused; if all did, all are
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/coordinator/member.h"

namespace collab::protocol {

struct CoordinatorParts;
struct ElectionResult;

struct AnchorRecord {
  RunId run;
  RoundId round;
  std::optional<Digest> digest;  // unknown from a commit until the first site has applied it
};

[[nodiscard]] wire::Offer offer_of(const AnchorRecord& anchor);
[[nodiscard]] std::string anchor_text(RunId run, RoundId round);

// The digest that most sites reported; in a tie, the lowest site's. `said` must not be empty.
[[nodiscard]] Digest most_reported(const std::map<SiteId, Digest>& said);

class AnchorChoice {
 public:
  using Name = std::pair<RunId, RoundId>;

  // Set when enough sites joined, cleared when no site holds it any more.
  [[nodiscard]] const std::optional<AnchorRecord>& record() const { return anchor_; }
  [[nodiscard]] std::optional<Name> newest() const;  // the swarm's anchor, or the one that is wanted
  [[nodiscard]] bool gathers() const { return gathering_.running(); }
  [[nodiscard]] std::string gathered_text() const;
  [[nodiscard]] std::string waiting_text() const;    // while it gathers
  [[nodiscard]] std::uint32_t sites_wanted() const;  // how many sites round 0 waits for
  // Why a joiner's COLLAB_INIT_FROM conflicts with the others'; empty if it does not.
  [[nodiscard]] std::string init_from_difference(const wire::Join& join) const;
  [[nodiscard]] TimePoint next_deadline() const;

  void inherit(const ElectionResult& elected, const wire::Offer& newest);
  void choose();
  void set_digest(Digest digest) { anchor_->digest = digest; }
  void committed(RoundId round, bool moved);
  void lose();                              // no site holds the anchor any more
  void drop();                              // the anchor cannot be used: choose again
  void end() { anchor_.reset(); }           // the swarm ends in good order: no site has to bring the anchor back
  void notify_late_joiner(Member& joiner);  // the swarm had an anchor before this site joined
  void on_tick();
  void forget();

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  [[nodiscard]] bool wanted_missed() const;
  [[nodiscard]] bool wanted_may_come() const;
  [[nodiscard]] bool anybody_resumes() const;
  [[nodiscard]] std::pair<std::string, std::string> init_from() const;  // the named site, and the site that named it
  [[nodiscard]] bool init_from_missed() const;                          // the swarm waits for that site
  [[nodiscard]] Member& best() const;
  [[nodiscard]] RunId latest_run() const;
  void give_up_wanted(const std::string& why);
  void report_choice(const Member& best, bool newborn);  // whose anchor is taken, and whose state is not used
  void notify_not_used(Member& member, const std::string& why, const std::string& or_else);
  void start_gathering();
  void wait_for_wanted(std::optional<Duration> waited);
  [[nodiscard]] std::uint32_t least_sites() const;
  [[nodiscard]] std::string named_text() const;
  void wait_for_named(std::optional<Duration> waited);
  [[nodiscard]] bool end_gathering();
  template <class Asks>
  void refuse(bool all, Asks asks, const std::string& reason);
  void give_up_gathering(const std::string& reason);

  CoordinatorParts* all_ = nullptr;
  std::optional<AnchorRecord> anchor_;
  std::optional<Name> wanted_;       // agreed on, but not held here; a site may bring it within the grace
  std::optional<Name> begins_from_;  // the newest that the electors of a new run know; chosen if held here
  bool gathered_ = false;            // enough sites were here once
  WaitProgress gathering_;           // runs while the swarm gathers
};

}  // namespace collab::protocol
