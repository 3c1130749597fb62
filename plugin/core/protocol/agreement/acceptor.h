// A site as an acceptor of the agreement: what it promises, what it accepts, and the record of both.
//
//   Prepare(term) --newer than all it follows--> record durable --> Promise(term, record)
//   Accept(term, what is settled) --the term it promised--> record durable --> Accepted(term)
//   a StartAttempt, its exchange complete --> record durable --> Done
//
// A site says nothing that others may rely on before the record of it is durable (record_writes.h).
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
  [[nodiscard]] TermId term() const { return term_; }                  // the newest that is followed
  [[nodiscard]] const wire::Offer& agreed() const { return agreed_; }  // the newest anchor, as far as this site knows
  [[nodiscard]] const std::vector<wire::Voter>& voters() const { return voters_; }  // as of that anchor
  // The newest attempt at the round after it.
  [[nodiscard]] const std::optional<wire::Proposal>& attempted() const { return attempted_; }
  // Its mean is here: this site is done with it.
  [[nodiscard]] bool is_done() const { return attempted_ && attempted_->accepted && holds_mean_; }
  [[nodiscard]] bool is_done_with(const wire::Commit& commit) const;
  [[nodiscard]] wire::Record record(std::uint32_t generation, Digest fingerprint) const;  // of the model
  [[nodiscard]] KnownMembership as_known(const std::vector<wire::Voter>& list) const;     // to go with its anchor

  void begin(const wire::Record& known, std::uint64_t process);  // a number drawn by this process
  // That memory is not to be counted on any more. Of one record that was started from twice, the second process comes
  // to no identity that the first had.
  void renounce() { id_ = AcceptorId{id_.value + step_}; }

  // ---- under a term
  [[nodiscard]] bool may_promise(TermId term) const;  // it is newer than all that it follows
  void promise(TermId term) { term_ = term; }
  [[nodiscard]] bool may_accept(TermId term) const;   // it is the one it has promised
  void settle(const wire::Proposal& proposal);        // what an older term may have committed
  bool on_member_left(const wire::MemberLeft& left);  // whether the record has changed
  void follow(TermId term) { term_ = term; }
  void forget_promises();
  void voters_are_newer() { member_left_.clear(); }  // than all that have left so far

  // ---- attempts
  void take_part(const wire::StartAttempt& start);
  void accept(const std::vector<Digest>& slices);  // its mean is here
  void forget_attempt();                           // it was not committed and never will be
  void drop_attempt();                             // it is of another anchor than the one that is held
  void lose_mean() { holds_mean_ = false; }        // it lies where an anchor is received
  void committed(const wire::Past& past);

  // ---- what was agreed on, as this site now knows
  void agree_on(const wire::Offer& anchor, std::vector<wire::Voter> list);
  void agree_on_attempt(const wire::Offer& anchor);  // it is applied

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
  bool holds_mean_ = false;                // of that one, which is accepted
  std::optional<wire::Proposal> settled_;  // the newest attempt a successor was about to commit
  std::vector<wire::Past> recent_;         // commits that are reported to a leader
};

}  // namespace collab::protocol
