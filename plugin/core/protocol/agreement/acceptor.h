// A site as an acceptor of the agreement: what it promises, what it accepts, and the record of both.
//
//   Prepare(term) --newer than the term it follows--> record durable --> Promise(term, record)
//   Accept(term, settled attempt) --the term it promised--> record durable --> Accepted(term)
//   a StartAttempt, its exchange complete --> record durable --> Done
//
// A site sends nothing that others may rely on before its record is durable (record_writes.h).
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "core/protocol/actions.h"

namespace collab::protocol {

class Acceptor {
 public:
  [[nodiscard]] AcceptorId id() const { return id_; }
  [[nodiscard]] TermId term() const { return term_; }                  // the newest term that this site follows
  [[nodiscard]] const wire::Offer& agreed() const { return agreed_; }  // the newest anchor, as far as this site knows
  [[nodiscard]] const std::vector<wire::Voter>& voters() const { return voters_; }  // as of that anchor
  // The newest attempt at the round after that anchor.
  [[nodiscard]] const std::optional<wire::Proposal>& attempted() const { return attempted_; }
  // The attempt is accepted and its mean is here.
  [[nodiscard]] bool is_done() const { return attempted_ && attempted_->accepted && holds_mean_; }
  [[nodiscard]] bool is_done_with(const wire::Commit& commit) const;
  [[nodiscard]] wire::Record record(std::uint32_t generation, Digest fingerprint) const;  // of the model
  [[nodiscard]] KnownMembership as_known(const std::vector<wire::Voter>& list) const;     // to store with its anchor

  void begin(const wire::Record& known, std::uint64_t process);  // `process`: drawn at random by this process
  // Takes a new identity, because others must not count on the old memory any more. If two processes start from one
  // record, the second never comes to an identity that the first had.
  void renounce() { id_ = AcceptorId{id_.value + step_}; }

  // ---- under a term
  [[nodiscard]] bool may_promise(TermId term) const;  // newer than the term it follows
  void promise(TermId term) { term_ = term; }
  [[nodiscard]] bool may_accept(TermId term) const;   // the term that it has promised
  void settle(const wire::Proposal& proposal);        // an older term may have committed it
  bool on_member_left(const wire::MemberLeft& left);  // returns whether the record has changed
  void follow(TermId term) { term_ = term; }
  void forget_promises();
  void voters_are_newer() { member_left_.clear(); }  // the list of voters is newer than all departures

  // ---- attempts
  void take_part(const wire::StartAttempt& start);
  void accept(const std::vector<Digest>& slices);  // the attempt's mean is here
  void forget_attempt();                           // the attempt was not committed and never will be
  void drop_attempt();                             // the attempt belongs to an anchor that this site does not hold
  void lose_mean() { holds_mean_ = false; }        // an anchor is received into the mean's memory
  void committed(const wire::Past& past);

  // ---- agreed values, as far as this site knows
  void agree_on(const wire::Offer& anchor, std::vector<wire::Voter> list);
  void agree_on_attempt(const wire::Offer& anchor);  // the attempt is applied

 private:
  friend struct Inside;
  void take_voters(std::vector<wire::Voter> list);  // without sites that left since

  AcceptorId id_{};
  std::uint64_t step_ = 1;
  TermId term_;
  wire::Offer agreed_;
  std::vector<wire::Voter> voters_;
  std::set<AcceptorId> member_left_;  // left since the newest list of voters was sent
  std::optional<wire::Proposal> attempted_;
  bool holds_mean_ = false;                // the mean of `attempted_`, if that is accepted
  std::optional<wire::Proposal> settled_;  // the newest attempt that a successor was about to commit
  std::vector<wire::Past> recent_;         // recent commits, for reports to a leader
};

}  // namespace collab::protocol
