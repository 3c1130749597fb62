#include "core/protocol/site/acceptor.h"

#include <utility>

#include "core/protocol/mutants.h"
#include "core/protocol/site/site_parts.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kRecentRounds = 4;  // commits that are reported to a leader

}  // namespace

void Acceptor::begin(const wire::Record& known) {
  id_ = known.acceptor;
  if (!mutant(Mutant::kTermForgottenAtStart)) term_ = known.promised;
  agreed_ = known.anchor;
  voters_ = known.voters;
  recent_ = known.recent;
  for (const wire::Proposal& proposal : known.proposals) {
    if (!mutant(Mutant::kProposalsForgottenAtStart)) (proposal.settled.value != 0 ? settled_ : attempted_) = proposal;
  }
}

wire::Record Acceptor::record() const {
  wire::Record record{
      id_, term_,  all_->membership.join().generation, all_->membership.join().fingerprint, agreed_, voters_,
      {},  recent_};
  if (attempted_ && !mutant(Mutant::kAttemptNotReported)) record.proposals.push_back(*attempted_);
  if (settled_ && !mutant(Mutant::kSettledNotReported)) record.proposals.push_back(*settled_);
  return record;
}

// ---- promises --------------------------------------------------------------------------------------

// From here on no older term is followed. What was under way with an older leader was given up when its link was lost,
// so what is reported as not accepted never will be.
void Acceptor::on_prepare(const wire::Prepare& prepare) {
  if (all_->membership.phase() != SitePhase::kAsking || (prepare.term <= term_ && !mutant(Mutant::kPromiseOlderTerm))) {
    return all_->note(Note::Level::kWarning, "ignored",
                      "term " + std::to_string(prepare.term.value) + " was to be promised, this site follows term " +
                          std::to_string(term_.value) + " [coordinator.old-term]");
  }
  if (wire::is_too_far_ahead(prepare.term, term_)) {
    return all_->coordinator.drop("it asks to promise term " + std::to_string(prepare.term.value) +
                                  ", and no swarm gets so far ahead of term " + std::to_string(term_.value));
  }
  term_ = prepare.term;
  all_->inquiry.stays_until(later(all_->now, all_->coordinator.patience()));
  if (mutant(Mutant::kPromiseBeforeDurable))
    all_->coordinator.send(wire::Promise{term_, all_->membership.join().offer, all_->membership.report()});
  all_->writes.say_when_durable(wire::Promise{term_, all_->membership.join().offer, all_->membership.report()});
}

// Who was promised the term has it accepted once more, with what an older one may have committed: the next leader is to
// hear of that from whomever it asks.
void Acceptor::on_accept(const wire::Accept& accept) {
  if (all_->membership.phase() != SitePhase::kAsking || (accept.term != term_ && !mutant(Mutant::kAcceptOfOtherTerm))) {
    return all_->note(Note::Level::kWarning, "ignored",
                      "something was to be accepted under term " + std::to_string(accept.term.value) +
                          ", this site follows term " + std::to_string(term_.value) + " [coordinator.old-accept]");
  }
  if (accept.proposals.empty()) return all_->coordinator.send(wire::Accepted{term_});
  if (!mutant(Mutant::kSettledNotKept)) settled_ = accept.proposals[0];
  if (mutant(Mutant::kAcceptedBeforeDurable)) all_->coordinator.send(wire::Accepted{term_});
  all_->writes.say_when_durable(wire::Accepted{term_});
}

// ---- attempts --------------------------------------------------------------------------------------

bool Acceptor::is_done_with(const wire::Commit& commit) const {
  return is_done() && attempted_->start.run == commit.run && attempted_->start.round == commit.round &&
         attempted_->start.attempt == commit.attempt;
}

void Acceptor::take_part(const wire::StartAttempt& start) {
  voters_are_newer();
  attempted_ = wire::Proposal{start};
}

void Acceptor::accept(const std::vector<Digest>& slices) {
  attempted_->accepted = holds_mean_ = true;
  attempted_->slices = slices;
}

// The coordinator has given up every attempt at this round it knows of, or has passed judgement on it. What we put into
// the last one is remembered all the same: another coordinator may have committed it.
void Acceptor::forget_attempt() {
  if (!attempted_) return;
  attempted_->accepted = holds_mean_ = false;
  attempted_->slices.clear();
}

void Acceptor::drop_attempt() {
  attempted_.reset();
  holds_mean_ = false;
}

void Acceptor::committed(const wire::Past& past) {
  recent_.push_back(past);
  if (recent_.size() > kRecentRounds) recent_.erase(recent_.begin());
}

// ---- what was agreed on ----------------------------------------------------------------------------

// Another run is another register: what was promised and accepted in the one before counts for nothing there, and a
// memory that went over is no witness of that one any more.
void Acceptor::agree_on(const wire::Offer& on, std::vector<wire::Voter> list) {
  if (agreed_.run.value != 0 && agreed_.run != on.run && !mutant(Mutant::kRecordOfOtherRun)) {
    if (!mutant(Mutant::kAcceptorInOtherRun)) renounce();
    attempted_.reset();
    settled_.reset();
    recent_.clear();
  }
  agreed_ = on;
  const auto is_past = [this](const std::optional<wire::Proposal>& proposal) {
    return proposal && ((proposal->start.run != agreed_.run && !mutant(Mutant::kRecordOfOtherRun)) ||
                        proposal->start.round <= agreed_.round);
  };
  if (is_past(attempted_)) attempted_.reset();
  if (is_past(settled_)) settled_.reset();
  take_voters(std::move(list));
}

void Acceptor::agree_on_attempt(const wire::Offer& anchor) {
  std::vector<wire::Voter> list = std::exchange(attempted_, std::nullopt)->start.voters;
  agree_on(anchor, mutant(Mutant::kVotersKeptBySite) ? voters_ : std::move(list));
  holds_mean_ = false;
}

// Terms of two registers do not compare. Under another identity it breaks no word that it has given.
void Acceptor::forget_promises() {
  renounce();
  term_ = {};
}

void Acceptor::on_member_left(const wire::MemberLeft& left) {
  if ((left.term < term_ && !mutant(Mutant::kMemberLeftOfOlderTerm)) || mutant(Mutant::kMemberLeftIgnored)) return;
  member_left_.insert(left.acceptor);
  take_voters(std::move(voters_));
  all_->writes.keep();
}

KnownMembership Acceptor::as_known(const std::vector<wire::Voter>& list) const {
  return {mutant(Mutant::kAnchorWithoutTerm) ? TermId{} : term_, list};
}

void Acceptor::take_voters(std::vector<wire::Voter> list) {
  for (wire::Voter& voter : list) voter.left = voter.left || member_left_.count(voter.acceptor) != 0;
  voters_ = std::move(list);
}

}  // namespace collab::protocol
