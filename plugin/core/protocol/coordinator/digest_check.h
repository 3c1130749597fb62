// Whether sites that must hold the same values do, and what becomes of the others. Before a round: the anchor. At the
// end of an exchange: the mean of each slice.
//
// The right digest is the one that most sites say, of the voters that train (if any do); among equals, the one that
// includes the lowest site. Helpers and newcomers may be one peer under many names.
//
// A site with another anchor fetches it again and keeps its parameters. A site with another mean is
//
//   the first three times                                    named: event `repair`, [round.mean-differs]
//   then, a voter, if the round can do without it            left out of the round: event `straggler`
//   then, otherwise                                          expelled [round.mean-beyond-repair]
//   no voter, as it is of no membership yet                  named, and expelled after the third time. After the first
//                                                            time only one that is no voter takes part in the rest
//                                                            of the round, then none (faults.h)
//
// Times are counted over rounds, until a commit in which its mean was right.
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
  // Of sites that are ready. Those that hold another anchor fetch it again, and say ready once more. True: none did.
  [[nodiscard]] bool repair_anchors(const std::set<SiteId>& ready);
  // All that are here are done with this attempt.
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
