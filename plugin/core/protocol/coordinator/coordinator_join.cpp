// Joining: who may come in, who gives the anchor to whom.
#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <utility>

#include "core/base/keyed_digest.h"
#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"
#include "core/protocol/mutants.h"
#include "core/wire/limits.h"

namespace collab::protocol {

void Coordinator::State::refuse_link(LinkId link, const std::string& who, const std::string& reason) {
  out.emplace_back(Send{link, wire::Refuse{reason}});
  out.emplace_back(Hangup{link, reason});
  if (gathering.running() && member_named(who) == nullptr) {
    refused_who = who;
    refused_why = reason;
  }
  note(Note::Level::kWarning, "refused", who + " was refused: " + reason, {{"who", json_quote(who)}});
}

SiteId Coordinator::State::pick_id(const wire::Join& join) const {
  for (const Voters* membership : {&voters, &next_voters}) {
    for (const auto& [id, voter] : *membership) {
      if (voter.name == join.site && members.count(id) == 0) return id;  // back in its place
    }
  }
  for (const auto& [id, gone] : round.gone) {
    if (gone.name == join.site && members.count(id) == 0) return id;
  }
  const auto taken = [this](SiteId id) {
    return members.count(id) + voters.count(id) + next_voters.count(id) + round.gone.count(id) != 0;
  };
  if (join.index != wire::kNoIndex && !taken(SiteId{join.index})) return SiteId{join.index};
  SiteId id{join.helper ? sites_wanted() : 0};  // those below may be the indices of sites that are still to come
  while (taken(id)) ++id.value;
  return id;
}

std::size_t Coordinator::State::sites_here() const {
  return static_cast<std::size_t>(
      std::count_if(members.begin(), members.end(), [](const auto& entry) { return !entry.second.helper; }));
}

std::uint32_t Coordinator::State::sites_wanted() const {
  std::uint32_t sites = generations.follows() ? 1 : config.min_sites;
  for (const auto& [id, member] : members) sites = std::max(sites, member.expected_sites);
  return sites;
}

// When another process under that name was heard last: a member, or one that is about to be. The same process may be
// back before its old link was seen to die.
std::optional<TimePoint> Coordinator::State::namesake_heard(const wire::Join& join) const {
  if (!leads) return election.namesake_heard(join);
  const MemberRecord* member = member_named(join.site);
  const bool same_process = member != nullptr && join.process != 0 && join.process == member->process;
  return member == nullptr || same_process ? std::nullopt : std::optional(member->last_heard);
}

TimePoint Coordinator::State::free_at(const wire::Join& join) const {
  const auto heard = namesake_heard(join);
  return heard ? later(*heard, kReplaceAfter * config.heartbeat) : TimePoint{};
}

const MemberRecord* Coordinator::State::member_named(const std::string& name) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const auto& entry) { return entry.second.name == name; });
  return found == members.end() ? nullptr : &found->second;
}

// Who claims a member's name is let in once that member is gone or silent, and refused once it is heard.
void Coordinator::State::settle_claims() {
  std::vector<LinkId> due;
  for (const auto& [link, join] : claims) {
    if (now >= free_at(join)) due.push_back(link);
  }
  for (const LinkId link : due) {
    if (const auto claim = claims.extract(link)) on_join(link, claim.mapped());  // the one before may have ended it
  }
}

void Coordinator::State::claim(LinkId link, const wire::Join& join) {
  if (claims.size() >= kMaxClaims) return refuse_link(link, join.site, "too many joins at once; try again");
  claims[link] = join;  // until the old link is heard, or silent for long enough
}

void Coordinator::State::refuse_claims_of(const std::string& name, const std::string& address) {
  for (auto claim = claims.begin(); claim != claims.end();) {
    if (claim->second.site != name) {
      ++claim;
      continue;
    }
    const LinkId link = claim->first;
    claim = claims.erase(claim);
    refuse_link(link, name,
                "a site named " + json_quote(name) + " is in the swarm already" +
                    (address.empty() ? "" : ", at " + address) + ": give this one another COLLAB_SITE");
  }
}

void Coordinator::State::on_join(LinkId link, const wire::Join& join) {
  if (join.swarm == config.swarm && links.count(link) == 0 && !fits_generation(join)) {
    if (const auto replaced = generations.wait(link, join, now)) {
      out.emplace_back(Hangup{*replaced, "replaced by a new link of " + join.site});
    }
    changed = true;  // it is settled as soon as this event has been looked at
    return;
  }
  // Whom a majority has elected is not deposed by a stranger, nor by one who says that it is a voter that is here.
  if (leads && join.swarm == config.swarm && now >= free_at(join) && (founded || refusal(join).empty())) {
    const wire::Record& record = join.report.record;
    const bool voter = is_acceptor_of(record.acceptor, join.site);
    const bool ahead = anchor && record.anchor.run == anchor->run && record.anchor.round > anchor->round;
    const bool newer_term = record.promised > term && voter;
    if (ahead && !voter) {  // if that is so, its own leader will be found at another candidate
      out.emplace_back(Hangup{link, join.site + " knows of a later round than this leader, and is no voter here"});
      return;
    }
    if ((newer_term && !mutant(Mutant::kNewerTermIgnored)) || ahead) {
      step_down(join.site +
                (ahead ? " knows of a later round" : " follows term " + std::to_string(record.promised.value)));
    } else if (founded && is_older(join)) {
      step_down(join.site + " is of a swarm older than the one that has just begun here");
    }
  }
  if (const auto known = links.find(link); known != links.end()) {
    note(Note::Level::kWarning, "ignored", name_of(known->second) + " sent a second Join on one link");
    return;
  }
  if (const std::string reason = refusal(join); !reason.empty()) {
    const std::string who = join.site.empty() ? "a site without a name" : join.site;
    return refuse_link(link, who, reason);
  }
  if (now < free_at(join)) return claim(link, join);
  if (!leads) return apply(link, join);
  if (const MemberRecord* namesake = member_named(join.site)) {
    out.emplace_back(Hangup{namesake->link, "replaced by a new link of " + join.site});
    remove(namesake->id, "its old link was dead; it came back on a new one");
    if (!leads) return apply(link, join);  // it was the last one
  }
  admit(link, join);
}

void Coordinator::State::apply(LinkId link, const wire::Join& join) {
  if (election.size() >= wire::kMaxSites) return refuse_link(link, join.site, "too many joins at once; try again");
  if (const auto replaced = election.come(now, link, join)) {
    out.emplace_back(Hangup{*replaced, "replaced by a new link of " + join.site});
  }
  seek();
}

// Two members know each other by a key that nobody else is told.
void Coordinator::State::send_keys(const MemberRecord& joiner) {
  wire::Keys of_joiner;
  for (const auto& [id, other] : members) {
    if (id == joiner.id) continue;
    std::array<std::uint64_t, 3> pair{term.value, joiner.ticket, other.ticket};
    std::ranges::sort(pair.begin() + 1, pair.end());
    const Digest key = keyed_digest(config.secret, std::as_bytes(std::span(pair)));
    of_joiner.keys.push_back({id, key});
    send(other, wire::Keys{{{joiner.id, key}}});
  }
  if (!of_joiner.keys.empty()) send(joiner, std::move(of_joiner));
}

void Coordinator::State::admit(LinkId link, const wire::Join& join) {
  if (refused_who == join.site) refused_who.clear();  // it has come after all
  generations.came(join.site);
  if (!reference) next_heartbeat = later(now, config.heartbeat);
  if (!reference || (reference->model.empty() && !join.helper)) {
    reference = Reference{join.site, join.elements, join.settings,
                          join.helper ? std::vector<wire::ModelEntry>{} : join.model, join.fingerprint};
  }
  MemberRecord member;
  member.id = pick_id(join);
  member.name = join.site;
  member.address = join.address;
  member.link = link;
  member.helper = join.helper;
  member.offer = join.offer;
  member.report = join.report;
  member.acceptor = join.report.record.acceptor;
  member.process = join.process;
  member.ticket = ++tickets;
  member.run = join.report.record.anchor.run;
  member.early = early.count(link) != 0;
  member.expected_sites = join.expected_sites;
  member.resumed = join.resumed;
  member.init_from = join.init_from;
  member.last_heard = now;
  const bool holds = anchor && join.offer.run == anchor->run && join.offer.round == anchor->round;
  if (holds) member.holds = wire::AnchorInstalled{join.offer.run, join.offer.round, join.offer.digest};
  links[link] = member.id;
  const auto as_ms = [](Duration d) {
    return static_cast<std::uint32_t>(std::max<Duration::rep>(1, d.count() / 1000));
  };
  // An acceptor of ours would have deposed this leader.
  const bool anew = join.report.record.promised > term && !mutant(Mutant::kNewerTermIgnored);
  send(member, wire::Welcome{term, member.id, as_ms(config.heartbeat), as_ms(config.link_grace), anew});
  if (!join.address.empty()) out.emplace_back(ProbeAddress{link, join.address});
  unreachable_told = unreachable_told && join.address.empty();
  auto& inserted = members.emplace(member.id, std::move(member)).first->second;
  ++changes;
  send_keys(inserted);
  send_roster();
  if (roster_due) send(inserted, roster());  // it has to know whom to take the anchor from
  compare_left_out(join, inserted);
  if (repeat_commit(inserted)) return;
  if (anchor) tell_late(inserted);
  // Its parameters move, so it cannot take another anchor now: it comes to its trigger by itself.
  const bool newest = !anchor || (join.offer.run == anchor->run && join.offer.round == anchor->round);
  if (join.report.training && !newest) inserted.phase = MemberPhase::kStale;
}

bool Coordinator::State::repeat_commit(MemberRecord& member) {
  const wire::Proposal* missed = history.missed_by(member.offer, member.report);
  if (missed == nullptr) return false;
  const wire::StartAttempt& start = missed->start;
  if (!history.has_right_mean(*missed)) {
    note(Note::Level::kError, "repair",
         member.name + " has another mean of round " + std::to_string(start.round.value) +
             " than was committed; it takes the anchor instead",
         {{"who", json_quote(member.name)}, {"round", std::to_string(start.round.value)}});
    return false;
  }
  member.recommitted = true;
  send(member, wire::Commit{term, start.run, start.round, start.attempt, contributors_of(start)});
  for (const auto& [id, voter] : voters) {  // no InstallAnchor follows that would tell
    if (voter.left) send(member, wire::MemberLeft{term, voter.name, voter.acceptor});
  }
  member.phase = MemberPhase::kStale;
  note(Note::Level::kInfo, "resume",
       member.name + " had missed the commit of round " + std::to_string(start.round.value) + " and gets it now",
       {{"who", json_quote(member.name)}});
  return true;
}

bool Coordinator::State::holds_anchor(const MemberRecord& member) const {
  return anchor && anchor->digest && member.holds &&
         wire::Offer{member.holds->run, member.holds->round, member.holds->digest} == offer_of(*anchor);
}

// Where there are many they take turns, so that several joiners load several sites. A pair in which the coordinator
// gets through to neither may link up all the same; one in which neither has an address is the last resort: it will
// not, and the joiner says so.
std::vector<SiteId> Coordinator::State::pick_sources(const MemberRecord& joiner) {
  if (holds_anchor(joiner)) return {joiner.id};
  std::vector<SiteId> reachable;
  std::vector<SiteId> unverified;
  std::vector<SiteId> others;
  for (const auto& [id, member] : members) {
    if (id == joiner.id || !holds_anchor(member)) continue;
    const bool way = member.dialable() || joiner.dialable();
    (way ? reachable : member.address.empty() && joiner.address.empty() ? others : unverified).push_back(id);
  }
  auto& from = !reachable.empty() ? reachable : unverified.empty() ? others : unverified;
  if (from.size() <= kSources) return from;
  std::ranges::rotate(from, from.begin() + static_cast<std::ptrdiff_t>(next_source % from.size()));
  next_source += kSources;
  from.resize(kSources);
  std::ranges::sort(from);
  return from;
}

// The one whose word the digest was may be gone, and the others hold something else: then most of them are right.
void Coordinator::State::believe_holders() {
  std::map<SiteId, Digest> said;
  bool somebody_waits = false;
  for (const auto& [id, member] : members) {
    somebody_waits = somebody_waits || member.phase == MemberPhase::kJoined;
    if (holds_anchor(member)) return;
    const bool same = member.holds && member.holds->run == anchor->run && member.holds->round == anchor->round;
    const bool in_place = member.phase == MemberPhase::kActive || member.phase == MemberPhase::kJoined;
    if (same && in_place) said[id] = member.holds->digest;
  }
  if (!somebody_waits || said.empty()) return;
  anchor->digest = majority(said);
  note(Note::Level::kWarning, "repair",
       "nobody here holds the anchor of round " + std::to_string(anchor->round.value) +
           " as it was first reported; that of most is taken",
       {{"round", std::to_string(anchor->round.value)}});
}

// Without a source, whoever held the anchor has said since that it holds another: it waits for one.
void Coordinator::State::send_install(MemberRecord& to, std::vector<SiteId> sources) {
  to.phase = sources.empty() ? MemberPhase::kJoined : MemberPhase::kInstalling;
  to.installing_since = to.progressed_at = now;
  to.sources = std::move(sources);
  to.ready.reset();
  if (!to.sources.empty()) tell_sources(to);
}

// An anchor does not move under a joiner: none is offered while an attempt is in flight, no attempt is formed while
// somebody adopts.
void Coordinator::State::offer_anchor() {
  if (!anchor || !anchor->digest || round.attempt) return;
  believe_holders();
  for (auto& [id, member] : members) {
    if (member.phase != MemberPhase::kJoined) continue;
    auto sources = pick_sources(member);
    if (!sources.empty() && !waits_until_reachable(member, sources)) send_install(member, std::move(sources));
  }
}

void Coordinator::State::on_anchor_installed(MemberRecord& member, const wire::AnchorInstalled& installed) {
  if (anchor && installed.run == anchor->run) {
    member.acceptor = installed.acceptor;
    member.renamed_from.reset();
  }
  if (!anchor || installed.run != anchor->run || installed.round != anchor->round) {
    member.holds = installed;
    if (!anchor || member.phase != MemberPhase::kInstalling) return;
    if (member.sources != std::vector{member.id}) {  // its parameters move: it takes the anchor at its next trigger
      member.phase = MemberPhase::kStale;
      return;
    }
    if (installed.run.value - config.fresh_run.value < births) return;  // of a choice before; it is told the newer one
    // Chosen for what it brought when it joined, it has since put another anchor in place: choose again.
    note(Note::Level::kWarning, "anchor",
         member.name + " holds the anchor of " + anchor_text(installed.run, installed.round) + " by now, not that of " +
             anchor_text(anchor->run, anchor->round));
    anchor.reset();
    for (auto& [id, other] : members) other.phase = MemberPhase::kJoined;
    return;
  }
  idle = anchor->digest && member.phase == MemberPhase::kActive;  // one more that has taken the outer step
  if (!anchor->digest) anchor->digest = installed.digest;
  const bool waited_for = member.phase == MemberPhase::kInstalling;
  member.holds = installed;
  if (holds_anchor(member)) add_source(member);
  if (member.phase == MemberPhase::kActive) return;
  // Who has applied the commit may be right where the first one to say so is wrong: that is decided once all are ready.
  const bool applied = std::exchange(member.recommitted, false);
  if (!applied && !waited_for && installed.digest != *anchor->digest) return;  // it is sent the right one
  if (applied && waited_for && installed.digest != *anchor->digest) return;    // it has been sent: they crossed
  if (!applied && installed.digest != *anchor->digest) {
    const std::string what = "its anchor of " + anchor_text(installed.run, installed.round) + " has the digest " +
                             to_hex(installed.digest) + ", the swarm's has " + to_hex(*anchor->digest);
    if (++round.state_repairs[member.id] > kMaxRepeats) return expel(member.id, what);
    note(Note::Level::kError, "repair", member.name + ": " + what + "; it takes the swarm's",
         {{"who", json_quote(member.name)}, {"round", std::to_string(installed.round.value)}});
    member.phase = MemberPhase::kJoined;
    return;
  }
  member.phase = MemberPhase::kActive;
  if (waited_for && vain_waits > 0) --vain_waits;
  if (!member.greeted) {
    member.greeted = true;
    note(Note::Level::kInfo, "join",
         member.name + " joined as site " + std::to_string(member.id.value) + " at " +
             anchor_text(installed.run, installed.round),
         {{"who", json_quote(member.name)}, {"round", std::to_string(installed.round.value)}});
  }
  send_roster();
}

}  // namespace collab::protocol
