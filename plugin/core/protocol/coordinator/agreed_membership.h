// What this leader knows to be agreed on: the membership as of the anchor, the one that the attempt in flight proposes,
// and the rounds that were committed.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/protocol/coordinator/committed_rounds.h"
#include "core/protocol/coordinator/member.h"
#include "core/protocol/quorum.h"

namespace collab::protocol {

struct CoordinatorParts;
struct Mandate;

using Voters = std::map<SiteId, wire::Voter>;  // a member of one of their names has that number
[[nodiscard]] std::vector<wire::Voter> list_of(const Voters& voters);

class AgreedMembership {
 public:
  [[nodiscard]] const Voters& voters() const { return voters_; }
  [[nodiscard]] const Voters& next_voters() const { return next_voters_; }  // of the attempt in flight
  [[nodiscard]] const CommittedRounds& history() const { return history_; }

  // ---- what is agreed on
  void inherit(const Mandate& mandate);  // what counts of the past
  void settle(const Mandate& mandate);   // an older term's attempt is committed
  void begin_run(const wire::Offer& anchor);
  // The membership after an attempt of these sites.
  const Voters& propose(const std::set<SiteId>& participants);
  void commit(const wire::StartAttempt& start, const std::vector<Digest>& mean);
  void strike(const Member& member);  // it agrees that the others go on without it
  void forget();

  // ---- who is enough
  [[nodiscard]] Presence presence_of(const wire::Voter& voter, const Member& member) const;
  [[nodiscard]] Quorum quorum_among(const std::set<SiteId>& present) const;
  [[nodiscard]] Quorum quorum_here() const;
  [[nodiscard]] Quorum quorum_at_the_next_term() const;  // of those who are here, whose names count then
  [[nodiscard]] std::vector<std::string> missed_by(const std::set<SiteId>& present) const;
  [[nodiscard]] std::string quorum_text(const std::set<SiteId>& present) const;
  // Of what this leader asks to be accepted: a newer term that it has promised is one of this run.
  [[nodiscard]] bool is_acceptor_of(AcceptorId acceptor, const std::string& site) const;
  // Whether its contribution to the round after the anchor that it holds was counted: no other can hold one of it.
  [[nodiscard]] CommittedRounds::Answer counted(const Member& member) const;

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  CoordinatorParts* all_ = nullptr;
  Voters voters_;
  Voters next_voters_;
  CommittedRounds history_;
};

}  // namespace collab::protocol
