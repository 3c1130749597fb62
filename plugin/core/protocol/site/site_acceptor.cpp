// A site as an acceptor of the agreement: what it promises, what it accepts, and the record of both.
//
//   Prepare(term) --newer than all it follows--> record durable --> Promise(term, record)
//   Accept(term, what is settled) --the term it promised--> record durable --> Accepted(term)
//   a StartAttempt, its exchange complete --> record durable --> Done
//
// Nothing that others may rely on is said before the record of it is durable.
#include <algorithm>
#include <utility>

#include "core/protocol/mutants.h"
#include "core/protocol/site/site_state.h"
#include "core/wire/limits.h"

namespace collab::protocol {

wire::Record Site::State::record() const {
  wire::Record record{acceptor, term, join.generation, join.fingerprint, agreed, voters, {}, recent};
  if (attempted && !mutant(Mutant::kAttemptNotReported)) record.proposals.push_back(*attempted);
  if (settled && !mutant(Mutant::kSettledNotReported)) record.proposals.push_back(*settled);
  return record;
}

wire::Report Site::State::report() const {
  return {record(), was_member, join_done && round.phase == RoundPhase::kTraining, kept_done()};
}

// ---- durable ---------------------------------------------------------------------------------------

void Site::State::keep_record() {
  writes.since = std::min(writes.since, now);
  out.emplace_back(Persist{++writes.asked, record()});
}

void Site::State::say_when_durable(wire::Message message) {
  keep_record();
  if (up.link) writes.held.push_back({writes.asked, *up.link, std::move(message)});
}

void Site::State::on_event(const Persisted& event) {
  writes.written = std::max(writes.written, event.number);
  writes.since = writes.written >= writes.asked ? kNever : now;
  if (!event.why.ok()) {
    // What is on the disk may be older than what was said: that memory is not to be counted on.
    if (!mutant(Mutant::kAcceptorAfterFailedWrite)) acceptor = AcceptorId{acceptor.value + 1};
    writes.held.clear();
    if (up.link && membership != SitePhase::kLeaving) {
      drop_coordinator("this site's record could not be written: " + event.why.message());
    }
    return;
  }
  while (!writes.held.empty() && writes.held.front().number <= writes.written) {
    Writes::Held held = std::move(writes.held.front());
    writes.held.erase(writes.held.begin());
    if (up.link == held.link) send_up(std::move(held.message));
  }
}

// Others are not to wait for a disk: the attempt is given up, and so is the promise.
void Site::State::on_write_tick() {
  if (now < later(writes.since, up.grace)) return;
  writes.since = now;
  if (writes.held.empty()) return;
  writes.held.clear();
  if (up.link) {
    drop_coordinator("this site's record was not written within " + in_seconds(up.grace) + " (COLLAB_LINK_GRACE)");
  }
}

// ---- promises --------------------------------------------------------------------------------------

// From here on no older term is followed. What was under way with an older leader was given up when its link was lost,
// so what is reported as not accepted never will be.
void Site::State::on_prepare(const wire::Prepare& prepare) {
  if (membership != SitePhase::kAsking || (prepare.term <= term && !mutant(Mutant::kPromiseOlderTerm))) {
    return note(Note::Level::kWarning, "ignored",
                "term " + std::to_string(prepare.term.value) + " was to be promised, this site follows term " +
                    std::to_string(term.value));
  }
  if (wire::is_too_far_ahead(prepare.term, term)) {
    return drop_coordinator("it asks to promise term " + std::to_string(prepare.term.value) +
                            ", and no swarm gets so far ahead of term " + std::to_string(term.value));
  }
  term = prepare.term;
  up.stays_until = later(now, patience());
  if (mutant(Mutant::kPromiseBeforeDurable)) send_up(wire::Promise{term, join.offer, report()});
  say_when_durable(wire::Promise{term, join.offer, report()});
}

// Who was promised the term has it accepted once more, with what an older one may have committed: the next leader is to
// hear of that from whomever it asks.
void Site::State::on_accept(const wire::Accept& accept) {
  if (membership != SitePhase::kAsking || (accept.term != term && !mutant(Mutant::kAcceptOfOtherTerm))) {
    return note(Note::Level::kWarning, "ignored",
                "something was to be accepted under term " + std::to_string(accept.term.value) +
                    ", this site follows term " + std::to_string(term.value));
  }
  if (accept.proposals.empty()) return send_up(wire::Accepted{term});
  if (!mutant(Mutant::kSettledNotKept)) settled = accept.proposals[0];
  if (mutant(Mutant::kAcceptedBeforeDurable)) send_up(wire::Accepted{term});
  say_when_durable(wire::Accepted{term});
}

// ---- what was agreed on ----------------------------------------------------------------------------

// Another run is another register: what was promised and accepted in the one before counts for nothing there, and a
// memory that went over is no witness of that one any more.
void Site::State::agree_on(const wire::Offer& on, std::vector<wire::Voter> list) {
  if (agreed.run.value != 0 && agreed.run != on.run && !mutant(Mutant::kRecordOfOtherRun)) {
    if (!mutant(Mutant::kAcceptorInOtherRun)) acceptor = AcceptorId{acceptor.value + 1};
    attempted.reset();
    settled.reset();
    recent.clear();
  }
  agreed = on;
  const auto is_past = [this](const std::optional<wire::Proposal>& proposal) {
    return proposal && ((proposal->start.run != agreed.run && !mutant(Mutant::kRecordOfOtherRun)) ||
                        proposal->start.round <= agreed.round);
  };
  if (is_past(attempted)) attempted.reset();
  if (is_past(settled)) settled.reset();
  take_voters(std::move(list));
}

// Terms of two registers do not compare. Under another identity it breaks no word that it has given.
void Site::State::forget_promises() {
  acceptor = AcceptorId{acceptor.value + 1};
  term = {};
}

KnownMembership Site::State::as_known(const std::vector<wire::Voter>& list) const {
  return {mutant(Mutant::kAnchorWithoutTerm) ? TermId{} : term, list};
}

void Site::State::take_voters(std::vector<wire::Voter> list) {
  for (wire::Voter& voter : list) voter.left = voter.left || member_left.count(voter.acceptor) != 0;
  voters = std::move(list);
}

}  // namespace collab::protocol
