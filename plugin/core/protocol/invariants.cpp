#include "core/protocol/invariants.h"

#include <algorithm>

namespace collab::protocol {
namespace {

std::string in_words(RoundId round, AttemptId attempt) {
  return "round " + std::to_string(round.value) + " attempt " + std::to_string(attempt.value);
}

bool takes_part(const wire::Form& form, SiteId site) {
  return std::any_of(form.participants.begin(), form.participants.end(), [&](const auto& p) { return p.site == site; });
}

}  // namespace

void Invariants::coordinator_lost() {
  welcomed_.clear();
  anchor_.reset();
}

void Invariants::coordinator_step(const CoordinatorEvent& event, const std::vector<CoordinatorAction>& actions) {
  if (const auto* received = std::get_if<Received>(&event)) {
    const auto from = welcomed_.find(received->link);
    if (const auto* done = std::get_if<wire::Done>(&received->message); done != nullptr && from != welcomed_.end()) {
      done_[{done->term, done->round, done->attempt}][from->second] = done->slices;
    }
  }
  for (const CoordinatorAction& action : actions) {
    const auto* send = std::get_if<Send>(&action);
    if (send == nullptr) continue;
    if (const auto* welcome = std::get_if<wire::Welcome>(&send->message)) welcomed_[send->link] = welcome->site;
    if (const auto* adopt = std::get_if<wire::Adopt>(&send->message)) on_adopt(*adopt);
    if (const auto* form = std::get_if<wire::Form>(&send->message)) on_form(*form);
    if (const auto* commit = std::get_if<wire::Commit>(&send->message)) on_commit(*commit);
  }
  if (const auto* closed = std::get_if<Closed>(&event)) welcomed_.erase(closed->link);
}

// Where nobody holds the newest anchor any more the swarm may go back; what was agreed on after it never was.
void Invariants::on_adopt(const wire::Adopt& adopt) {
  anchor_ = {adopt.run, adopt.round};
  std::erase_if(commits_, [&](const auto& entry) {
    return std::get<0>(entry.first) == adopt.term && std::get<1>(entry.first) > adopt.round;
  });
  std::erase_if(states_, [&](const auto& entry) {
    const auto& [term, run, round] = entry.first;
    return term == adopt.term && round > adopt.round;
  });
}

// An attempt is one and the same for all its members, whole, and the newest of its round.
void Invariants::on_form(const wire::Form& form) {
  const std::string name = in_words(form.round, form.attempt);
  const auto [known, fresh] = forms_.try_emplace({form.term, form.round, form.attempt}, form);
  check(known->second == form, name + " was formed in two ways");
  if (!fresh) return;
  AttemptId& last = last_attempt_[{form.term, form.round}];
  check(form.attempt > last, name + " was formed after attempt " + std::to_string(last.value));
  last = form.attempt;
  check(commits_.count({form.term, form.round}) == 0, name + " was formed after the round's commit");
  check(anchor_ && anchor_->first == form.run && anchor_->second.value + 1 == form.round.value,
        name + " does not follow the swarm's anchor");
  check(std::is_sorted(form.participants.begin(), form.participants.end(),
                       [](const auto& a, const auto& b) { return a.site < b.site; }),
        name + ": participants are not in site order");
  check(std::any_of(form.participants.begin(), form.participants.end(), [](const auto& p) { return p.weight > 0; }),
        name + ": nobody contributes");
  std::uint64_t end = 0;
  for (const wire::Slice& slice : form.slices) {
    check(slice.range.begin == end && slice.range.end > end, name + ": slices leave a gap or overlap");
    check(takes_part(form, slice.owner), name + ": a slice's owner takes no part");
    end = slice.range.end;
  }
}

// One commit a round, of one attempt, the newest, done alike by all its members.
void Invariants::on_commit(const wire::Commit& commit) {
  const std::string name = "the commit of " + in_words(commit.round, commit.attempt);
  const auto [known, fresh] = commits_.try_emplace({commit.term, commit.round}, commit);
  check(known->second == commit, name + " contradicts that of " + in_words(commit.round, known->second.attempt));
  if (!fresh) return;
  check(anchor_ && commit.round.value == anchor_->second.value + 1,
        name + " does not follow the swarm's anchor by one");
  if (anchor_) anchor_->second = commit.round;
  if (commit.attempt.value == 0) {
    check(commit.contributors.empty(), name + ": an attempt 0 has no contributors");
    return;
  }
  const auto form = forms_.find({commit.term, commit.round, commit.attempt});
  check(form != forms_.end(), name + ": it was never formed");
  if (form == forms_.end()) return;
  check(last_attempt_[{commit.term, commit.round}] == commit.attempt, name + ": a later attempt was formed");
  std::vector<SiteId> weighed;
  const auto& done = done_[{commit.term, commit.round, commit.attempt}];
  for (const wire::Participant& p : form->second.participants) {
    if (p.weight > 0) weighed.push_back(p.site);
    const auto said = done.find(p.site);
    check(said != done.end(), name + ": site " + std::to_string(p.site.value) + " was not done");
    const bool sent = sites_.empty() || done_sent_[{commit.term, commit.round, commit.attempt}].count(p.site) == 1;
    check(sent, name + ": site " + std::to_string(p.site.value) + " never said that it was done");
    if (said != done.end()) check(said->second == done.begin()->second, name + ": the means differ");
  }
  check(weighed == commit.contributors, name + ": the contributors are not those who had a weight");
}

void Invariants::site_step(const std::string& site, const SiteEvent& event, const std::vector<SiteAction>& actions) {
  SiteRecord& record = sites_[site];
  check(!record.over || actions.empty(), site + " acts after it has left or failed");
  if (const auto* received = std::get_if<Received>(&event)) {
    if (const auto* welcome = std::get_if<wire::Welcome>(&received->message)) {
      record.term = welcome->term;
      record.id = welcome->site;
    }
  }
  if (const auto* applied = std::get_if<Applied>(&event)) on_applied(site, record, *applied);
  for (const SiteAction& action : actions) on_site_action(site, record, action);
}

void Invariants::on_site_action(const std::string& site, SiteRecord& record, const SiteAction& action) {
  if (const auto* start = std::get_if<StartExchange>(&action)) {
    const Attempt attempt{start->form.term, start->form.round, start->form.attempt};
    check(takes_part(start->form, record.id), site + " exchanges in an attempt without it");
    check(start->links.size() == start->form.participants.size(), site + " exchanges with a link too few or too many");
    AttemptId& last = record.last_started[{start->form.term, start->form.round}];
    check(last < start->form.attempt, site + " starts " + in_words(start->form.round, start->form.attempt) +
                                          " after attempt " + std::to_string(last.value));
    last = start->form.attempt;
    record.started.insert(attempt);
  } else if (const auto* apply = std::get_if<ApplyCommit>(&action)) {
    on_apply(site, record, *apply);
  } else if (const auto* joined = std::get_if<JoinDone>(&action)) {
    check(!record.joined, site + " joined twice");
    record.joined = true;
    record.anchor = {joined->run, joined->round};
  } else if (const auto* send = std::get_if<Send>(&action)) {
    if (const auto* done = std::get_if<wire::Done>(&send->message)) {
      const Attempt attempt{done->term, done->round, done->attempt};
      check(record.started.count(attempt) == 1, site + " is done with an exchange it never started");
      record.done.insert(attempt);
      done_sent_[attempt].insert(record.id);
    } else if (const auto* adopted = std::get_if<wire::Adopted>(&send->message)) {
      record.anchor = {adopted->run, adopted->round};
    }
  } else if (std::holds_alternative<Left>(action) || std::holds_alternative<Failed>(action)) {
    record.over = true;
  }
}

// Nobody applies before all are done.
void Invariants::on_apply(const std::string& site, SiteRecord& record, const ApplyCommit& apply) {
  const wire::Commit& commit = apply.commit;
  const std::string name = in_words(commit.round, commit.attempt);
  record.applying = commit;
  const auto known = commits_.find({commit.term, commit.round});
  check(known != commits_.end() && known->second == commit, site + " applies " + name + ", which was not committed");
  check(record.anchor && record.anchor->second.value + 1 == commit.round.value,
        site + " applies " + name + " on an anchor that is not of the round before");
  if (commit.attempt.value == 0) return;
  const Attempt attempt{commit.term, commit.round, commit.attempt};
  check(record.done.count(attempt) == 1, site + " applies " + name + " without having done it");
  const auto form = forms_.find(attempt);
  if (form == forms_.end()) return;
  for (const wire::Participant& p : form->second.participants) {
    check(done_sent_[attempt].count(p.site) == 1,
          site + " applies " + name + " before site " + std::to_string(p.site.value) + " is done");
  }
}

// After a commit all hold the same anchor and outer state.
void Invariants::on_applied(const std::string& site, SiteRecord& record, const Applied& applied) {
  if (!record.applying || record.applying->round != applied.round || !record.anchor) return;
  record.anchor->second = applied.round;
  const TermId term = record.applying->term;
  record.applying.reset();
  if (excused_.count({site, applied.round}) != 0) return;
  const auto [known, fresh] =
      states_.try_emplace({term, record.anchor->first, applied.round}, std::pair(applied.state, site));
  check(
      fresh || known->second.first == applied.state,
      site + " has another state after round " + std::to_string(applied.round.value) + " than " + known->second.second);
}

}  // namespace collab::protocol
