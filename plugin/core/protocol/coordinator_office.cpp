// Office: who may coordinate, under which term, and what a successor takes over from the members.
//
// A candidate takes office when a majority of the newest membership has granted it a term above all it had granted.
// An attempt needs Done from a majority of the same membership under one term, so of two coordinators at most one
// commits, and whatever one committed the other finds done at every member it can reach.
#include <algorithm>
#include <tuple>

#include "core/protocol/coordinator_state.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

// Of two runs neither of which is a branch of the other, the one that has agreed more often stays: a fresh one never
// takes the place of one that has trained. Of two that have not agreed yet, the larger.
bool is_newer(const wire::Offer& a, std::size_t voters_of_a, const wire::Offer& b, std::size_t voters_of_b) {
  if (a.round != b.round || a.run == b.run) return a.round > b.round;
  if (a.round.value > 0) return a.run > b.run;
  return std::tuple(voters_of_a, a.run) > std::tuple(voters_of_b, b.run);
}

// Of the membership of a run. Who went into a branch of it has given up what it knew of it.
template <typename Counts>
Presence presence(RunId run, const std::vector<wire::Voter>& voters, const std::map<LinkId, Applicant>& applicants,
                  Counts counts) {
  Presence presence{voters.size()};
  for (const wire::Voter& voter : voters) {
    const auto found = std::find_if(applicants.begin(), applicants.end(), [&](const auto& entry) {
      return entry.second.join.site == voter.name && counts(entry.second);
    });
    if (found == applicants.end()) continue;
    ++presence.here;
    presence.remember += remembers(found->second.join, run) ? 1 : 0;
  }
  return presence;
}

// A branch does not wait for a trunk that could not go on either.
bool is_newer(const wire::Offer& a, const std::vector<wire::Voter>& voters_of_a, const wire::Offer& b,
              const std::vector<wire::Voter>& voters_of_b, const std::map<LinkId, Applicant>& applicants) {
  if (const auto first = trunk_first(a, b)) {
    const auto most_of = [&](const std::vector<wire::Voter>& voters) {
      return presence(RunId{}, voters, applicants, [](const Applicant&) { return true; }).most();
    };
    const bool goes_on = most_of(*first ? voters_of_a : voters_of_b);
    const bool other_does = most_of(*first ? voters_of_b : voters_of_a);
    return goes_on || !other_does ? *first : !*first;
  }
  return is_newer(a, voters_of_a.size(), b, voters_of_b.size());
}

// The membership of the newest anchor anybody reports, and the newest attempt at the round after it: the last that was
// formed, or to be committed, under the highest term.
struct Newest {
  const wire::Join* anchor = nullptr;
  const wire::Prepared* prepared = nullptr;
};

bool is_newer(const wire::Prepared& a, const wire::Prepared& b) {
  const auto rank = [](const wire::Prepared& p) {
    return std::tuple(std::max(p.form.term, p.confirmed), p.form.attempt, p.confirmed, p.done);
  };
  return rank(a) > rank(b);
}

Newest newest_of(const std::map<LinkId, Applicant>& applicants, bool granted_only) {
  Newest newest;
  for (const auto& [link, applicant] : applicants) {
    const wire::Join& join = applicant.join;
    if ((granted_only && !applicant.granted) || join.report.voters.empty()) continue;
    if (newest.anchor == nullptr ||
        is_newer(join.offer, join.report.voters, newest.anchor->offer, newest.anchor->report.voters, applicants)) {
      newest.anchor = &join;
    }
  }
  if (newest.anchor == nullptr) return newest;
  const wire::Offer& anchor = newest.anchor->offer;
  for (const auto& [link, applicant] : applicants) {
    if (granted_only && !applicant.granted) continue;
    for (const wire::Prepared& prepared : applicant.join.report.prepared) {
      const wire::Form& form = prepared.form;
      if (form.run != anchor.run || form.round.value != anchor.round.value + 1) continue;
      if (newest.prepared == nullptr || is_newer(prepared, *newest.prepared)) newest.prepared = &prepared;
    }
  }
  return newest;
}

bool holds_mean(const Applicant& applicant, const wire::Prepared& of) {
  const auto& said = applicant.join.report.prepared;
  return std::any_of(said.begin(), said.end(),
                     [&](const auto& p) { return p.done && p.form == of.form && p.slices == of.slices; });
}

// What an older term began and may have committed; nothing where somebody here can rule that out. Who was not done with
// an attempt and has granted a newer term never will be, so its coordinator never committed it; where a successor was
// about to, that does not help.
std::optional<wire::Prepared> to_commit(const Newest& newest, const std::map<LinkId, Applicant>& applicants,
                                        TermId term) {
  if (newest.prepared == nullptr) return std::nullopt;
  const wire::Form& form = newest.prepared->form;
  const auto takes_part = [&](const std::string& name) {
    const auto voter =
        std::find_if(form.voters.begin(), form.voters.end(), [&](const auto& v) { return v.name == name; });
    return voter != form.voters.end() && std::any_of(form.participants.begin(), form.participants.end(),
                                                     [&](const auto& p) { return p.site == voter->site && p.here; });
  };
  const bool ruled_out = std::any_of(applicants.begin(), applicants.end(), [&](const auto& entry) {
    const wire::Join& join = entry.second.join;
    return entry.second.granted && remembers(join, form.run) && takes_part(join.site) &&
           !holds_mean(entry.second, *newest.prepared);
  });
  if (newest.prepared->confirmed.value == 0 && (ruled_out || !newest.prepared->done)) return std::nullopt;
  return wire::Prepared{form, false, newest.prepared->slices, term};
}

}  // namespace

wire::Offer offer_of(const AnchorRecord& anchor) {
  return {anchor.run, anchor.round, anchor.digest.value_or(Digest{}), anchor.branch};
}

bool remembers(const wire::Join& join, RunId run) {
  return join.report.remembers && (run == RunId{} || join.offer.run == run);
}

Voters voters_of(const std::vector<wire::Voter>& list) {
  Voters voters;
  for (const wire::Voter& voter : list) voters[voter.site] = voter.name;
  return voters;
}

std::vector<wire::Voter> list_of(const Voters& voters) {
  std::vector<wire::Voter> list;
  for (const auto& [site, name] : voters) list.push_back({site, name});
  return list;
}

// ---- towards office --------------------------------------------------------------------------------

void Coordinator::State::apply_for(LinkId link, const wire::Join& join) {
  for (auto other = applicants.begin(); other != applicants.end();) {  // the same site on a newer link
    if (other->second.join.site != join.site || other->first == link) {
      ++other;
      continue;
    }
    out.emplace_back(Hangup{other->first, "replaced by a new link of " + join.site});
    other = applicants.erase(other);
  }
  if (applicants.size() >= wire::kMaxSites) return refuse_link(link, join.site, "too many joins at once; try again");
  // They come and go between candidates: what counts is since when somebody has been looking for a coordinator here.
  if (applicants.empty() && (!applying.running() || now >= later(last_applicant, config.link_grace)))
    applying.start(now);
  applicants[link] = Applicant{join, TermId{}, false};
  seek_office();
}

void Coordinator::State::forget_applicant(LinkId link) {
  if (applicants.erase(link) == 0) return;
  last_applicant = now;
  generations.seen(now);
}

void Coordinator::State::on_grant(LinkId link, const wire::Grant& grant) {
  const auto found = applicants.find(link);
  if (found == applicants.end() || grant.term != found->second.proposed) return;  // of a proposal given up since
  found->second.granted = true;
  found->second.join.offer = grant.offer;
  found->second.join.report = grant.report;
  seek_office();
}

// What this candidate knows from its own time in office counts as a report.
bool Coordinator::State::outranks(const wire::Join* newest) const {
  return remembered && (newest == nullptr ||
                        !is_newer(newest->offer, newest->report.voters, *remembered, list_of(voters), applicants));
}

// Nobody of the swarm that was here comes any more, and those who come have one of their own, neither a branch of the
// other.
bool Coordinator::State::outlived_by(const wire::Join* newest) const {
  return !voters.empty() && newest != nullptr && outranks(newest) && newest->offer.run != remembered->run &&
         !trunk_first(newest->offer, *remembered) && now >= later(applying.since(), config.link_grace);
}

// Who took office because nobody knew better has to give way to a swarm that was there before. Of two that have trained
// the one that has agreed more often stays.
bool Coordinator::State::is_older(const wire::Join& join) const {
  if (join.report.voters.empty() || outranks(&join)) return false;
  if (!anchor && !last_anchor) return true;
  if (anchor && trunk_first(join.offer, offer_of(*anchor))) return false;
  const auto& [run, agreed] = anchor ? std::pair(anchor->run, anchor->round) : *last_anchor;
  return run != join.offer.run && (agreed.value == 0 || join.offer.round > agreed);
}

// Those who are here have waited long enough for a majority, and are not a branch yet.
bool Coordinator::State::patience_is_over() const {
  if (now < later(applying.since(), config.quorum_timeout) || has_majority(false)) return false;
  const Newest newest = newest_of(applicants, false);
  const bool ours = outranks(newest.anchor);
  if (!ours && newest.anchor == nullptr) return false;
  return (ours ? *remembered : newest.anchor->offer).branch.empty();
}

bool Coordinator::State::enough(bool granted_only) const {
  if (has_majority(granted_only)) return true;
  const bool all_granted =
      std::all_of(applicants.begin(), applicants.end(), [](const auto& entry) { return entry.second.granted; });
  return (all_granted || !granted_only) && patience_is_over();
}

bool Coordinator::State::has_majority(bool granted_only) const {
  const bool patient = now < later(applying.since(), config.link_grace);
  const auto suffice = [&](RunId run, const std::vector<wire::Voter>& membership) {
    const Presence who =
        presence(run, membership, applicants, [&](const Applicant& a) { return a.granted || !granted_only; });
    return who.most() && (who.knows() || !patient);
  };
  const Newest newest = newest_of(applicants, granted_only);
  const bool ours = outranks(newest.anchor);
  if (!ours && newest.anchor == nullptr) return false;
  const bool most = ours ? suffice(remembered->run, list_of(voters))
                         : suffice(newest.anchor->offer.run, newest.anchor->report.voters);
  return most && (newest.prepared == nullptr || suffice(newest.prepared->form.run, newest.prepared->form.voters));
}

bool Coordinator::State::confirmed_by_most() const {
  const auto confirms = [this](const Applicant& applicant) {
    const auto& said = applicant.join.report.prepared;
    return applicant.granted && std::any_of(said.begin(), said.end(), [this](const auto& p) {
             return p.confirmed == term && p.form == settled->form;
           });
  };
  const Newest newest = newest_of(applicants, true);
  return newest.anchor != nullptr &&
         presence(newest.anchor->offer.run, newest.anchor->report.voters, applicants, confirms).most() &&
         presence(settled->form.run, settled->form.voters, applicants, confirms).most();
}

void Coordinator::State::seek_office() {
  if (in_office || applicants.empty()) return;
  TermId highest;
  for (const auto& [link, applicant] : applicants) {
    if (!applicant.granted) highest = std::max(highest, applicant.join.report.granted);
  }
  const Newest newest = newest_of(applicants, false);
  const bool strangers = std::none_of(applicants.begin(), applicants.end(), [this](const auto& applicant) {
    return std::any_of(voters.begin(), voters.end(),
                       [&](const auto& voter) { return voter.second == applicant.second.join.site; });
  });
  const bool empty_handed = strangers || ended || (remembered && remembered->round.value == 0);
  if (newest.anchor == nullptr && empty_handed && now >= later(applying.since(), config.link_grace)) voters.clear();
  if (strangers && outlived_by(newest.anchor)) {
    remembered.reset();
    voters.clear();
  }
  // Nobody to ask: the swarm has not begun, or all of it has left in good order.
  const bool nobody = voters.empty() && (newest.anchor == nullptr || outranks(newest.anchor));
  if (nobody) {
    founded = true;
    forks = remembered.has_value();  // others may have agreed on more than we remember: from here it is another run
    return take_office(std::max(term, TermId{highest.value + 1}));
  }
  if (enough(true)) {
    if (patience_is_over()) {  // of what others may have agreed on a branch takes nothing over
      branches = true;
      settled.reset();
      return take_office(term);
    }
    if (!settled) settled = to_commit(newest_of(applicants, true), applicants, term);
    if (!settled) return take_office(term);
    for (auto& [link, applicant] : applicants) {
      if (!applicant.granted || std::exchange(applicant.told, true)) continue;
      out.emplace_back(Send{link, wire::Propose{term, {*settled}}});
    }
    if (confirmed_by_most()) take_office(term);
    return;
  }
  if (!enough(false)) return;  // those who wait here go on to another candidate after a while
  // Where too few remember, the last terms are not known either.
  const bool ours = outranks(newest.anchor);
  const auto anybody = [](const Applicant&) { return true; };
  const bool forgotten = !presence(ours ? remembered->run : newest.anchor->offer.run,
                                   ours ? list_of(voters) : newest.anchor->report.voters, applicants, anybody)
                              .half_remember();
  const TermId least{highest.value + (forgotten ? kForgottenTerms : 1)};
  if (term < least) {
    term = least;
    settled.reset();
    for (auto& [link, applicant] : applicants) applicant.granted = false;
  }
  for (auto& [link, applicant] : applicants) {
    if (applicant.proposed == term) continue;
    applicant.proposed = term;
    applicant.granted = applicant.told = false;
    out.emplace_back(Send{link, wire::Propose{term}});
  }
}

// Missing: of the newest membership, by name.
void Coordinator::State::on_office_tick() {
  seek_office();
  const auto waited = applicants.empty() ? std::nullopt : applying.due(now);
  if (!waited) return;
  const Newest newest = newest_of(applicants, false);
  const bool ours = outranks(newest.anchor) || newest.anchor == nullptr;
  const std::vector<wire::Voter> membership = ours ? list_of(voters) : newest.anchor->report.voters;
  std::vector<std::string> here;
  std::vector<std::string> missing;
  for (const auto& [link, applicant] : applicants) here.push_back(applicant.join.site);
  for (const wire::Voter& voter : membership) {
    if (std::find(here.begin(), here.end(), voter.name) == here.end()) missing.push_back(voter.name);
  }
  note(Note::Level::kInfo, "waiting",
       "waiting for a majority of the " + std::to_string(membership.size()) + " sites that agreed last; here: " +
           join_words(here) + "; missing: " + join_words(missing) + " (" + in_seconds(*waited) + ")");
}

void Coordinator::State::take_office(TermId of) {
  in_office = true;
  term = of;
  if (!founded) {
    inherit();
    remembered.reset();
  }
  ended = false;
  settled.reset();
  attempt_base = static_cast<std::uint32_t>((term.value - 1) & 0x7FFF) << 16;
  highest_attempt = attempt_base;
  const std::map<LinkId, Applicant> comers = std::move(applicants);
  applicants.clear();
  applying.stop();
  for (const auto& [link, applicant] : comers) on_join(link, applicant.join);
}

// What counts of the past is the newest anchor with its membership, and the newest attempt at the round after it.
void Coordinator::State::inherit() {
  const Newest newest = newest_of(applicants, true);
  const bool ours = outranks(newest.anchor);
  if (newest.anchor == nullptr && !ours) return;
  if (newest.anchor == nullptr && ended) {  // the next swarm, even with a name of the last one's
    voters.clear();
    forks = true;
    return;
  }
  const wire::Offer offer = newest.anchor == nullptr ? wire::Offer{} : newest.anchor->offer;
  if (!ours) voters = voters_of(newest.anchor->report.voters);
  gathered = true;
  newborn = false;
  // Where too few remember, those who are missing may hold more. What is agreed on from here has another name.
  const auto vague = [&](const std::vector<wire::Voter>& membership) {
    return !presence(ours ? remembered->run : offer.run, membership, applicants, [](const Applicant& a) {
              return a.granted;
            }).knows();
  };
  forks = branches || vague(list_of(voters)) || (settled && vague(settled->form.voters));
  if (ours && std::tie(offer.run, offer.round) != std::tie(remembered->run, remembered->round)) {
    if (remembered->round.value > 0) last_anchor = {remembered->run, remembered->round};  // it may be brought back
    last_branch = remembered->branch;
  } else if (newest.anchor != nullptr && !forks) {
    anchor = AnchorRecord{offer.run, offer.round, offer.digest, offer.branch};
  }
  for (const auto& [link, applicant] : applicants) {
    for (const wire::Commit& commit : applicant.join.report.recent) {
      if (commit.run == offer.run) remember(commit.run, commit.round, commit.attempt, commit.contributors);
    }
  }
  note(Note::Level::kInfo, "coordinator",
       "in office under term " + std::to_string(term.value) + " by " + std::to_string(applicants.size()) +
           " sites, at run " + std::to_string(offer.run.value) + " round " + std::to_string(offer.round.value),
       {{"term", std::to_string(term.value)}});
  if (settled && anchor) return commit_settled();
  if (settled || newest.prepared == nullptr) return;
  const wire::Form& form = newest.prepared->form;
  note(Note::Level::kInfo, "coordinator",
       "attempt " + std::to_string(form.attempt.value) + " of round " + std::to_string(form.round.value) +
           " is given up: not all were done with it, so nobody committed it");
  if (anchor && form.run == anchor->run && form.round == number()) round.slices = form.slices;
}

// It may have been committed already; whoever saw that holds the same.
void Coordinator::State::commit_settled() {
  const wire::Form form = settled->form;
  if (form.run != anchor->run || form.round.value != anchor->round.value + 1) return;  // seen by one who came later
  std::vector<SiteId> contributors;
  for (const wire::Participant& p : form.participants) {
    if (p.weight > 0) contributors.push_back(p.site);
  }
  note(Note::Level::kInfo, "coordinator",
       "attempt " + std::to_string(form.attempt.value) + " of round " + std::to_string(form.round.value) +
           " is committed: everybody here was done with it");
  remember(form.run, form.round, form.attempt, contributors);
  history.at(form.round).slices = settled->slices;
  voters = voters_of(form.voters);
  const bool held = std::any_of(applicants.begin(), applicants.end(),
                                [this](const auto& entry) { return holds_mean(entry.second, *settled); });
  if (!held) {
    last_anchor = {form.run, form.round};
    last_branch = anchor->branch;
    return anchor.reset();
  }
  anchor->round = form.round;
  anchor->digest.reset();
}

void Coordinator::State::step_down(const std::string& reason) {
  note(Note::Level::kWarning, "coordinator", "out of office: " + reason, {{"term", std::to_string(term.value)}});
  for (const auto& [id, member] : members) out.emplace_back(Hangup{member.link, "out of office: " + reason});
  for (const auto& [link, join] : claims) out.emplace_back(Hangup{link, "out of office: " + reason});
  members.clear();
  ++changes;
  links.clear();
  claims.clear();
  leave_office();
}

// What was agreed on is kept, with the membership: strangers do not begin a swarm of their own here.
void Coordinator::State::leave_office() {
  if (!remembered) remembered = wire::Offer{};
  if (anchor) remembered = offer_of(*anchor);
  if (last_anchor) remembered = wire::Offer{last_anchor->first, last_anchor->second, {}, last_branch};
  last_anchor.reset();
  settled.reset();
  vague_since = minority_since = kNever;
  forget_everything();
  in_office = founded = branches = false;
  trunk.reset();
  ++term.value;
}

}  // namespace collab::protocol
