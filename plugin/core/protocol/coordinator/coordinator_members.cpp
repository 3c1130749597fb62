// Members: heartbeats, suspicion, removal, the roster, and what a status query tells.
#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {
namespace {

const char* text_of(MemberPhase phase) {
  switch (phase) {
    case MemberPhase::kJoined: return "joined";
    case MemberPhase::kInstalling: return "adopting";
    case MemberPhase::kActive: return "active";
    case MemberPhase::kStale: return "behind";
  }
  return "unknown";
}

}  // namespace

std::string Coordinator::State::name_of(SiteId id) const {
  const auto member = members.find(id);
  return member == members.end() ? "site " + std::to_string(id.value) : member->second.name;
}

std::vector<std::string> Coordinator::State::member_list() const {
  std::vector<std::string> names;
  for (const auto& [id, member] : members) names.push_back(member.name);
  return names;
}

void Coordinator::State::expel(SiteId id, const std::string& reason) {
  const MemberRecord& member = members.at(id);
  send(member, wire::Refuse{reason});
  out.emplace_back(Hangup{member.link, reason});
  remove(id, reason);
}

void Coordinator::State::strike(const MemberRecord& member) {
  if (mutant(Mutant::kLeaverIsVoter)) return;
  const auto next = next_voters.find(member.id);
  const bool started = next != next_voters.end() && next->second.acceptor == member.acceptor;
  if (started) next->second.left = true;
  const auto voter = voters.find(member.id);
  const bool counts = voter != voters.end() && presence_of(voter->second, member) != Presence::kAbsent;
  if (counts) voter->second.left = true;
  if (!counts && !started) return;
  Broadcast rest{{}, wire::MemberLeft{term, member.name, counts ? voter->second.acceptor : member.acceptor}};
  for (const auto& [id, other] : members) {
    if (id != member.id) rest.links.push_back(other.link);
  }
  if (!rest.links.empty()) out.emplace_back(std::move(rest));
}

void Coordinator::State::on_leave(MemberRecord& member, const wire::Leave& leave) {
  const std::string& reason = leave.reason;
  if (leave.next_generation > generations.current()) {
    generations.left_for(member.name, leave.next_generation, later(now, config.link_grace));
  }
  send(member, wire::LeaveAck{});
  strike(member);
  const bool last = members.size() == 1 || (!member.helper && sites_here() == 1);
  if (last && anchor) {  // the swarm ends as it should; nobody is to bring it back, helpers neither
    anchor.reset();
    ended = true;
  }
  std::vector<SiteId> helpers;
  for (const auto& [id, other] : members) {
    if (last && other.helper && id != member.id) helpers.push_back(id);
  }
  for (const SiteId id : helpers) {
    expel(id, "the last site has left");
  }
  out.emplace_back(Hangup{member.link, "left: " + reason});
  remove(member.id, "left: " + reason);
}

void Coordinator::State::remove(SiteId id, const std::string& reason) {
  const auto found = members.find(id);
  const MemberRecord gone = std::move(found->second);
  links.erase(gone.link);
  members.erase(found);
  if (!gone.helper) generations.seen(now);  // it was here until this moment
  reachability.forget(id);
  changed = true;
  ++changes;
  note(Note::Level::kInfo, "leave", gone.name + " is no member any more: " + reason,
       {{"who", json_quote(gone.name)}, {"reason", json_quote(reason)}});
  const bool held = std::any_of(members.begin(), members.end(), [&](const auto& entry) {
    return entry.second.phase == MemberPhase::kActive || holds_anchor(entry.second);
  });
  if (anchor && !held && anchor->round.value > 0) {
    wanted = {anchor->run, anchor->round};
  }
  if (members.empty()) return stop_leading();  // who comes back may have followed another one since

  if (round.attempt) {
    const auto& in = round.attempt->participants;
    if (std::any_of(in.begin(), in.end(), [&](const auto& p) { return p.site == id && p.here; })) {
      part_with(gone);
      abandon_attempt();
    }
  }
  for (auto& [other, member] : members) {
    if (member.phase != MemberPhase::kInstalling || std::erase(member.sources, id) == 0) continue;
    if (member.sources.empty()) {
      member.phase = MemberPhase::kJoined;
    } else if (anchor && anchor->digest) {  // it goes on with the others
      tell_sources(member);
    }
  }
  if (anchor && !held) {
    note(Note::Level::kWarning, "anchor",
         "nobody holds the anchor of round " + std::to_string(anchor->round.value) +
             " any more; the best of what the others bring is taken");
    anchor.reset();
    for (auto& [other, member] : members) member.phase = MemberPhase::kJoined;
    start_gathering();
  }
  // A round begins with its first ready: without one nobody waits.
  if (!somebody_ready()) begin_round_again();
  send_roster();
  // Sites that end together are not told of each other.
  const auto voter = voters.find(id);
  const bool left = voter == voters.end() || voter->second.left;
  if (gone.dialable() && (gone.helper || !left)) tell_unreachable(gone.name + " has gone, and ");
}

// A helper is ready all the time, and waits for nobody.
bool Coordinator::State::somebody_ready() const {
  return std::any_of(members.begin(), members.end(),
                     [](const auto& entry) { return entry.second.ready.has_value() && !entry.second.helper; });
}

void Coordinator::State::tell_sources(const MemberRecord& to) {
  send(to, wire::InstallAnchor{term, anchor->run, anchor->round, to.sources, *anchor->digest, counted(to),
                               list_of(voters)});
}

void Coordinator::State::add_source(const MemberRecord& holder) {
  for (auto& [id, member] : members) {
    if (member.phase != MemberPhase::kInstalling || id == holder.id || member.sources.size() >= kSources) continue;
    if (member.sources == std::vector{id} || (member.address.empty() && holder.address.empty())) continue;
    const auto place = std::ranges::lower_bound(member.sources, holder.id);
    if (place != member.sources.end() && *place == holder.id) continue;
    member.sources.insert(place, holder.id);
    tell_sources(member);
  }
}

void Coordinator::State::forget_everything() {
  anchor.reset();
  wanted.reset();
  forks.clear();
  voters.clear();
  early.clear();
  history = {};
  minority_since = kNever;
  reference.reset();
  gathered = false;
  gathering.stop();
  next_voters.clear();
  duplicate_data = {};
  reachability = {};
  watch = {};
  clear_round();
  last_skipped = {};
  partition = {};
  next_heartbeat = kNever;
}

wire::Roster Coordinator::State::roster() const {
  wire::Roster roster{term, {}};
  roster.members.reserve(members.size());
  for (const auto& [id, member] : members) {
    const auto state = member.suspect ? wire::MemberState::kSuspect
                       : member.phase == MemberPhase::kActive || member.phase == MemberPhase::kStale
                           ? wire::MemberState::kActive
                           : wire::MemberState::kJoining;
    roster.members.push_back({id, member.name, member.address, state});
  }
  return roster;
}

void Coordinator::State::send_roster() {
  roster_due = true;
  if (members.size() <= kSmallSwarm) flush_roster();
}

void Coordinator::State::flush_roster() {
  if (!std::exchange(roster_due, false) || members.empty()) return;
  Broadcast all{{}, roster()};
  for (const auto& [id, member] : members) all.links.push_back(member.link);
  out.emplace_back(std::move(all));
}

void Coordinator::State::heard(MemberRecord& member) {
  const Duration silent = now - member.last_heard;
  member.last_heard = now;
  refuse_claims_of(member.name, member.address);
  if (!member.suspect) return;
  member.suspect = false;
  note(Note::Level::kInfo, "resume", member.name + " is heard again after " + in_milliseconds(silent),
       {{"who", json_quote(member.name)}});
  send_roster();
}

void Coordinator::State::on_heartbeat_tick() {
  if (members.empty() || now < next_heartbeat) return;
  // Who has slept cannot tell whether the others were silent: its own absence is not held against them.
  const Duration slept = now - next_heartbeat;
  if (slept > 2 * config.heartbeat) {
    for (auto& [id, member] : members) member.last_heard = std::min(now, member.last_heard + slept);
    watch.slept(slept);
  }
  next_heartbeat = later(now, config.heartbeat);
  ++heartbeat_sequence;
  judge_silence();
  judge_exchange();
  flush_roster();
  Broadcast all{{}, wire::Heartbeat{heartbeat_sequence, false}};
  for (const auto& [id, member] : members) all.links.push_back(member.link);
  if (!members.empty()) out.emplace_back(std::move(all));
}

void Coordinator::State::judge_silence() {
  std::vector<SiteId> dead;
  bool suspected = false;
  for (auto& [id, member] : members) {
    const Duration silent = now - member.last_heard;
    if (silent >= config.link_grace) {
      dead.push_back(id);
    } else if (!member.suspect && silent >= kSuspectAfter * config.heartbeat) {
      member.suspect = suspected = true;
      note(Note::Level::kWarning, "suspect",
           member.name + " has not been heard for " + in_milliseconds(silent) + "; it is removed after " +
               in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE)",
           {{"who", json_quote(member.name)}});
    }
  }
  if (suspected) send_roster();
  for (const SiteId id : dead) {
    const std::string reason = "silent for longer than " + in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE)";
    out.emplace_back(Hangup{members.at(id).link, reason});
    remove(id, reason);
  }
}

std::string Coordinator::State::status_json(TimePoint at) const {
  // Where it does not lead: as far as those who wait here know.
  const Election::Newest waiting = leads ? Election::Newest() : election.newest();
  const wire::Offer agreed = leads && anchor ? offer_of(*anchor) : waiting.anchor;
  std::vector<std::string> voter_names;
  for (const wire::Voter& voter : waiting.voters) voter_names.push_back(voter.name);
  std::vector<std::string> recovering;  // here, without their records
  for (const auto& [id, voter] : voters) {
    voter_names.push_back(voter.name);
    const auto member = members.find(id);
    if (!voter.left && member != members.end() && member->second.acceptor != voter.acceptor) {
      recovering.push_back(voter.name);
    }
  }
  std::string text = "{\"swarm\":" + json_quote(config.swarm) + ",\"term\":" + std::to_string(term.value) +
                     ",\"generation\":" + std::to_string(generations.current()) +
                     ",\"run\":" + std::to_string(agreed.run.value) +
                     ",\"round\":" + std::to_string(agreed.round.value) +
                     ",\"attempt\":" + std::to_string(round.attempt ? round.attempt->attempt.value : 0) +
                     ",\"waiting_for\":" + json_quote(leads ? waiting_for() : election.waiting_text(at)) +
                     ",\"leads\":" + (leads ? "true" : "false") + ",\"voters\":" + json_list(voter_names) +
                     ",\"recovering\":" + json_list(recovering) + ",\"missing\":" + json_list(missed()) +
                     ",\"applicants\":" + json_list(election.names()) + ",\"members\":[";
  bool first = true;
  for (const auto& [id, member] : members) {
    if (!first) text += ",";
    first = false;
    const wire::Ready ready = member.ready.value_or(wire::Ready{});
    const std::uint64_t held = member.holds ? member.holds->round.value : member.offer.round.value;
    const auto age = std::max<Duration::rep>(0, (at - member.last_heard).count() / 1000);
    text += "{\"site\":" + std::to_string(id.value) + ",\"name\":" + json_quote(member.name) +
            ",\"address\":" + json_quote(member.address) + ",\"state\":\"" +
            (member.suspect ? "suspect" : text_of(member.phase)) +
            "\",\"helper\":" + (member.helper ? "true" : "false") + ",\"ready\":" + (member.ready ? "true" : "false") +
            ",\"round\":" + std::to_string(held) + ",\"weight\":" + json_number(ready.weight) +
            ",\"samples\":" + std::to_string(ready.samples) + ",\"up_mbit\":" + json_number(member.up_kbit / 1e3) +
            ",\"down_mbit\":" + json_number(member.down_kbit / 1e3) +
            ",\"share\":" + json_number(partition.share_of(id)) + ",\"heartbeat_age_ms\":" + std::to_string(age) + "}";
  }
  return text + "]}";
}

std::vector<SiteId> Coordinator::State::waited_for() const {
  std::vector<SiteId> sites;
  if (round.attempt) {
    for (const wire::Participant& p : round.attempt->participants) {
      if (p.here && !members.at(p.site).done) sites.push_back(p.site);
    }
    return sites;
  }
  for (const auto& [id, member] : members) {
    const bool waits = member.phase != MemberPhase::kStale && round.set_aside.count(id) == 0;
    if (waits && (!member.ready || member.phase != MemberPhase::kActive)) sites.push_back(id);
  }
  return sites;
}

std::string Coordinator::State::waiting_for() const {
  if (gathering.running()) {
    return "round 0: " + std::to_string(sites_here()) + " of " + std::to_string(sites_wanted()) + " sites are here" +
           (init_from_missed() ? "; waiting for " + init_from().first + " (COLLAB_INIT_FROM)" : "");
  }
  if (!round.waiting.running()) return {};
  std::vector<std::string> names;
  for (const SiteId id : waited_for()) names.push_back(name_of(id));
  if (names.empty()) return {};
  return "round " + std::to_string(number().value) +
         (round.attempt ? " attempt " + std::to_string(round.attempt->attempt.value) + ": waiting for the exchange at "
                        : ": waiting for ") +
         join_words(names);
}

}  // namespace collab::protocol
