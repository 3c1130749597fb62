// Leading: from a mandate (election.h) to a swarm, and back to being a candidate.
//
// A leader forms attempts with an accept quorum of the membership and no other. It steps down when a newer term is
// heard of, when it has founded a swarm and an older one is heard of, and when too few are here for any round; a voter
// that comes back without its record counts from the next term on, so where it is needed one is begun.
#include <algorithm>
#include <iterator>
#include <ranges>
#include <tuple>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"
#include "core/protocol/mutants.h"
#include "core/wire/limits.h"

namespace collab::protocol {

wire::Offer offer_of(const AnchorRecord& anchor) {
  return {anchor.run, anchor.round, anchor.digest.value_or(Digest{})};
}

std::vector<wire::Voter> list_of(const Voters& voters) {
  const auto values = std::views::values(voters);
  return {values.begin(), values.end()};
}

// ---- towards it ------------------------------------------------------------------------------------

void Coordinator::State::seek() {
  if (leads) return;
  if (std::optional<Mandate> mandate = election.seek(now, out)) take_lead(std::move(*mandate));
}

void Coordinator::State::on_election_tick() {
  for (const LinkId link : election.silent(now)) {  // what it was to promise would be waited for
    out.emplace_back(Hangup{link, "silent for longer than " + in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE)"});
    election.go(now, link);
  }
  seek();
  const auto text = election.waiting(now);
  if (!text) return;
  note(Note::Level::kInfo, std::string(kWait), *text);
  out.emplace_back(Broadcast{election.links(), wire::Notice{std::string(kWait), *text}});
}

// ---- the operator's word ---------------------------------------------------------------------------

std::vector<std::string> Coordinator::State::missed() const {
  return leads ? missed_by(all_members()) : election.missing();
}

std::vector<std::string> Coordinator::State::missed_by(const std::set<SiteId>& present) const {
  std::vector<std::string> names;
  for (const auto& [site, voter] : voters) {
    if (!voter.left && present.count(site) == 0) names.push_back(voter.name);
  }
  return names;
}

// Why the word changes nothing here; empty: it does.
std::string Coordinator::State::no_use_text(const wire::Forget& forget, const std::vector<std::string>& missed) const {
  if (leads && gathering.running()) return "nobody is waited for by name: " + gathered_text();
  if (!leads && election.empty()) return "no site waits here";
  std::vector<std::string> others;
  std::ranges::copy_if(forget.sites, std::back_inserter(others),
                       [&](const std::string& name) { return std::ranges::find(missed, name) == missed.end(); });
  if (others.empty() && !forget.sites.empty()) return {};
  for (std::string& name : others) name = name.empty() ? "a site without a name" : name;
  const std::vector<std::string> here = leads ? member_list() : election.names();
  return "nobody was forgotten: nobody here misses " + (others.empty() ? "a site without a name" : join_words(others)) +
         "; here: " + names_text(here, {}) + "; missing: " + names_text(missed, {});
}

// It counts where those who are here are too few without the others, and about nobody else: a name that is misspelt
// must not be taken for an answer.
void Coordinator::State::on_forget(LinkId link, const wire::Forget& forget) {
  const auto answer = [&](std::string_view event, std::string text) {
    out.emplace_back(Send{link, wire::Notice{std::string(event), std::move(text)}});
  };
  if (leads && minority_since == kNever && !gathering.running()) {
    return answer(kForget, "nobody is waited for: " + names_text(member_list(), {}) +
                               " go on by themselves, they are most of the sites that agreed last");
  }
  std::vector<std::string> missing = missed();
  if (const std::string why = no_use_text(forget, missing); !why.empty()) return answer(kRefused, why);
  const std::string whom = names_text(forget.sites, {});
  note(Note::Level::kWarning, std::string(kForget), whom + " will not come, somebody says (collab forget)",
       {{"who", json_list(forget.sites)}});
  if (leads) step_down("those who are missing are forgotten");
  election.forget(forget.sites);
  seek();
  std::erase_if(missing, [&](const std::string& name) { return election.is_forgotten(name); });
  if (leads) return answer(kForget, names_text(member_list(), {}) + " go on without " + whom + ", as another run");
  answer(kForget, missing.empty() ? whom + " is not waited for any more: those who are here go on in a moment"
                                  : whom + " is not waited for any more, but others are: " + names_text(missing, {}) +
                                        " (start them again, or forget them, too)");
}

void Coordinator::State::take_lead(Mandate mandate) {
  leads = true;
  founded = mandate.founded;
  term = mandate.term;
  ended = false;
  attempt_base = static_cast<std::uint32_t>((mutant(Mutant::kAttemptsNumberedAlike) ? 0 : term.value - 1) & 0x7FFF)
                 << 16;
  highest_attempt = attempt_base;
  if (!founded) inherit(mandate);
  for (const Mandate::Comer& comer : mandate.comers) {
    if (comer.early) early.insert(comer.link);
  }
  for (const Mandate::Comer& comer : mandate.comers) on_join(comer.link, comer.join);
}

// What counts of the past is in the mandate: the newest anchor with its membership, and what may have been committed at
// the round after it.
void Coordinator::State::inherit(const Mandate& mandate) {
  wire::Offer newest = mandate.anchor;
  if (mandate.new_run.empty()) {  // else the run that begins has a membership of its own
    for (const wire::Voter& voter : mandate.voters) voters[voter.site] = voter;
  }
  for (const wire::Past& past : mandate.recent) {
    if (past.run == newest.run) history.add(past);
  }
  gathered = true;
  forks = mandate.new_run;
  note(forks.empty() ? Note::Level::kInfo : Note::Level::kWarning, "coordinator",
       (forks.empty() ? "" : forks + " under another run's name; ") + "leader of term " + std::to_string(term.value) +
           " by " + std::to_string(mandate.comers.size()) + " sites, at " + anchor_text(newest.run, newest.round),
       {{"term", std::to_string(term.value)}});
  if (mandate.given_up && forks.empty()) {  // by enough who would know
    const wire::StartAttempt& start = *mandate.given_up;
    note(Note::Level::kInfo, "coordinator",
         "attempt " + std::to_string(start.attempt.value) + " of round " + std::to_string(start.round.value) +
             " is given up: not all had accepted it, so nobody committed it");
    history.give_up_after(newest);
    round.slices = start.slices;
  }
  if (mandate.settled && !mutant(Mutant::kSettledNotCommitted)) {
    const wire::StartAttempt& start = mandate.settled->start;
    note(Note::Level::kInfo, "coordinator",
         "attempt " + std::to_string(start.attempt.value) + " of round " + std::to_string(start.round.value) +
             " is committed: its leader may have done so");
    history.add(past_of(start, mandate.settled->slices));
    voters.clear();
    for (const wire::Voter& voter : mandate.next_voters) voters[voter.site] = voter;
    newest = {start.run, start.round, {}};
  }
  if (!forks.empty()) return;  // from the newest they have
  std::map<SiteId, Digest> held;
  for (const Mandate::Comer& comer : mandate.comers) {
    const wire::Offer& offer = comer.join.offer;
    if (std::tie(offer.run, offer.round) != std::tie(newest.run, newest.round)) continue;
    held[SiteId{static_cast<std::uint32_t>(held.size())}] = offer.digest;
  }
  if (!held.empty()) {  // what was agreed on may have been damaged since: the sites compare it before the next round
    anchor = AnchorRecord{newest.run, newest.round, majority(held)};
  } else if (std::ranges::any_of(mandate.comers, [&](const Mandate::Comer& comer) {
               const wire::Proposal* missed = history.missed_by(comer.join.offer, comer.join.report);
               return missed != nullptr && missed->start.round == newest.round && history.has_right_mean(*missed);
             })) {  // it is told, and holds it in a moment
    anchor = AnchorRecord{newest.run, newest.round, {}};
  } else {
    wanted = {newest.run, newest.round};
  }
}

// Of what this leader asks to be accepted: a newer term that it has promised is one of this run.
bool Coordinator::State::is_acceptor_of(AcceptorId acceptor, const std::string& site) const {
  const auto names_it = [&](const Voters& membership) {
    return std::ranges::any_of(std::views::values(membership), [&](const wire::Voter& voter) {
      return voter.acceptor == acceptor && voter.name == site;
    });
  };
  return names_it(voters) || names_it(next_voters);
}

// Who has founded a swarm because nobody knew better gives way to one that was there before. Of two that have trained
// the one that has agreed more often stays.
bool Coordinator::State::is_older(const wire::Join& join) const {
  const wire::Offer& theirs = join.report.record.anchor;
  if (join.report.record.voters.empty()) return false;
  if (!anchor && !wanted) return true;
  const auto& [run, agreed] = anchor ? std::pair(anchor->run, anchor->round) : *wanted;
  if (run == theirs.run) return false;
  if (agreed.value == 0) return true;
  // What has been agreed on here is not given up for a membership that is not here, nor on the word of one among many.
  const std::vector<wire::Voter>& voters_there = join.report.record.voters;
  std::size_t from_there = 1;
  std::size_t others = 0;
  std::size_t by_name = 0;
  for (const wire::Voter& voter : voters_there) by_name += voter.left || voter.name == join.site ? 1 : 0;
  for (const auto& [id, member] : members) {
    if (member.name == join.site) continue;
    const auto voter = std::ranges::find(voters_there, member.name, &wire::Voter::name);
    const bool theirs_too = voter != voters_there.end() && member.report.record.anchor.run == theirs.run;
    from_there += theirs_too ? 1 : 0;
    others += !theirs_too && !member.helper ? 1 : 0;
    by_name += theirs_too && !voter->left ? 1 : 0;
  }
  return theirs.round > agreed && 2 * by_name > voters_there.size() && from_there >= others;
}

// ---- whether a round can come about ----------------------------------------------------------------

Presence Coordinator::State::presence_of(const wire::Voter& voter, const MemberRecord& member) const {
  if (member.acceptor == voter.acceptor) return Presence::kWithRecord;
  return member.early || mutant(Mutant::kLateMemberCounts) ? Presence::kByName : Presence::kAbsent;
}

Quorum Coordinator::State::quorum_among(const std::set<SiteId>& present) const {
  return quorum_of(std::views::values(voters), [&](const wire::Voter& voter) {
    return present.count(voter.site) == 0 ? Presence::kAbsent : presence_of(voter, members.at(voter.site));
  });
}

void Coordinator::State::judge_quorum() {
  if (voters.empty() || quorum_of(std::views::values(voters), [this](const wire::Voter& voter) {
                          const auto member = members.find(voter.site);
                          return member == members.end() ? Presence::kAbsent : presence_of(voter, member->second);
                        }).can_accept()) {
    minority_since = kNever;
    return;
  }
  const Quorum at_the_next_term = quorum_of(std::views::values(voters), [this](const wire::Voter& voter) {
    return members.count(voter.site) != 0 ? Presence::kByName : Presence::kAbsent;
  });
  if (at_the_next_term.can_accept()) return step_down("a term is begun in which sites without their records count");
  minority_since = std::min(minority_since, now);
  if (now >= later(minority_since, config.link_grace)) step_down(quorum_text(all_members()));
}

std::string Coordinator::State::quorum_text(const std::set<SiteId>& present) const {
  const std::vector<std::string> missing = missed_by(present);
  return std::to_string(voters.size() - missing.size()) + " of the " + std::to_string(voters.size()) +
         " sites that agreed on round " + std::to_string(anchor ? anchor->round.value : 0) +
         ", which is no majority; missing: " + join_words(missing);
}

std::set<SiteId> Coordinator::State::all_members() const {
  std::set<SiteId> sites;
  for (const auto& [id, member] : members) sites.insert(id);
  return sites;
}

// ---- who has counted -------------------------------------------------------------------------------

// Of the round after the anchor it holds: no other can hold a contribution of it.
wire::Counted Coordinator::State::counted(const MemberRecord& member) const {
  if (mutant(Mutant::kCountedUnknown)) return wire::Counted::kUnknown;
  if (mutant(Mutant::kCountedYes)) return wire::Counted::kYes;
  if (mutant(Mutant::kCountedNo)) return wire::Counted::kNo;
  const wire::Offer held = member.renamed_from.value_or(brought_by(member));
  if (held.run.value == 0 || std::tie(held.run, held.round) == std::tie(anchor->run, anchor->round))
    return wire::Counted::kNo;
  return history.counted(member.name, held);
}

// ---- the end of it ---------------------------------------------------------------------------------

void Coordinator::State::step_down(const std::string& reason) {
  note(Note::Level::kWarning, "coordinator", "leads no more: " + reason, {{"term", std::to_string(term.value)}});
  for (const auto& [id, member] : members) out.emplace_back(Hangup{member.link, "leads no more: " + reason});
  for (const auto& [link, join] : claims) out.emplace_back(Hangup{link, "leads no more: " + reason});
  members.clear();
  ++changes;
  links.clear();
  claims.clear();
  stop_leading();
}

// Nothing is kept: what was agreed on the sites remember.
void Coordinator::State::stop_leading() {
  forget_everything();
  leads = founded = false;
  election = Election(election_config());
}

}  // namespace collab::protocol
