// Checks whether sites that must hold the same values do, and decides what becomes of the others. It compares the
// anchor before a round, and the mean of each slice at the end of an exchange.
//
// The right digest is the one that most training voters report, or most sites if no such voter is among them. In a tie,
// the lowest site's is right. Helpers and newcomers may be one peer under many names.
//
// A site with another anchor fetches it again and keeps its parameters. A site with another mean is
//
//   the first three times                                    named: event `repair`, [round.mean-differs]
//   then, a voter, if the round can do without it            left out of the round: event `straggler`
//   then, otherwise                                          expelled [round.mean-beyond-repair]
//   a newcomer, which is no voter                            named, and expelled after the third time. After the first
//                                                            time only one newcomer takes part in the rest of the
//                                                            round, then none (faults.h)
//
// Times are counted across rounds, until a commit in which the site's mean was right.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <set>

#include "core/protocol/coordinator/member.h"

namespace collab::protocol {

struct CoordinatorParts;

class DigestCheck {
 public:
  // Compares the anchors of ready sites. Those with another anchor fetch it and report ready again. True if none do.
  [[nodiscard]] bool repair_anchors(const std::set<SiteId>& ready);
  // Call when all participants that are here are done with this attempt.
  [[nodiscard]] std::set<SiteId> sites_with_wrong_mean(const wire::StartAttempt& attempt) const;
  void repair_means(const wire::StartAttempt& attempt, const std::set<SiteId>& wrong);

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  [[nodiscard]] bool means_are_alike(const wire::StartAttempt& attempt) const;
  [[nodiscard]] Digest right_of(const std::map<SiteId, Digest>& said) const;

  CoordinatorParts* all_ = nullptr;
};

}  // namespace collab::protocol
