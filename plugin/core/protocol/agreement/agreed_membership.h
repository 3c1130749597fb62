// The leader's view of what is agreed on: the membership as of the anchor, the membership that the attempt in flight
// proposes, and the committed rounds.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <vector>

#include "core/protocol/agreement/committed_rounds.h"
#include "core/protocol/agreement/quorum.h"

namespace collab::protocol {

struct ElectionResult;

using Voters = std::map<SiteId, wire::Voter>;  // a member with a voter's name has that voter's number
[[nodiscard]] std::vector<wire::Voter> list_of(const Voters& voters);

class AgreedMembership {
 public:
  [[nodiscard]] const Voters& voters() const { return voters_; }
  [[nodiscard]] const Voters& next_voters() const { return next_voters_; }  // of the attempt in flight
  [[nodiscard]] const CommittedRounds& history() const { return history_; }

  // Whether the site is a voter. All sites are voters while the swarm has no membership yet.
  [[nodiscard]] bool is_voter(SiteId site) const { return voters_.empty() || voters_.contains(site); }

  // ---- what is agreed on
  void inherit(const ElectionResult& elected);  // takes over what still counts of the past
  void settle(const ElectionResult& elected);   // an older term's attempt is committed
  void begin_run(const wire::Offer& anchor, RunId name, Voters founders);
  // The membership after an attempt of these sites. `holders`: sites that are here and hold the anchor.
  const Voters& propose(Voters holders, const std::set<SiteId>& participants);
  void commit(const wire::StartAttempt& start, const std::vector<Digest>& mean);
  // The leaver agrees that the others go on without it. Returns the acceptor to announce to them, if any.
  std::optional<AcceptorId> remove_voter(const wire::Voter& leaver, bool early);
  void forget();

  // ---- quorums
  // How the voter counts if its site is here with this acceptor; `early`: it was here before the term was begun.
  [[nodiscard]] static Presence presence_of(const wire::Voter& voter, AcceptorId acceptor, bool early);
  template <typename F>
  [[nodiscard]] Quorum quorum(F presence) const {  // as in quorum_of
    return quorum_of(std::views::values(voters_), presence);
  }
  [[nodiscard]] std::vector<std::string> missed_by(const std::set<SiteId>& present) const;
  // Whether this acceptor is in the membership, or in the proposed one. If so, a newer term that it has promised
  // belongs to this run.
  [[nodiscard]] bool is_acceptor_of(AcceptorId acceptor, const std::string& site) const;
  // Whether the contribution of a site that holds `held` was counted in the round after `held`. Only such a site can
  // have contributed to that round. `run`, `round`: of the anchor.
  [[nodiscard]] CommittedRounds::Answer counted(const std::string& site, const wire::Offer& held, RunId run,
                                                RoundId round) const;

 private:
  friend struct Inside;
  Voters voters_;
  Voters next_voters_;
  CommittedRounds history_;
};

}  // namespace collab::protocol
