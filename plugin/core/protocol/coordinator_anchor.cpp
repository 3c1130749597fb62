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
#include "core/protocol/coordinator_state.h"

namespace collab::protocol {
namespace {

// Among sites that hold no anchor; the highest comes first.
enum class Claim : std::uint8_t { kNone, kResumed, kNamed };

Claim claim_of(const MemberRecord& member, const std::string& named) {
  if (member.name == named) return Claim::kNamed;
  return member.resumed ? Claim::kResumed : Claim::kNone;
}

std::string in_words(Claim claim) {
  switch (claim) {
    case Claim::kNone: return "the lowest site";
    case Claim::kResumed: return "the lowest of those that had loaded a state";
    case Claim::kNamed: return "named by COLLAB_INIT_FROM";
  }
  return "unknown";
}

}  // namespace

std::string anchor_in_words(RunId run, RoundId round) {
  return "run " + std::to_string(run.value) + " round " + std::to_string(round.value);
}

wire::Offer Coordinator::State::brought_by(const MemberRecord& member) const {
  if (!member.holds) return member.offer;
  return {member.holds->run, member.holds->round, member.holds->digest, member.offer.branch};
}

// After a loss, rounds that were committed are not undone lightly: those who hold the newest one get the grace to come
// back before the swarm starts from less.
bool Coordinator::State::last_anchor_missed() const {
  return last_anchor && std::none_of(members.begin(), members.end(), [this](const auto& entry) {
           const wire::Offer offer = brought_by(entry.second);
           return std::pair(offer.run, offer.round) >= *last_anchor;
         });
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
  const bool late = !in_office || anchor || last_anchor || join.offer.run.value != 0;
  if (late || join.init_from.empty() || anybody_resumes()) return {};
  const auto [named, by] = init_from();
  if (named.empty() || join.init_from == named) return {};
  return "COLLAB_INIT_FROM: this site has " + join.init_from + ", the swarm (from " + by + ") has " + named +
         "; name one site, everywhere or at one site alone";
}

// Of later generations nobody is waited for but who has left for them.
bool Coordinator::State::init_from_missed() const {
  if (generations.current() > 1) return false;
  const std::string named = init_from().first;
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
  tell_passed_over(joiner, "there was an anchor, of " + anchor_in_words(anchor->run, anchor->round) + ", when it came",
                   "; or let the first agreement wait for all of them, with COLLAB_SITE_COUNT=N for N sites");
}

// Why it is this one's needs to be said where fresh sites brought different parameters.
void Coordinator::State::tell_whose(const MemberRecord& best) {
  const auto differs = [this](const auto& entry) {
    const wire::Offer offer = brought_by(entry.second);
    return !entry.second.helper && offer.run.value == 0 && anchor->digest != offer.digest;
  };
  const std::string taken = anchor_in_words(anchor->run, anchor->round);
  const std::string words = in_words(claim_of(best, init_from().first));
  const bool chosen = newborn && std::ranges::any_of(members, differs);
  note(Note::Level::kInfo, "anchor",
       std::to_string(members.size()) + (members.size() == 1 ? " site is" : " sites are") + " here; the anchor of " +
           taken + " is taken from " + best.name + (chosen ? ", " + words + ": their parameters differ" : ""));
  const std::string why =
      best.name + (newborn ? ", " + words + ", has the parameters of round 0" : " holds an anchor, of " + taken);
  for (auto& [id, member] : members) tell_passed_over(member, why, "");
}

// The highest (run, round) anybody offers; where all are fresh, by their claims; among equals the lowest site.
void Coordinator::State::choose_anchor() {
  if (anchor) return;
  // A helper holds what it was given, or nothing that anybody would train from.
  const bool brought = sites_here() > 0 || anybody_resumes();
  const bool complete = generations.expected_here(now).empty();  // they left the generation before for this one
  const bool all_here = (gathered || sites_here() >= sites_wanted()) && complete && !init_from_missed();
  const bool enough = brought && (last_anchor ? !last_anchor_missed() : all_here);
  if (!enough || !may_begin()) {
    if (!gathering.running()) start_gathering();
    return;
  }
  gathered = true;
  gathering.stop();
  last_anchor.reset();
  attempt_base = highest_attempt;
  round.attempts = 0;
  MemberRecord* best = nullptr;
  const auto is_better = [this, named = init_from().first](const MemberRecord& a, const MemberRecord& b) {
    const wire::Offer of_a = brought_by(a);
    const wire::Offer of_b = brought_by(b);
    if (of_a.run.value == 0 && of_b.run.value == 0) return claim_of(a, named) > claim_of(b, named);
    return trunk_first(of_a, of_b).value_or(std::tie(of_a.run, of_a.round) > std::tie(of_b.run, of_b.round));
  };
  for (auto& [id, member] : members) {
    if (member.helper && brought_by(member).run.value == 0) continue;
    if (best == nullptr || is_better(member, *best)) best = &member;
  }
  wire::Offer chosen = brought_by(*best);
  newborn = chosen.run.value == 0;
  const bool anew = std::exchange(forks, false) || newborn;
  remembered.reset();
  for (const auto& [id, member] : members) {  // a process that was started again may not know
    const wire::Offer offer = brought_by(member);
    if (chosen.branch.empty() && offer.run == chosen.run) chosen.branch = offer.branch;
  }
  const RunId from = chosen.run;
  // What a branch began with is not taken for its trunk, when the branch's own anchor is lost.
  const bool off = (std::exchange(branches, false) || trunk == chosen.run) && !newborn && chosen.branch.empty();
  if (anew || off) chosen.run = next_run();
  if (off) {
    trunk = from;
    chosen.branch = {{chosen.run, from, 0}};
    voters.clear();
  }
  anchor = AnchorRecord{chosen.run, chosen.round, chosen.digest, chosen.branch};
  best->holds = wire::Adopted{chosen.run, chosen.round, chosen.digest};
  for (auto& [id, member] : members) {
    member.standing = Standing::kJoined;  // who was behind another anchor is told this one
    member.remembers = member.remembers || anew || off;
    voters[id] = member.name;
  }
  if (off) {
    tell_of_branch("no majority was here for " + in_seconds(config.quorum_timeout) + " (COLLAB_QUORUM_TIMEOUT); ");
  }
  tell_whose(*best);
}

// ---- until then ------------------------------------------------------------------------------------

void Coordinator::State::start_gathering() {
  gathering.start(now);
  refused_who.clear();
}

std::string Coordinator::State::gathered_in_words() const {
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
  const std::string count = gathered_in_words();
  const auto waited = gathering.due(now);
  if (last_anchor_missed()) {
    const std::string missed = "nobody has brought back round " + std::to_string(last_anchor->second.value);
    if (now - gathering.since() < config.link_grace) {
      if (waited) note(Note::Level::kInfo, "waiting", missed + " yet (" + in_seconds(*waited) + ")");
      return;
    }
    if (!may_begin()) return step_down(missed + ", and " + quorum_in_words(all_members()));
    note(Note::Level::kWarning, "anchor",
         missed + " within " + in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE); the swarm goes on without it");
    last_anchor.reset();
    forks = true;
    gathered = gathered || anybody_resumes();
    return;
  }
  if (now - gathering.since() >= config.join_timeout && !may_begin()) {
    return step_down(quorum_in_words(all_members()));
  }
  if (now - gathering.since() >= config.join_timeout && anybody_resumes()) {
    note(Note::Level::kWarning, "anchor",
         "only " + count + " after " + in_seconds(config.join_timeout) +
             " (COLLAB_JOIN_TIMEOUT); they go on from what they bring");
    gathered = true;
    return;
  }
  const auto [named, by] = init_from();
  const std::string wish = named + " (COLLAB_INIT_FROM, from " + by + ")";
  if (init_from_missed()) {
    if (now - gathering.since() >= config.join_timeout) {
      return give_up_gathering("round 0 is to have the parameters of " + wish +
                               ", and no site of that name has come within " + in_seconds(config.join_timeout) +
                               " (COLLAB_JOIN_TIMEOUT); " + count + ": start that one, or name another");
    }
    if (!waited) return;
    const std::string text = "round 0: " + count + "; waiting for " + wish + " (" + in_seconds(*waited) + ")";
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
