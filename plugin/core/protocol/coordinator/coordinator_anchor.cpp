// The anchor the swarm starts from: who is waited for until it is chosen, whose it is, who is told that it is not
// theirs.
//
//   gathering --enough sites, and the one COLLAB_INIT_FROM names unless somebody holds an anchor--> chosen
//       |  which is, in this order:  the highest (run, round) that somebody holds
//       |                            the parameters of the site that COLLAB_INIT_FROM names
//       |                            those of the lowest site that resumed, else of the lowest site
//       +--COLLAB_JOIN_TIMEOUT--> most are here, or somebody holds an anchor: chosen; else all are told what was
//       missing
#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {
namespace {

// Among sites that hold no anchor; the highest comes first.
enum class Claim : std::uint8_t { kNone, kResumed, kNamed };

Claim claim_of(const MemberRecord& member, const std::string& named) {
  if (member.name == named) return Claim::kNamed;
  return member.resumed ? Claim::kResumed : Claim::kNone;
}

std::string text_of(Claim claim) {
  switch (claim) {
    case Claim::kNone: return "the lowest site";
    case Claim::kResumed: return "the lowest of those that had loaded a state";
    case Claim::kNamed: return "named by COLLAB_INIT_FROM";
  }
  return "unknown";
}

}  // namespace

std::string anchor_text(RunId run, RoundId round) {
  return "run " + std::to_string(run.value) + " round " + std::to_string(round.value);
}

wire::Offer Coordinator::State::brought_by(const MemberRecord& member) const {
  if (!member.holds) return member.offer;
  return {member.holds->run, member.holds->round, member.holds->digest};
}

// After a loss, rounds that were committed are not undone lightly: those who hold the newest one get the grace to come
// back before the swarm starts from less.
bool Coordinator::State::wanted_missed() const {
  return wanted && std::none_of(members.begin(), members.end(), [this](const auto& entry) {
           const wire::Offer offer = brought_by(entry.second);
           return std::pair(offer.run, offer.round) == *wanted;
         });
}

// Else nobody is left who could bring it.
bool Coordinator::State::wanted_may_come() const {
  const auto is_missed = [this](const auto& entry) { return !entry.second.left && members.count(entry.first) == 0; };
  return std::ranges::any_of(voters, is_missed) ||
         std::ranges::any_of(members, [](const auto& entry) { return entry.second.recommitted; });
}

bool Coordinator::State::anybody_resumes() const {
  return std::any_of(members.begin(), members.end(),
                     [this](const auto& entry) { return brought_by(entry.second).run.value != 0; });
}

// ---- whose model it is, where nobody holds an anchor -----------------------------------------------

std::pair<std::string, std::string> Coordinator::State::init_from() const {
  if (!config.init_from.empty()) return {config.init_from, "the coordinator"};
  for (const auto& [id, member] : members) {
    if (!member.init_from.empty()) return {member.init_from, member.name};
  }
  return {};
}

// Who holds an anchor, or joins a swarm that has one, may say what it likes: it is too late.
std::string Coordinator::State::init_from_difference(const wire::Join& join) const {
  const bool late = !leads || anchor || wanted || join.offer.run.value != 0;
  if (late || join.init_from.empty() || anybody_resumes()) return {};
  const auto [named, by] = init_from();
  if (named.empty() || join.init_from == named) return {};
  return "COLLAB_INIT_FROM: this site has " + join.init_from + ", the swarm (from " + by + ") has " + named +
         "; name one site, everywhere or at one site alone";
}

// Of later generations nobody is waited for but who has left for them; and in the first nobody who has been through it.
bool Coordinator::State::init_from_missed() const {
  if (generations.current() > 1) return false;
  const std::string named = init_from().first;
  const auto is_named = [&](const auto& waits) { return waits.second.join.site == named; };
  if (std::ranges::any_of(generations.waiting(), is_named)) return false;  // for a later one than is here
  const MemberRecord* site = named.empty() ? nullptr : member_named(named);
  return !named.empty() && (site == nullptr || site->helper) && !anybody_resumes();
}

// What a script had loaded does not get lost without a word.
void Coordinator::State::tell_passed_over(MemberRecord& member, const std::string& why, const std::string& or_else) {
  const wire::Offer offer = brought_by(member);
  if (member.helper || !member.resumed || offer.run.value != 0 || anchor->digest == offer.digest) return;
  if (std::exchange(member.passed_over, true)) return;
  const std::string text = "the state that " + member.name + " had loaded is not what the swarm goes on from: " + why +
                           ". To begin from the model of " + member.name +
                           ", start all sites with COLLAB_INIT_FROM=" + member.name + or_else;
  note(Note::Level::kWarning, "passed-over", text, {{"who", json_quote(member.name)}});
  send(member, wire::Notice{"passed-over", text});
}

void Coordinator::State::tell_late(MemberRecord& joiner) {
  tell_passed_over(joiner, "there was an anchor, of " + anchor_text(anchor->run, anchor->round) + ", when it came",
                   "; or let the first agreement wait for all of them, with COLLAB_SITE_COUNT=N for N sites");
}

// Why it is this one's needs to be said where fresh sites brought different parameters.
void Coordinator::State::tell_whose(const MemberRecord& best, bool newborn) {
  const auto differs = [this](const auto& entry) {
    const wire::Offer offer = brought_by(entry.second);
    return !entry.second.helper && offer.run.value == 0 && anchor->digest != offer.digest;
  };
  const std::string taken = anchor_text(anchor->run, anchor->round);
  const std::string words = text_of(claim_of(best, init_from().first));
  const bool chosen = newborn && std::ranges::any_of(members, differs);
  note(Note::Level::kInfo, "anchor",
       std::to_string(members.size()) + (members.size() == 1 ? " site is" : " sites are") + " here; the anchor of " +
           taken + " is taken from " + best.name + (chosen ? ", " + words + ": their parameters differ" : ""));
  const std::string why =
      best.name + (newborn ? ", " + words + ", has the parameters of round 0" : " holds an anchor, of " + taken);
  for (auto& [id, member] : members) tell_passed_over(member, why, "");
}

// A site that goes over to another run has another acceptor there.
AcceptorId Coordinator::State::acceptor_in(const MemberRecord& member, RunId run) {
  const bool another = member.run.value != 0 && member.run != run && !mutant(Mutant::kAcceptorInOtherRun);
  return AcceptorId{member.acceptor.value + (another ? 1 : 0)};
}

// The anchor that was agreed on, where there is one; else the highest (run, round) anybody offers; where all are fresh,
// by their claims; among equals the lowest site.
void Coordinator::State::choose_anchor() {
  if (anchor) return;
  // A helper holds what it was given, or nothing that anybody would train from.
  const bool brought = sites_here() > 0 || anybody_resumes();
  const bool complete = generations.expected_here(now).empty();  // they left the generation before for this one
  const bool all_here = (gathered || sites_here() >= sites_wanted()) && complete && !init_from_missed();
  if (wanted_missed() && !wanted_may_come()) give_up_wanted("nobody who could is missing");
  if (!brought || (wanted ? wanted_missed() : !all_here)) {
    if (!gathering.running()) start_gathering();
    return;
  }
  gathered = true;
  gathering.stop();
  attempt_base = highest_attempt;
  round.attempts = 0;
  const auto is_better = [this, named = init_from().first](const MemberRecord& a, const MemberRecord& b) {
    const wire::Offer of_a = brought_by(a);
    const wire::Offer of_b = brought_by(b);
    if (wanted) return std::pair(of_a.run, of_a.round) == *wanted && std::pair(of_b.run, of_b.round) != *wanted;
    if (of_a.run.value == 0 && of_b.run.value == 0) return claim_of(a, named) > claim_of(b, named);
    return std::tie(of_a.run, of_a.round) > std::tie(of_b.run, of_b.round);
  };
  MemberRecord* best = nullptr;
  for (auto& [id, member] : members) {
    if (member.helper && brought_by(member).run.value == 0) continue;
    if (best == nullptr || is_better(member, *best)) best = &member;
  }
  wire::Offer chosen = brought_by(*best);
  const bool newborn = chosen.run.value == 0;
  const bool goes_on = wanted.has_value();  // what was agreed on, by those who have agreed on it
  wanted.reset();
  if (!goes_on) {
    // What was committed after this anchor is no part of what begins here: who contributed to it cannot be told yes.
    if (!mutant(Mutant::kHistoryOfOtherRun)) history.forget_after(chosen.round);
    if (newborn || !mutant(Mutant::kSameRunName)) chosen.run = next_run();
    voters.clear();
    for (auto& [id, member] : members) {
      member.acceptor = acceptor_in(member, chosen.run);
      member.run = chosen.run;
      voters[id] = {id, member.name, member.acceptor};
    }
  }
  anchor = AnchorRecord{chosen.run, chosen.round, chosen.digest};
  best->renamed_from = brought_by(*best);
  best->holds = wire::AnchorInstalled{chosen.run, chosen.round, chosen.digest, best->acceptor};
  for (auto& [id, member] : members) member.phase = MemberPhase::kJoined;  // who was behind another is told this one
  tell_whose(*best, newborn);
  forks.clear();
}

// It was agreed on, and is lost: what comes now is another run.
void Coordinator::State::give_up_wanted(const std::string& why) {
  note(Note::Level::kWarning, "anchor",
       "nobody has brought back round " + std::to_string(wanted->second.value) + ": " + why +
           "; the swarm goes on without it");
  wanted.reset();
  forks = "the anchor was lost";
  gathered = gathered || anybody_resumes();
}

// ---- until then ------------------------------------------------------------------------------------

void Coordinator::State::start_gathering() {
  gathering.start(now);
  refused_who.clear();
}

std::string Coordinator::State::gathered_text() const {
  const std::vector<std::string> on_their_way = generations.expected_here(now);
  return std::to_string(sites_here()) + " of " + std::to_string(sites_wanted()) + " sites are here (" +
         join_words(member_list()) + (refused_who.empty() ? "" : "; " + refused_who + " was refused: " + refused_why) +
         ")" + (on_their_way.empty() ? "" : ", on their way: " + join_words(on_their_way));
}

void Coordinator::State::give_up_gathering(const std::string& reason) {
  gathering.stop();
  while (!members.empty()) expel(members.begin()->first, reason);
}

void Coordinator::State::on_gathering_tick() {
  if (!gathering.running()) return;
  const std::string count = gathered_text();
  const auto waited = gathering.due(now);
  if (wanted_missed()) {
    if (now - gathering.since() >= config.link_grace) {
      return give_up_wanted("not within " + in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE)");
    }
    if (waited) {
      note(Note::Level::kInfo, "waiting",
           "nobody has brought back round " + std::to_string(wanted->second.value) + " yet (" + in_seconds(*waited) +
               ")");
    }
    return;
  }
  if (now - gathering.since() >= config.join_timeout && anybody_resumes()) {
    note(Note::Level::kWarning, "anchor",
         "only " + count + " after " + in_seconds(config.join_timeout) +
             " (COLLAB_JOIN_TIMEOUT); they go on from what they bring");
    gathered = true;
    return;
  }
  const auto [named, by] = init_from();
  const std::string optimizer_fetch = named + " (COLLAB_INIT_FROM, from " + by + ")";
  if (init_from_missed()) {
    if (now - gathering.since() >= config.join_timeout) {
      return give_up_gathering("round 0 is to have the parameters of " + optimizer_fetch +
                               ", and no site of that name has come within " + in_seconds(config.join_timeout) +
                               " (COLLAB_JOIN_TIMEOUT); " + count + ": start that one, or name another");
    }
    if (!waited) return;
    const std::string text =
        "round 0: " + count + "; waiting for " + optimizer_fetch + " (" + in_seconds(*waited) + ")";
    note(Note::Level::kInfo, std::string(kWait), text);
    Broadcast all{{}, wire::Notice{std::string(kWait), text}};
    for (const auto& [id, member] : members) all.links.push_back(member.link);
    out.emplace_back(std::move(all));
    return;
  }
  // Who was lost before it began does not hold the others up for good; they cannot be a majority in two places.
  if (now - gathering.since() >= config.join_timeout && 2 * sites_here() > sites_wanted()) {
    note(
        Note::Level::kWarning, "anchor",
        "only " + count + " after " + in_seconds(config.join_timeout) + " (COLLAB_JOIN_TIMEOUT); most are, they begin");
    gathered = true;
    return;
  }
  if (now - gathering.since() >= config.join_timeout) {
    return give_up_gathering("only " + count + " after " + in_seconds(config.join_timeout) +
                             " (COLLAB_JOIN_TIMEOUT): start the others (separate worlds: or lower COLLAB_SITE_COUNT)");
  }
  if (waited) {
    note(Note::Level::kInfo, "waiting", "round 0: " + count + "; waiting for the others (" + in_seconds(*waited) + ")");
  }
}

}  // namespace collab::protocol
