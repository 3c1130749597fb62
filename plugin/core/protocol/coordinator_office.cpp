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

// Of two runs the one that has agreed more often stays: a fresh one never takes the place of one that has trained. Of
// two that have not agreed yet, the larger.
bool is_newer(const wire::Offer& a, std::size_t voters_of_a, const wire::Offer& b, std::size_t voters_of_b) {
  if (a.round != b.round || a.run == b.run) return a.round > b.round;
  if (a.round.value > 0) return a.run > b.run;
  return std::tuple(voters_of_a, a.run) > std::tuple(voters_of_b, b.run);
}

bool is_newer(const wire::Join& a, const wire::Join& b) {
  return is_newer(a.offer, a.report.voters.size(), b.offer, b.report.voters.size());
}

// The membership of the newest anchor anybody reports, and the newest attempt at the round after it.
struct Newest {
  const wire::Join* anchor = nullptr;
  const wire::Prepared* prepared = nullptr;
};

Newest newest_of(const std::map<LinkId, Applicant>& applicants, bool granted_only) {
  Newest newest;
  for (const auto& [link, applicant] : applicants) {
    const wire::Join& join = applicant.join;
    if ((granted_only && !applicant.granted) || join.report.voters.empty()) continue;
    if (newest.anchor == nullptr || is_newer(join, *newest.anchor)) newest.anchor = &join;
  }
  if (newest.anchor == nullptr) return newest;
  const wire::Offer& anchor = newest.anchor->offer;
  for (const auto& [link, applicant] : applicants) {
    if (granted_only && !applicant.granted) continue;
    for (const wire::Prepared& prepared : applicant.join.report.prepared) {
      const wire::Form& form = prepared.form;
      if (form.run != anchor.run || form.round.value != anchor.round.value + 1) continue;
      if (newest.prepared == nullptr || form.attempt > newest.prepared->form.attempt) newest.prepared = &prepared;
    }
  }
  return newest;
}

// More than half of the voters are here, and at least half of them with their memory: a process that was started again
// does not know what its predecessor was done with, but of an attempt that was committed somebody here does. Where all
// were started again, all are needed, or `patient` no more.
bool most_of(const std::vector<wire::Voter>& voters, const std::map<LinkId, Applicant>& applicants, bool granted_only,
             bool patient) {
  std::size_t here = 0;
  std::size_t remember = 0;
  for (const wire::Voter& voter : voters) {
    const auto found = std::find_if(applicants.begin(), applicants.end(), [&](const auto& entry) {
      return entry.second.join.site == voter.name && (entry.second.granted || !granted_only);
    });
    if (found == applicants.end()) continue;
    ++here;
    remember += found->second.join.report.remembers ? 1 : 0;
  }
  const bool known = 2 * remember >= voters.size() || here == voters.size() || (remember == 0 && !patient);
  return 2 * here > voters.size() && known;
}

}  // namespace

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

bool Coordinator::State::has_quorum(const std::set<SiteId>& present) const {
  const auto here = static_cast<std::size_t>(
      std::count_if(voters.begin(), voters.end(), [&](const auto& voter) { return present.count(voter.first) != 0; }));
  return voters.empty() || 2 * here > voters.size();
}

std::string Coordinator::State::quorum_in_words(const std::set<SiteId>& present) const {
  std::vector<std::string> missing;
  for (const auto& [site, name] : voters) {
    if (present.count(site) == 0) missing.push_back(name);
  }
  return std::to_string(voters.size() - missing.size()) + " of the " + std::to_string(voters.size()) +
         " sites that agreed on round " + std::to_string(anchor ? anchor->round.value : 0) +
         ", which is no majority; missing: " + join_words(missing);
}

std::set<SiteId> Coordinator::State::all_members() const {
  std::set<SiteId> sites;
  for (const auto& [id, member] : members) sites.insert(id);
  return sites;
}

void Coordinator::State::remember(RunId run, RoundId of, AttemptId attempt, const std::vector<SiteId>& contributors) {
  std::vector<Digest> slices;
  if (const auto known = history.find(of); known != history.end() && known->second.attempt == attempt) {
    slices = std::move(known->second.slices);
  }
  history[of] = PastRound{run, attempt, {contributors.begin(), contributors.end()}, std::move(slices)};
  while (history.size() > kRememberedRounds) history.erase(history.begin());
}

// Of the round after the anchor it holds: no other can hold a contribution of it.
wire::Counted Coordinator::State::counted(const MemberRecord& member) const {
  const wire::Offer held = brought_by(member);
  if (held.run.value == 0 || std::tuple(held.run, held.round) == std::tuple(anchor->run, anchor->round))
    return wire::Counted::kNo;
  const auto past = history.find(RoundId{held.round.value + 1});
  if (past == history.end() || past->second.run != held.run) return wire::Counted::kUnknown;
  return past->second.contributors.count(member.id) != 0 ? wire::Counted::kYes : wire::Counted::kNo;
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
  if (applicants.empty()) applying.start(now);
  applicants[link] = Applicant{join, TermId{}, false};
  seek_office();
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
  return remembered &&
         (newest == nullptr || !is_newer(newest->offer, newest->report.voters.size(), *remembered, voters.size()));
}

// Who took office because nobody knew better has to give way to a swarm that was there before. Of two that have trained
// the one that has agreed more often stays.
bool Coordinator::State::is_older(const wire::Join& join) const {
  if (join.report.voters.empty() || outranks(&join)) return false;
  if (!anchor && !last_anchor) return true;
  const auto& [run, agreed] = anchor ? std::pair(anchor->run, anchor->round) : *last_anchor;
  return run != join.offer.run && (agreed.value == 0 || join.offer.round > agreed);
}

bool Coordinator::State::enough(bool granted_only) const {
  const bool patient = now < later(applying.since(), config.link_grace);
  const Newest newest = newest_of(applicants, granted_only);
  const bool ours = outranks(newest.anchor);
  if (!ours && newest.anchor == nullptr) return false;
  const std::vector<wire::Voter> membership = ours ? list_of(voters) : newest.anchor->report.voters;
  if (!most_of(membership, applicants, granted_only, patient)) return false;
  return newest.prepared == nullptr || most_of(newest.prepared->form.voters, applicants, granted_only, patient);
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
  const bool empty_handed = strangers || (remembered && remembered->round.value == 0);
  if (newest.anchor == nullptr && empty_handed && now >= later(applying.since(), config.link_grace)) voters.clear();
  // Nobody to ask: the swarm has not begun, or all of it has left in good order.
  const bool nobody = voters.empty() && (newest.anchor == nullptr || outranks(newest.anchor));
  if (nobody) {
    founded = true;
    forks = remembered.has_value();  // others may have agreed on more than we remember: from here it is another run
    return take_office(std::max(term, TermId{highest.value + 1}));
  }
  if (enough(true)) return take_office(term);
  if (!enough(false)) return;  // those who wait here go on to another candidate after a while
  // Where nobody remembers, the last terms are not known either.
  const bool forgotten = std::none_of(applicants.begin(), applicants.end(),
                                      [](const auto& entry) { return entry.second.join.report.remembers; });
  const TermId least{highest.value + (forgotten ? kForgottenTerms : 1)};
  if (term < least) {
    term = least;
    for (auto& [link, applicant] : applicants) applicant.granted = false;
  }
  for (auto& [link, applicant] : applicants) {
    if (applicant.proposed == term) continue;
    applicant.proposed = term;
    applicant.granted = false;
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
       "for a majority of the " + std::to_string(membership.size()) + " sites that agreed last; here: " +
           join_words(here) + "; missing: " + join_words(missing) + " (" + in_seconds(*waited) + ")");
}

void Coordinator::State::take_office(TermId of) {
  in_office = true;
  term = of;
  if (!founded) {
    inherit();
    remembered.reset();
  }
  attempt_base = static_cast<std::uint32_t>((term.value - 1) & 0x7FFF) << 16;
  highest_attempt = attempt_base;
  const std::map<LinkId, Applicant> comers = std::move(applicants);
  applicants.clear();
  for (const auto& [link, applicant] : comers) on_join(link, applicant.join);
}

// What counts of the past is the newest anchor with its membership, and the newest attempt at the round after it.
void Coordinator::State::inherit() {
  const Newest newest = newest_of(applicants, true);
  if (newest.anchor == nullptr) return;
  const wire::Offer offer = newest.anchor->offer;
  if (!outranks(newest.anchor)) voters = voters_of(newest.anchor->report.voters);
  gathered = true;
  newborn = false;
  // Nobody remembers whether the next round was agreed on: those who are missing may hold it. What is agreed on from
  // here has another name.
  std::size_t here = 0;
  bool forgotten = true;
  for (const auto& [link, applicant] : applicants) {
    forgotten = forgotten && !applicant.join.report.remembers;
    here += std::any_of(voters.begin(), voters.end(),
                        [&](const auto& voter) { return voter.second == applicant.join.site; })
                ? 1
                : 0;
  }
  forks = forgotten && here < voters.size();
  if (!forks) anchor = AnchorRecord{offer.run, offer.round, offer.digest};
  for (const auto& [link, applicant] : applicants) {
    for (const wire::Commit& commit : applicant.join.report.recent) {
      if (commit.run == offer.run) remember(commit.run, commit.round, commit.attempt, commit.contributors);
    }
  }
  note(Note::Level::kInfo, "coordinator",
       "in office under term " + std::to_string(term.value) + " by " + std::to_string(applicants.size()) +
           " sites, at run " + std::to_string(offer.run.value) + " round " + std::to_string(offer.round.value),
       {{"term", std::to_string(term.value)}});
  if (newest.prepared != nullptr) settle(*newest.prepared);
}

// If it was committed, every member of it was done; so when one here is not, it never was and never will be. When all
// are, it may have been: it is committed, seen or not.
void Coordinator::State::settle(const wire::Prepared& newest) {
  const wire::Form& form = newest.form;
  const std::string name =
      "attempt " + std::to_string(form.attempt.value) + " of round " + std::to_string(form.round.value);
  for (const auto& [link, applicant] : applicants) {
    const auto in = std::find_if(form.participants.begin(), form.participants.end(), [&](const auto& p) {
      const auto voter =
          std::find_if(form.voters.begin(), form.voters.end(), [&](const auto& v) { return v.site == p.site; });
      return voter != form.voters.end() && voter->name == applicant.join.site;
    });
    if (in == form.participants.end() || !applicant.join.report.remembers || !applicant.granted) continue;
    const auto& said = applicant.join.report.prepared;
    const bool done = !said.empty() && said[0].form == form && said[0].done && said[0].slices == newest.slices;
    if (done) continue;
    return note(Note::Level::kInfo, "coordinator",
                name + " is given up: " + applicant.join.site + " was not done with it, so nobody committed it");
  }
  std::vector<SiteId> contributors;
  for (const wire::Participant& p : form.participants) {
    if (p.weight > 0) contributors.push_back(p.site);
  }
  note(Note::Level::kInfo, "coordinator", name + " is committed: everybody here was done with it");
  remember(form.run, form.round, form.attempt, contributors);
  history.at(form.round).slices = newest.slices;
  anchor->round = form.round;
  anchor->digest.reset();
  voters = voters_of(form.voters);
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
  if (anchor) remembered = wire::Offer{anchor->run, anchor->round, anchor->digest.value_or(Digest{})};
  if (last_anchor) remembered = wire::Offer{last_anchor->first, last_anchor->second, {}};
  last_anchor.reset();
  forget_everything();
  in_office = founded = false;
  ++term.value;
}

}  // namespace collab::protocol
