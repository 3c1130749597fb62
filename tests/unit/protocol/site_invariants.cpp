// The invariants that the steps of sites must keep.
#include <algorithm>
#include <iterator>

#include "core/protocol/agreement/attempt.h"
#include "tests/unit/protocol/attempt_text.h"
#include "tests/unit/protocol/invariants.h"

namespace collab::protocol {
namespace {

// Whether a record says at least that: an attempt at a round that is agreed on by then is old news.
bool covers(const wire::Record& record, const wire::Proposal& said) {
  if (record.anchor.run == said.start.run && record.anchor.round >= said.start.round) return true;
  return std::ranges::any_of(record.proposals, [&](const wire::Proposal& p) {
    const bool as_accepted = !said.accepted || (p.accepted && p.slices == said.slices);
    return p.start == said.start && as_accepted && p.settled >= said.settled;
  });
}

// So is one that its leader has followed with another.
bool covers(const wire::Record& record, const wire::Done& done) {
  if (record.anchor.round >= done.round) return true;
  return std::ranges::any_of(record.proposals, [&](const wire::Proposal& p) {
    const bool same = p.start.attempt == done.attempt && p.accepted && p.slices == done.slices;
    return p.start.round == done.round && (same || p.start.attempt > done.attempt);
  });
}

}  // namespace

void Invariants::site_step(const std::string& site, const SiteEvent& event, const std::vector<SiteAction>& actions) {
  SiteRecord& record = sites_[site];
  check(!record.over || actions.empty(), site + " acts after it has left or failed");
  if (const auto* received = std::get_if<Received>(&event)) {
    if (const auto* welcome = std::get_if<wire::Welcome>(&received->message)) {
      record.id = welcome->site;
      record.let_in = true;
      record.term = welcome->term;
    }
    const auto* left = std::get_if<wire::MemberLeft>(&received->message);
    if (left != nullptr && left->term == record.term && !record.over) check_member_left(site, *left, actions);
    if (std::holds_alternative<wire::Prepare>(received->message)) record.let_in = false;
    if (const auto* accept = std::get_if<wire::Accept>(&received->message)) record.to_accept = *accept;
  }
  if (const auto* begin = std::get_if<Begin>(&event)) record.name = begin->join.site;
  if (const auto* applied = std::get_if<Applied>(&event)) on_applied(site, record, *applied);
  if (const auto* persisted = std::get_if<Persisted>(&event)) on_persisted(site, record, *persisted);
  for (const SiteAction& action : actions) on_site_action(site, record, action);
}

void Invariants::on_site_action(const std::string& site, SiteRecord& record, const SiteAction& action) {
  if (const auto* start = std::get_if<StartExchange>(&action)) {
    const Attempt attempt{start->start.run, start->start.round, start->start.attempt};
    check(takes_part(start->start, record.id), site + " exchanges in an attempt without it");
    check(start->links.size() == start->start.participants.size(), site + " exchanges with a link too few or too many");
    AttemptId& last = record.last_started[{start->start.run, start->start.round}];
    check(last < start->start.attempt, site + " starts " + text_of(start->start.round, start->start.attempt) +
                                           " after attempt " + std::to_string(last.value));
    last = start->start.attempt;
    record.started.insert(attempt);
  } else if (const auto* apply = std::get_if<ApplyCommit>(&action)) {
    check_membership(site, record, apply->membership);
    on_apply(site, record, *apply);
  } else if (const auto* keep = std::get_if<KeepAnchor>(&action)) {
    check_membership(site, record, keep->membership);
  } else if (const auto* receive = std::get_if<ReceiveAnchor>(&action)) {
    check_membership(site, record, receive->membership);
  } else if (const auto* joined = std::get_if<JoinDone>(&action)) {
    check(!record.joined, site + " joined twice");
    record.joined = true;
    record.anchor = {joined->run, joined->round};
  } else if (const auto* persist = std::get_if<Persist>(&action)) {
    record.asked[persist->number] = persist->record;
    check_memory(site, record, persist->record);
    for (const wire::Proposal& p : persist->record.proposals) {
      if (p.accepted) record.done.insert({p.start.run, p.start.round, p.start.attempt});
    }
  } else if (const auto* send = std::get_if<Send>(&action)) {
    on_site_sent(site, record, send->message);
  } else if (std::holds_alternative<Left>(action) || std::holds_alternative<Failed>(action)) {
    record.over = true;
  }
}

// Nothing is said that a memory does not hold by then: who says it may die at once. An answer to a candidate that comes
// after it leads, and has let this site in, is too late to count.
void Invariants::on_site_sent(const std::string& site, SiteRecord& record, const wire::Message& message) {
  const std::optional<wire::Record>& durable = record.durable;
  const auto is_durable = [&](TermId term) { return durable && durable->promised >= term; };
  if (const auto* done = std::get_if<wire::Done>(&message)) {
    check(record.anchor.has_value(), site + " is done without an anchor");
    const Attempt attempt{record.anchor ? record.anchor->first : RunId{}, done->round, done->attempt};
    check(done->slices.empty() || record.started.count(attempt) == 1,
          site + " is done with an exchange it never started");
    check(is_durable(done->term) && covers(*durable, *done),
          site + " says that it is done with " + text_of(done->round, done->attempt) + " before that is durable");
    record.done.insert(attempt);
    done_sent_[attempt].insert(record.id);
  } else if (const auto* installed = std::get_if<wire::AnchorInstalled>(&message)) {
    record.anchor = {installed->run, installed->round};
    says_as(site, record, installed->acceptor);
  } else if (const auto* promise = std::get_if<wire::Promise>(&message)) {
    check_promise(site, record, *promise);
  } else if (const auto* accepted = std::get_if<wire::Accepted>(&message)) {
    const std::string what = " accepts something under term " + std::to_string(accepted->term.value);
    const bool asked = record.to_accept && record.to_accept->term == accepted->term;
    check(asked, site + what + ", which it was not asked for");
    const bool kept =
        asked && is_durable(accepted->term) &&
        std::ranges::all_of(record.to_accept->proposals, [&](const wire::Proposal& p) { return covers(*durable, p); });
    check(!asked || kept || record.let_in, site + what + " before that is durable");
  } else if (std::holds_alternative<wire::Leave>(message)) {
    check(durable && heard_.count({record.name, durable->acceptor}) == 0,
          site + " leaves before the end of its memory is durable");
  }
}

void Invariants::check_promise(const std::string& site, const SiteRecord& record, const wire::Promise& promise) {
  const wire::Record& said = promise.report.record;
  const std::string what = site + " promises term " + std::to_string(promise.term.value);
  const std::optional<wire::Record>& durable = record.durable;
  const bool kept = durable && durable->acceptor == said.acceptor && durable->promised >= promise.term &&
                    std::ranges::all_of(said.proposals, [&](const wire::Proposal& p) { return covers(*durable, p); });
  check(kept || record.let_in, what + " before that is durable");
  says_as(site, record, said.acceptor);
  TermId& last = promised_[{record.name, said.acceptor}];
  check(promise.term > last, what + " after term " + std::to_string(last.value));
  last = std::max(last, promise.term);
}

// A memory is of one run: what it has taken part in, and seen committed. Of a process that ended the memory is what was
// durable: one that had an anchor put in place, of which nothing was written yet, was of no run. (What it has accepted
// from a successor may be of the run that it is about to go over to.)
void Invariants::check_memory(const std::string& site, SiteRecord& record, const wire::Record& kept) {
  const RunId run = kept.anchor.run;
  if (run.value == 0) return;
  const auto before = runs_.find({record.name, kept.acceptor});
  const bool same = before == runs_.end() || before->second == run;
  check(same && record.runs.try_emplace(kept.acceptor, run).first->second == run,
        site + " keeps in one memory what it agreed on in two runs");
  const bool own = std::ranges::all_of(kept.recent, [&](const wire::Past& past) { return past.run == run; }) &&
                   std::ranges::all_of(kept.proposals, [&](const wire::Proposal& p) {
                     return p.settled.value != 0 || p.start.run == run;
                   });
  check(own, site + " keeps what is of another run than its anchor");
}

// A site that is told that a voter has left records that: the next leader may hear of it from no other.
void Invariants::check_member_left(const std::string& site, const wire::MemberLeft& left,
                                   const std::vector<SiteAction>& actions) {
  const bool kept = std::ranges::any_of(actions, [&](const SiteAction& action) {
    const auto* persist = std::get_if<Persist>(&action);
    return persist != nullptr && std::ranges::none_of(persist->record.voters, [&](const wire::Voter& voter) {
             return voter.acceptor == left.acceptor && !voter.left;
           });
  });
  check(kept, site + " was told that " + left.site + " has left, and does not keep that");
}

// With an anchor lies its membership, and the term that these sites had promised by then.
void Invariants::check_membership(const std::string& site, const SiteRecord& record, const KnownMembership& kept) {
  check(!kept.voters.empty(), site + " keeps an anchor without the membership as of it");
  check(kept.promised >= record.term, site + " keeps an anchor with term " + std::to_string(kept.promised.value) +
                                          ", and follows term " + std::to_string(record.term.value));
}

// What a process could not write may be older on the disk: it says nothing more under that name. (A later process that
// finds an older record goes on with it: what was said under its name was durable then, and is in there.)
void Invariants::says_as(const std::string& site, const SiteRecord& record, AcceptorId acceptor) {
  check(record.lost.count(acceptor) == 0, site + " goes on with a memory that could not be written");
  heard_.insert({record.name, acceptor});
}

void Invariants::on_persisted(const std::string& site, SiteRecord& record, const Persisted& persisted) {
  if (!persisted.why.ok() && !record.asked.empty()) record.lost.insert(record.asked.rbegin()->second.acceptor);
  if (persisted.number <= record.written) {  // one was overtaken: what is on the disk may be older, if it failed
    if (!persisted.why.ok()) record.durable.reset();
    return;
  }
  record.written = persisted.number;
  const auto asked = record.asked.find(persisted.number);
  check(asked != record.asked.end(), site + ": record " + std::to_string(persisted.number) + " is not on its way");
  if (asked == record.asked.end()) return;
  record.durable = persisted.why.ok() ? std::optional(asked->second) : std::nullopt;
  if (record.durable && record.durable->anchor.run.value != 0) {
    runs_.try_emplace({record.name, record.durable->acceptor}, record.durable->anchor.run);
  }
  record.asked.erase(record.asked.begin(), std::next(asked));
}

// Nobody applies before all are done.
void Invariants::on_apply(const std::string& site, SiteRecord& record, const ApplyCommit& apply) {
  const wire::Commit& commit = apply.commit;
  const std::string name = text_of(commit.round, commit.attempt);
  record.applying = commit;
  check(record.anchor && record.anchor->second.value + 1 == commit.round.value,
        site + " applies " + name + " on an anchor that is not of the round before");
  if (!record.anchor) return;
  const RunId run = record.anchor->first;
  const auto known = commits_.find({run, commit.round});
  check(known != commits_.end() && known->second.attempt == commit.attempt,
        site + " applies " + name + ", which was not committed");
  check((record.done.count({run, commit.round, commit.attempt}) == 1),
        site + " applies " + name + " without having done it");
}

// After a commit all hold the same anchor and outer state.
void Invariants::on_applied(const std::string& site, SiteRecord& record, const Applied& applied) {
  if (!record.applying || record.applying->round != applied.round || !record.anchor) return;
  record.anchor->second = applied.round;
  record.applying.reset();
  if (excused_.count({site, applied.round}) != 0) return;
  const auto [known, fresh] =
      states_.try_emplace({record.anchor->first, applied.round}, std::pair(applied.state, site));
  check(
      fresh || known->second.first == applied.state,
      site + " has another state after round " + std::to_string(applied.round.value) + " than " + known->second.second);
}

}  // namespace collab::protocol
