// What an election gives to its leader: the term, the last agreement, the predecessors' attempt to finish, and the
// sites that are here.
//
// Threads and ownership: plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/protocol/actions.h"

namespace collab::protocol {

// What a leader begins with.
struct ElectionResult {
  struct Applicant {
    LinkId link;
    wire::Join join;     // offer and report as of its promise
    bool early = false;  // it was here before the term was begun
  };
  TermId term;
  bool founded = false;                        // no site that came knew of a membership
  std::string new_run;                         // why the swarm goes on under another run's name; empty: it does not
  wire::Offer anchor;                          // the newest agreed anchor; run 0: none
  wire::Offer newest;                          // `anchor`, or that of a voter that had gone on without the others
  std::vector<wire::Voter> voters;             // the membership as of `anchor`
  std::optional<wire::Proposal> settled;       // an older term's attempt, committed now
  std::vector<wire::Voter> next_voters;        // the membership as of `settled`
  std::optional<wire::StartAttempt> given_up;  // the newest attempt; it cannot have been committed
  std::vector<wire::Past> recent;
  std::vector<Applicant> applicants;

  // The newest round that was agreed on.
  [[nodiscard]] RoundId round() const { return settled ? settled->start.round : anchor.round; }
  // True if `applicant` claimed, before the promises, that a later round was agreed on, and the promises disprove that.
  [[nodiscard]] bool disproves(const Applicant& applicant) const;
  // True if the applicant is the acceptor of a voter, whatever its name: it has taken part in agreements before.
  [[nodiscard]] bool is_of_a_voter(const Applicant& applicant) const;
};

}  // namespace collab::protocol
