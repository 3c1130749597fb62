// Rounds: attempts are formed, watched, formed again.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {

Digest majority(const std::map<SiteId, Digest>& said) {
  std::map<Digest, std::size_t> votes;
  for (const auto& [site, digest] : said) ++votes[digest];
  const Digest* right = nullptr;
  for (const auto& [site, digest] : said) {  // ascending: of equals, the lowest site's word stands
    if (right == nullptr || votes[digest] > votes[*right]) right = &digest;
  }
  COLLAB_CHECK(right != nullptr, "a majority needs voters");
  return *right;
}

bool Coordinator::State::in_attempt(AttemptId attempt, RoundId of) const {
  return round.attempt && round.attempt->attempt == attempt && round.attempt->round == of;
}

void Coordinator::State::on_ready(MemberRecord& member, const wire::Ready& ready) {
  const std::string who = member.name + " is ready for round " + std::to_string(ready.round.value);
  const bool has_place = member.phase == MemberPhase::kActive || member.phase == MemberPhase::kStale;
  if (has_place && anchor && (ready.round < number() || member.phase == MemberPhase::kStale)) {
    // The swarm went on without it, and now its parameters stand still: it can take the anchor.
    member.phase = MemberPhase::kJoined;
    member.holds = wire::AnchorInstalled{brought_by(member).run, RoundId{ready.round.value - 1}, ready.state};
    return;
  }
  if (member.phase != MemberPhase::kActive || ready.round != number()) {
    // It crossed an InstallAnchor on its way, or is out of step; it will say so again once it holds the anchor.
    note(Note::Level::kDebug, "ignored", who + ", which is not the next round for it");
    return;
  }
  if (round.attempt && takes_part(*round.attempt, member.id)) {
    wire::Ready said = ready;
    if (member.ready) said.since = member.ready->since;
    if (!member.ready || *member.ready == said || mutant(Mutant::kReadyNotCompared)) return;  // said twice
    // The attempt was formed from a word that had crossed a RoundSkipped: it has trained on since.
    note(Note::Level::kInfo, "ready", who + " with other samples than the attempt counts on; another is formed");
    abandon_attempt();
  }
  member.ready = ready;
  member.since = ready.since.value <= highest_attempt ? ready.since : AttemptId{};
  if (!std::isfinite(ready.weight) || ready.weight < 0) {
    note(Note::Level::kWarning, "ignored", who + " with a weight that is no weight; it counts as 0");
    member.ready->weight = 0;
  }
  if (ready.up_kbit > 0) member.up_kbit = ready.up_kbit;
  if (ready.down_kbit > 0) member.down_kbit = ready.down_kbit;
  member.holds = wire::AnchorInstalled{anchor->run, anchor->round, ready.state};
  if (!round.waiting.running() && !member.helper) {
    round.waiting.start(now);
    round.limit = later(now, config.round_timeout);
  }
}

void Coordinator::State::on_done(MemberRecord& member, const wire::Done& done) {
  if (done.term != term && !mutant(Mutant::kDoneOfOlderTerm)) return;
  if (!in_attempt(done.attempt, done.round) && !(round.attempt && mutant(Mutant::kDoneOfOtherAttempt)))
    return;  // of one given up since
  if (!takes_part(*round.attempt, member.id)) return;
  if (done.slices.size() != round.attempt->slices.size()) {
    return expel(member.id, "it sent " + std::to_string(done.slices.size()) + " digests for the " +
                                std::to_string(round.attempt->slices.size()) + " slices of round " +
                                std::to_string(done.round.value));
  }
  if (!member.done) ++round.done;
  member.done = done.slices;
}

void Coordinator::State::on_decline(MemberRecord& member, const wire::Decline& decline) {
  if (!in_attempt(decline.attempt, decline.round)) return;
  round.declined.insert(member.id);
  const std::string text = "round " + std::to_string(decline.round.value) + " goes on without the contribution of " +
                           member.name + ": " + decline.reason;
  note(Note::Level::kWarning, "declined", text);
  for (const auto& [id, other] : members) {
    if (id != member.id) send(other, wire::Notice{"declined", text});
  }
  abandon_attempt();
}

void Coordinator::State::on_peer_unreachable(MemberRecord& member, const wire::PeerUnreachable& unreachable) {
  if (!in_attempt(unreachable.attempt, unreachable.round) || !takes_part(*round.attempt, member.id)) return;
  const auto& in = round.attempt->participants;
  const auto peer = std::find_if(in.begin(), in.end(), [&](const auto& p) { return p.site == unreachable.peer; });
  if (peer == in.end()) {  // it has given the attempt up all the same
    note(Note::Level::kWarning, "unreached",
         member.name + " cannot go on because of " + name_of(unreachable.peer) +
             ", which has no part in the attempt: " + unreachable.reason + "; another attempt is formed");
    return abandon_attempt();
  }
  if (!peer->here) {
    const auto gone = round.gone.find(unreachable.peer);
    note(Note::Level::kInfo, "leave",
         "what " + (gone == round.gone.end() ? name_of(unreachable.peer) : gone->second.name) +
             " contributed before it was lost is not whole at " + member.name +
             "; another attempt is formed without it");
    round.gone.erase(unreachable.peer);
    return abandon_attempt();
  }
  const bool itself = unreachable.peer == member.id;  // a site that is cut off from itself owns nothing
  const std::string text =
      member.name +
      (itself ? " cannot do its part of the exchange: " : " cannot exchange with " + name_of(unreachable.peer) + ": ") +
      unreachable.reason;
  const bool cut = reachability.failed(member.id, unreachable.peer, unreachable.round, now - round.started);
  if (cut) round.cut_because = text + (itself ? "; without it " : "; without one of the two ");
  note(Note::Level::kWarning, "unreached",
       text + "; another attempt is formed" +
           (!cut     ? ""
            : itself ? ", in which it owns no slice"
                     : ", in which neither owns a slice"),
       {{"who", itself ? json_list({member.name}) : json_list({member.name, name_of(unreachable.peer)})},
        {"round", std::to_string(unreachable.round.value)}});
  abandon_attempt();
}

// Nothing of the round's exchange counts any more.
void Coordinator::State::start_afresh() {
  for (auto& [id, member] : members) member.since = AttemptId{};
  round.gone.clear();
  round.slices.clear();
  abandon_attempt();
}

void Coordinator::State::abandon_attempt() {
  round.attempt.reset();
  for (auto& [id, member] : members) member.done.reset();
}

// Who holds the anchor and was not set aside. Those behind take the anchor first, at their own trigger.
std::set<SiteId> Coordinator::State::eligible_sites() const {
  std::set<SiteId> sites;
  for (const auto& [id, member] : members) {
    if (member.phase == MemberPhase::kActive && round.set_aside.count(id) == 0) sites.insert(id);
  }
  return sites;
}

std::set<SiteId> Coordinator::State::ready_sites() const {
  std::set<SiteId> sites = eligible_sites();
  std::erase_if(sites, [this](SiteId id) { return !members.at(id).ready; });
  return sites;
}

// The same as numbers, at each event: no sets are made.
Coordinator::State::Count Coordinator::State::count_eligible() const {
  Count count;
  count.quorum.voters = voters.size() - (mutant(Mutant::kHalfAccepts) ? 1 : 0);
  for (const auto& [id, voter] : voters) count.quorum.by_name += voter.left ? 1 : 0;
  auto voter = voters.begin();  // both ascend
  for (const auto& [id, member] : members) {
    if (member.phase != MemberPhase::kActive || round.set_aside.count(id) != 0) continue;
    while (voter != voters.end() && voter->first < id) ++voter;
    const bool has_say = voter != voters.end() && voter->first == id;
    if (member.helper) {
      count.helped = count.helped && member.ready;
    } else {
      ++count.all;
      count.settled += member.ready || has_say || voters.empty() ? 1 : 0;
    }
    if (!member.ready) continue;
    count.ready += member.helper ? 0 : 1;
    if (!has_say || voter->second.left) continue;
    count.quorum.by_name += presence_of(voter->second, member) == Presence::kAbsent ? 0 : 1;
  }
  return count;
}

Reachability::Sites Coordinator::State::addresses_of(const std::set<SiteId>& sites) const {
  using Address = Reachability::Address;
  Reachability::Sites found;
  for (const SiteId id : sites) {
    const MemberRecord& member = members.at(id);
    found[id] = member.dialable() ? Address::kVerified : member.address.empty() ? Address::kNone : Address::kUnverified;
  }
  return found;
}

// Where nobody can reach all others, who is cut off from most is not waited for in this round.
std::set<SiteId> Coordinator::State::set_aside_the_cut(std::set<SiteId> sites) {
  for (const SiteId id : reachability.to_leave_out(addresses_of(sites), number())) {
    sites.erase(id);
    round.set_aside.insert(id);
    const bool itself = reachability.fails_itself(id, number());
    note(Note::Level::kWarning, "straggler",
         "round " + std::to_string(number().value) + " goes on without " + name_of(id) +
             (itself ? ", which cannot do its part" : ", which cannot exchange with the others") +
             "; what it trains counts in a later round",
         {{"who", json_quote(name_of(id))}, {"round", std::to_string(number().value)}});
  }
  return sites;
}

// Those who are ready wait for sites that stand in calls of their world, which wait for those who are ready.
Coordinator::State::Circle Coordinator::State::find_circle() const {
  Circle found;
  std::vector<std::string> parts;
  for (const auto& [id, member] : members) {
    if (member.phase != MemberPhase::kActive || round.set_aside.count(id) != 0 || member.ready) continue;
    const auto call = calls.find(member.name);
    if (call == calls.end()) return {};
    const auto awaited = std::find_if(members.begin(), members.end(), [&](const auto& other) {
      return other.second.ready && call->second.awaits.count(other.second.name) != 0;
    });
    if (awaited == members.end()) return {};
    found.stands = found.stands && call->second.stands_still;
    parts.push_back(member.name + " is in " + call->second.call + ", which waits for " + awaited->second.name);
  }
  found.words = join_words(parts);
  return found;
}

// Nothing but joiners is missing; the anchor does not move under them while they get on. Those who came in vain cost
// the next ones patience: who joins and takes nothing, under ever new names, holds the others up for two graces in all,
// and for three heartbeats a round.
bool Coordinator::State::waits_for_joiners() {
  std::vector<SiteId> joiners;
  TimePoint progressed{};
  for (const auto& [id, member] : members) {
    if (member.helper || (member.phase != MemberPhase::kJoined && member.phase != MemberPhase::kInstalling)) continue;
    joiners.push_back(id);
    if (member.phase == MemberPhase::kInstalling) progressed = std::max(progressed, member.progressed_at);
  }
  if (joiners.empty()) {
    round.joiners_since = round.joiners_until = kNever;
    return false;
  }
  round.joiners_since = std::min(round.joiners_since, now);
  const Duration least = kReplaceAfter * config.heartbeat;
  const Duration idle_limit = std::max(least, config.link_grace / (1U << vain_waits));
  const Duration limit = std::max(least, config.round_timeout / (1U << vain_waits));
  round.joiners_until =
      std::min(later(std::max(round.joiners_since, progressed), idle_limit), later(round.joiners_since, limit));
  if (now < round.joiners_until) return true;
  vain_waits = std::min(vain_waits + 1, kMostVainWaits);
  std::vector<std::string> names;
  for (const SiteId id : joiners) names.push_back(name_of(id));
  note(Note::Level::kWarning, "straggler",
       "round " + std::to_string(number().value) + " goes on without " + join_words(names) + ", which " +
           (names.size() == 1 ? "has" : "have") + " not taken the anchor in time",
       {{"who", json_list(names)}, {"round", std::to_string(number().value)}});
  return false;
}

// All are ready; or a majority is, and the grace for the others has passed since, or they cannot come.
void Coordinator::State::try_to_start() {
  const Count count = count_eligible();
  if (!anchor || count.ready == 0) return;
  const bool all = count.ready == count.all;
  round.helpers_until =
      all && !count.helped ? std::min(round.helpers_until, later(now, kHelperHeartbeats * config.heartbeat)) : kNever;
  const bool whole = all && now >= (count.helped ? TimePoint{} : round.helpers_until);
  const auto& [circle, stands] = whole || calls.empty() ? Circle() : find_circle();
  round.circle_since = circle.empty() ? kNever : std::min(round.circle_since, now);
  round.circle_until = stands ? round.circle_since : later(round.circle_since, kCircleHeartbeats * config.heartbeat);
  const bool tied = now >= round.circle_until;
  if (!count.quorum.can_accept()) {
    if ((!whole && !tied) || waits_for_joiners()) return;
    return skip_round(tied ? circle : quorum_text(ready_sites()));
  }
  if (2 * count.ready <= count.settled) {
    round.majority_since = kNever;
    if (tied) skip_round(circle);
    return;
  }
  if (round.majority_since == kNever) round.majority_since = now;
  if (!whole && !tied && now < later(round.majority_since, config.straggler_grace)) return;
  if (waits_for_joiners()) return;
  const std::set<SiteId> ready = ready_sites();
  if (!states_agree(ready)) return;
  for (const SiteId id : eligible_sites()) {
    if (ready.count(id) != 0) continue;
    note(Note::Level::kWarning, "straggler",
         "round " + std::to_string(number().value) + " goes on without " + name_of(id) +
             (tied ? ": " + circle
                   : ", which is not ready " + in_seconds(config.straggler_grace) +
                         " after most were (COLLAB_STRAGGLER_GRACE)") +
             "; what it trains counts in a later round",
         {{"who", json_quote(name_of(id))}, {"round", std::to_string(number().value)}});
  }
  const std::set<SiteId> able = set_aside_the_cut(ready);
  if (!able.empty() && (quorum_among(able).can_accept() || mutant(Mutant::kHalfAccepts))) return start(able);
  reachability.forget_pairs();  // by the next trigger they may reach each other
  skip_round(round.cut_because + quorum_text(able));
}

void Coordinator::State::skip_round(const std::string& reason) {
  const RoundId of = number();
  const bool told = std::exchange(last_skipped, std::pair(of, reason)) == std::pair(of, reason);
  note(told ? Note::Level::kDebug : Note::Level::kWarning, "no-quorum",
       "no attempt at round " + std::to_string(of.value) + ": " + reason + "; the anchor stands, the sites train on",
       {{"round", std::to_string(of.value)}});
  for (auto& [id, member] : members) {
    if (member.phase != MemberPhase::kActive || !member.ready) continue;
    send(member, wire::RoundSkipped{term, of, reason});
    member.ready.reset();
  }
  begin_round_again();
}

// Attempts go on being counted, so that what was sent for an earlier one is never taken for a later one.
void Coordinator::State::begin_round_again() {
  const std::uint32_t attempts = round.attempts;
  clear_round();
  if (!mutant(Mutant::kAttemptsCountedAnew)) round.attempts = attempts;
}

// Before deltas to an anchor are averaged, all must hold the same one. A site that differs fetches it again, keeps its
// parameters, and says ready once more.
bool Coordinator::State::states_agree(const std::set<SiteId>& sites) {
  std::map<SiteId, Digest> said;
  for (const SiteId id : sites) said[id] = members.at(id).ready->state;
  const Digest right = majority(said);
  const bool another = anchor->digest.has_value() && *anchor->digest != right;
  anchor->digest = right;
  for (auto& [id, member] : members) {  // nobody will ever give them what they were told to take
    if (another && member.phase == MemberPhase::kInstalling) send_install(member, pick_sources(member));
  }
  std::vector<SiteId> wrong;
  std::vector<SiteId> sound;
  for (const auto& [id, digest] : said)
    (digest == right || mutant(Mutant::kStatesNotCompared) ? sound : wrong).push_back(id);
  for (const SiteId id : wrong) {
    MemberRecord& member = members.at(id);
    const std::uint32_t times = ++round.state_repairs[id];
    const bool tie = said.size() == 2;
    const std::string text = member.name + " holds another anchor of round " + std::to_string(anchor->round.value) +
                             " (digest " + to_hex(said[id]) + ") than " + name_of(sound.front()) + " (" +
                             to_hex(right) + ")" + (tie ? "; of two, the lower site is taken to be right" : "");
    if (times > kMaxRepeats) {
      expel(id, text + "; it was repaired " + times_text(kMaxRepeats) + " in vain");
      continue;
    }
    note(Note::Level::kError, "repair", text + "; it fetches the anchor again",
         {{"who", json_quote(name_of(id))}, {"round", std::to_string(anchor->round.value)}});
    send_install(member, pick_sources(member));
  }
  return wrong.empty();
}

void Coordinator::State::start(const std::set<SiteId>& sites) {
  wire::StartAttempt start;
  start.term = term;
  start.generation = generations.current();
  start.fingerprint = reference->fingerprint;
  start.run = anchor->run;
  start.round = number();
  start.attempt = AttemptId{attempt_base + ++round.attempts};
  highest_attempt = std::max(highest_attempt, start.attempt.value);
  bool contributes = false;
  for (const SiteId id : sites) {
    MemberRecord& member = members.at(id);
    if (member.since.value == 0) member.since = start.attempt;
    const double weight = round.declined.count(id) != 0 ? 0 : member.ready->weight;
    contributes = contributes || weight > 0;
    start.participants.push_back({id, member.name, weight, member.since});
    round.gone.erase(id);
  }
  for (const auto& [id, gone] : round.gone) {
    contributes = true;
    start.participants.push_back({id, gone.name, gone.weight, gone.since, false});
  }
  std::sort(start.participants.begin(), start.participants.end(),
            [](const auto& a, const auto& b) { return a.site < b.site; });
  round.started = now;
  round.majority_since = kNever;
  if (contributes) partition_slices(start, sites);
  next_voters.clear();
  for (const auto& [id, member] : members) {
    const bool holds = member.phase == MemberPhase::kActive || member.phase == MemberPhase::kStale;
    // Who says that it holds the anchor and takes no part has no say: it might be anybody, and gone tomorrow.
    if ((!holds || (voters.count(id) == 0 && sites.count(id) == 0)) && !mutant(Mutant::kVotersWithoutAnchor)) continue;
    next_voters[id] = wire::Voter{id, member.name, member.acceptor};
  }
  start.voters = list_of(next_voters);
  flush_roster();
  Broadcast all{{}, start};
  for (const SiteId id : sites) all.links.push_back(members.at(id).link);
  out.emplace_back(std::move(all));
  round.done = 0;
  round.here = sites.size();
  round.slices = start.slices;
  round.attempt = std::move(start);
  watch.begin(sites, now);
}

void Coordinator::State::part_with(const MemberRecord& lost) {
  const wire::StartAttempt& start = *round.attempt;
  const bool owns = std::any_of(start.slices.begin(), start.slices.end(),
                                [&](const wire::Slice& slice) { return slice.owner == lost.id; });
  const auto& in = start.participants;
  const auto part = std::find_if(in.begin(), in.end(), [&](const auto& p) { return p.site == lost.id; });
  if ((!owns || mutant(Mutant::kLostOwnerCounts)) && part->weight > 0)
    round.gone[lost.id] = {lost.name, part->weight, part->since};
}

// Two heartbeats later than the joiner itself gives up, which can say why.
TimePoint Coordinator::State::installing_until(const MemberRecord& member) const {
  const TimePoint idle_until =
      later(std::max(member.installing_since, member.progressed_at), config.link_grace + 2 * config.heartbeat);
  return std::min(idle_until, later(member.installing_since, config.round_timeout));
}

// Nothing of an exchange moves any more: who holds it up is let go, as one that is silent is.
void Coordinator::State::judge_exchange() {
  if (!round.attempt) return;
  const Duration limit = std::max(config.link_grace, config.least_standstill);
  const std::vector<SiteId> open = waited_for();
  const auto stall = watch.stall({open.begin(), open.end()}, limit, now);
  if (!stall) return;
  const std::string reason = "nothing of its part of an exchange has come for " + in_seconds(limit);
  if (stall->pair) {
    const auto& [site, lacked] = *stall->pair;
    return on_peer_unreachable(members.at(site), {number(), round.attempt->attempt, lacked, reason});
  }
  if (stall->held_up_by.empty()) return skip_round("nothing of the exchange has moved for " + in_seconds(limit));
  for (const SiteId id : stall->held_up_by) {
    const std::uint32_t times = watch.held_up_by(name_of(id));
    if (times >= kMaxRepeats) {
      expel(id, reason + ", " + times_text(times));
      continue;
    }
    out.emplace_back(Hangup{members.at(id).link, reason});
    remove(id, reason);
  }
}

void Coordinator::State::on_round_tick() {
  std::vector<SiteId> slow;
  for (const auto& [id, member] : members) {
    if (member.phase == MemberPhase::kInstalling && now >= installing_until(member)) slow.push_back(id);
  }
  for (const SiteId id : slow) {
    if (now - members.at(id).installing_since >= config.round_timeout) {
      expel(id, "the anchor was not in place there " + in_seconds(config.round_timeout) +
                    " after it was offered (COLLAB_ROUND_TIMEOUT)");
      continue;
    }
    // It may come again, and be luckier with other sources.
    const std::string reason =
        "nothing of the anchor has come there for " + in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE)";
    out.emplace_back(Hangup{members.at(id).link, reason});
    remove(id, reason);
  }
  if (!round.waiting.running()) return;
  if (now >= round.limit) return on_round_limit();
  const auto waited = round.waiting.due(now);
  const std::string whom = waiting_for();
  if (waited && !whom.empty()) note(Note::Level::kInfo, "waiting", whom + " (" + in_seconds(*waited) + ")");
}

// Nothing waits without limit: those for whom the others have waited too long are let go, by name.
void Coordinator::State::on_round_limit() {
  const std::string limit = in_seconds(config.round_timeout) + " (COLLAB_ROUND_TIMEOUT)";
  const std::string which = "round " + std::to_string(number().value);
  round.limit = later(now, config.round_timeout);
  const std::vector<SiteId> late = waited_for();
  if (round.attempt && late.size() == round.here && !round.stalled) {
    // Nobody has finished, so nobody can be blamed: once more from the start.
    round.stalled = true;
    note(Note::Level::kWarning, "waiting",
         which + ": no site finished its exchange within " + limit + "; it is tried once more");
    return start_afresh();
  }
  if (!round.attempt)
    return skip_round("only " + std::to_string(ready_sites().size()) + " of " +
                      std::to_string(eligible_sites().size()) + " sites were ready within " + limit);
  for (const SiteId id : late) {
    round.set_aside.insert(id);
    note(Note::Level::kWarning, "straggler",
         which + ": the exchange at " + name_of(id) + " was not done within " + limit +
             "; the others go on, what it trained counts in a later round",
         {{"who", json_quote(name_of(id))}, {"round", std::to_string(number().value)}});
  }
  abandon_attempt();
  if (!quorum_among(ready_sites()).can_accept()) skip_round(quorum_text(ready_sites()));
}

}  // namespace collab::protocol
