#include "core/protocol/coordinator/membership.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/base/keyed_digest.h"
#include "core/base/text.h"
#include "core/protocol/agreement/acceptor_id.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {

Member* Membership::find_by_link(LinkId link) {
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : &members_.at(found->second);
}

const Member* Membership::find_by_name(const std::string& name) const {
  const auto found = std::ranges::find_if(members_, [&](const auto& entry) { return entry.second.name == name; });
  return found == members_.end() ? nullptr : &found->second;
}

std::string Membership::name_of(SiteId id) const {
  const auto member = members_.find(id);
  return member == members_.end() ? "site " + std::to_string(id.value) : member->second.name;
}

std::vector<std::string> Membership::names() const {
  std::vector<std::string> names;
  for (const auto& [id, member] : members_) names.push_back(member.name);
  return names;
}

std::set<SiteId> Membership::ids() const {
  std::set<SiteId> sites;
  for (const auto& [id, member] : members_) sites.insert(id);
  return sites;
}

std::size_t Membership::sites_here() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(members_, [](const auto& entry) { return !entry.second.helper; }));
}

// ---- members come and go ---------------------------------------------------------------------------

Member& Membership::add(LinkId link, SiteId id, const wire::Join& join) {
  const wire::Record& record = join.report.record;
  const TermId term = all_->leadership.term();
  // An acceptor of ours would have deposed this leader.
  const bool anew = record.promised > term && !mutant(Mutant::kNewerTermIgnored);
  wire::Join kept = join;  // without what is no longer needed and may be large
  kept.settings.clear();
  kept.model.clear();
  kept.report.record.voters = {};
  kept.report.record.proposals = {};
  kept.report.record.recent = {};
  Member member{
      id,
      link,
      join.site,
      join.address,
      join.helper,
      all_->leadership.is_early(link),
      ++tickets_,
      std::move(kept),
      MemberContact(all_->now),
      MemberAnchor(anew ? acceptor_after(record.acceptor, join.process) : record.acceptor, record.anchor.run)};
  links_[link] = id;
  const auto as_ms = [](Duration d) {
    return static_cast<std::uint32_t>(std::max<Duration::rep>(1, d.count() / 1000));
  };
  all_->send(member, wire::Welcome{term, id, as_ms(all_->config.heartbeat), as_ms(all_->config.link_grace), anew});
  if (!join.address.empty()) all_->out.emplace_back(ProbeAddress{link, join.address});
  undialable_warned_ = undialable_warned_ && join.address.empty();
  auto& added = members_.emplace(id, std::move(member)).first->second;
  ++changes_;
  send_keys(added);
  send_roster();
  if (roster_due_) all_->send(added, roster());  // it must know the sources of the anchor
  return added;
}

// Two members recognise each other by a key that no other site is given.
void Membership::send_keys(const Member& joiner) {
  wire::Keys of_joiner;
  for (const auto& [id, other] : members_) {
    if (id == joiner.id) continue;
    std::array<std::uint64_t, 3> pair{all_->leadership.term().value, joiner.ticket, other.ticket};
    std::ranges::sort(pair.begin() + 1, pair.end());
    const Digest key = keyed_digest(all_->config.secret, std::as_bytes(std::span(pair)));
    of_joiner.keys.push_back({id, key});
    all_->send(other, wire::Keys{{{joiner.id, key}}});
  }
  if (!of_joiner.keys.empty()) all_->send(joiner, std::move(of_joiner));
}

void Membership::remove(SiteId id, const std::string& reason) {
  const auto found = members_.find(id);
  const Member gone = std::move(found->second);
  links_.erase(gone.link);
  members_.erase(found);
  if (!gone.helper) all_->generation.somebody_trained();  // it was here until now
  all_->changed = true;
  ++changes_;
  all_->note(Note::Level::kInfo, "leave", gone.name + " is no longer a member: " + reason,
             {{"who", json_quote(gone.name)}, {"reason", json_quote(reason)}});
  if (members_.empty()) return all_->leadership.stop();  // sites that come back may have followed another since
  all_->round.lost(gone);
  all_->installer.lost(id);
  all_->installer.went_without(gone);
  if (all_->anchor.record() && !all_->installer.somebody_holds()) all_->anchor.lose();
  all_->round.end_without_ready();
  send_roster();
  // Sites that end together need no warning about each other.
  const auto& voters = all_->agreed.voters();
  const auto voter = voters.find(id);
  const bool left = voter == voters.end() || voter->second.left;
  if (gone.dialable() && (gone.helper || !left)) warn_undialable(gone.name + " has gone, and ");
}

void Membership::close_link(SiteId id, const std::string& reason) {
  all_->out.emplace_back(CloseLink{members_.at(id).link, reason});
  remove(id, reason);
}

void Membership::expel(SiteId id, const std::string& reason) {
  all_->send(members_.at(id), wire::Refuse{reason});
  close_link(id, reason);
}

void Membership::close_all_links(const std::string& reason) {
  for (const auto& [id, member] : members_) all_->out.emplace_back(CloseLink{member.link, reason});
  members_.clear();
  links_.clear();
  ++changes_;
}

// ---- whether the sites here are enough -------------------------------------------------------------

Quorum Membership::quorum_among(const std::set<SiteId>& present) const {
  return all_->agreed.quorum([&](const wire::Voter& voter) {
    return present.count(voter.site) == 0 ? Presence::kAbsent : presence_of(voter, members_.at(voter.site));
  });
}

Quorum Membership::quorum_here() const {
  auto member = members_.begin();  // runs at each event: both are in order
  return all_->agreed.quorum([&](const wire::Voter& voter) {
    while (member != members_.end() && member->first < voter.site) ++member;
    const bool here = member != members_.end() && member->first == voter.site;
    return here ? presence_of(voter, member->second) : Presence::kAbsent;
  });
}

Quorum Membership::quorum_at_the_next_term() const {
  return all_->agreed.quorum([this](const wire::Voter& voter) {
    return members_.count(voter.site) != 0 ? Presence::kByName : Presence::kAbsent;
  });
}

std::string Membership::quorum_text(const std::set<SiteId>& present) const {
  const std::vector<std::string> missing = all_->agreed.missed_by(present);
  const std::size_t voters = all_->agreed.voters().size();
  const auto& anchor = all_->anchor.record();
  return std::to_string(voters - missing.size()) + " of the " + std::to_string(voters) +
         " sites that agreed on round " + std::to_string(anchor ? anchor->round.value : 0) +
         ", which is not a majority; missing: " + join_words(missing) + forget_text(missing);
}

void Membership::on_leave(Member& member, const wire::Leave& leave) {
  const std::string reason = "left: " + leave.reason;
  if (!member.helper) all_->generation.left_for(member.name, leave.next_generation);
  all_->send(member, wire::LeaveAck{});
  if (const auto acceptor = all_->agreed.remove_voter(voter_of(member), member.early)) {
    Broadcast rest{{}, wire::MemberLeft{all_->leadership.term(), member.name, *acceptor}};
    for (const auto& [id, other] : members_) {
      if (id != member.id) rest.links.push_back(other.link);
    }
    if (!rest.links.empty()) all_->out.emplace_back(std::move(rest));
  }
  const bool last = members_.size() == 1 || (!member.helper && sites_here() == 1);
  if (last && all_->anchor.record()) {  // the swarm ends in good order: no site or helper is to bring it back
    all_->anchor.end();
    all_->generation.end();
  }
  std::vector<SiteId> helpers;
  for (const auto& [id, other] : members_) {
    if (last && other.helper && id != member.id) helpers.push_back(id);
  }
  for (const SiteId id : helpers) expel(id, "the last site has left [join.swarm-ended]");
  close_link(member.id, reason);
}

void Membership::forget() { next_heartbeat_ = kNever; }

// ---- what members are told of each other -----------------------------------------------------------

wire::Roster Membership::roster() const {
  wire::Roster roster{all_->leadership.term(), {}};
  roster.members.reserve(members_.size());
  for (const auto& [id, member] : members_) {
    const auto state = member.contact.suspect_ ? wire::MemberState::kSuspect
                       : member.anchor.comes() ? wire::MemberState::kJoining
                                               : wire::MemberState::kActive;
    roster.members.push_back({id, member.name, member.address, state});
  }
  return roster;
}

void Membership::send_roster() {
  roster_due_ = true;
  if (members_.size() <= kSmallSwarm && rosters_ < kMostRosters) flush_roster();
}

void Membership::flush_roster() {
  if (!std::exchange(roster_due_, false) || members_.empty()) return;
  ++rosters_;
  broadcast(roster());
}

void Membership::broadcast(wire::Message message) {
  Broadcast all{{}, std::move(message)};
  for (const auto& [id, member] : members_) all.links.push_back(member.link);
  all_->out.emplace_back(std::move(all));
}

// The coordinator's own try is a hint, not a verdict. Other sites may reach a site that it does not get through to, so
// such pairs try each other all the same. From now on this site dials the others. It owns no slice while other sites
// can be dialled for sure.
void Membership::on_undialable(const Undialable& event) {
  Member* member = find_by_link(event.link);
  if (member == nullptr) return;
  member->contact.unverified_ = true;
  all_->note(Note::Level::kWarning, "address",
             member->name + " cannot be dialled at " + member->address + " (" + event.reason +
                 "), so it dials the others [link.undialable]",
             {{"who", json_quote(member->name)}});
  all_->send(*member,
             wire::Notice{std::string(kDialOut),
                          "other sites cannot dial this site at " + member->address + " (" + event.reason +
                              "): it dials out, and owns no part of the model in rounds where others can be dialled. "
                              "If it can be dialled at another address, set COLLAB_ADVERTISE, and a port in "
                              "COLLAB_LISTEN; COLLAB_ADVERTISE=none says that it cannot be dialled [link.dial-out]"});
  all_->installer.find_reachable_sources();
  all_->round.reform_if_owners_undialable();
  warn_undialable("");
}

void Membership::warn_undialable(const std::string& because) {
  const auto can = [](const auto& entry) { return entry.second.dialable(); };
  if (members_.size() < 2 || std::ranges::any_of(members_, can) || std::exchange(undialable_warned_, true)) return;
  const std::string text = because + "none of " + join_words(names()) +
                           " can be dialled: unless they reach each other anyway, run `collab helper` on a "
                           "machine that all of them reach [link.nobody-dialable]";
  all_->note(Note::Level::kWarning, "address", text);
  broadcast(wire::Notice{std::string(kDialOut), text});
}

// ---- whether members are heard ---------------------------------------------------------------------

void Membership::heard(Member& member) {
  const Duration silent = all_->now - member.contact.last_heard_;
  member.contact.last_heard_ = all_->now;
  all_->admission.refuse_claims_of(member.name, member.address);
  if (!std::exchange(member.contact.suspect_, false)) return;
  all_->note(Note::Level::kInfo, "resume", member.name + " is heard from again after " + in_milliseconds(silent),
             {{"who", json_quote(member.name)}});
  send_roster();
}

void Membership::begin_heartbeats() { next_heartbeat_ = later(all_->now, all_->config.heartbeat); }

void Membership::on_tick() {
  if (members_.empty() || all_->now < next_heartbeat_) return;
  // A coordinator that has slept cannot tell whether the others were silent. Its own absence is not held against them.
  const Duration slept = all_->now - next_heartbeat_;
  if (slept > 2 * all_->config.heartbeat) {
    for (auto& [id, member] : members_) {
      member.contact.last_heard_ = std::min(all_->now, member.contact.last_heard_ + slept);
    }
    all_->round.slept(slept);
    all_->gate.slept(slept);
  }
  begin_heartbeats();
  ++heartbeat_sequence_;
  judge_silence();
  all_->round.judge_exchange();
  rosters_ = 0;
  flush_roster();
  if (!members_.empty()) broadcast(wire::Heartbeat{heartbeat_sequence_, false});
}

void Membership::judge_silence() {
  std::vector<SiteId> dead;
  bool suspected = false;
  const std::string limit = in_seconds(all_->config.link_grace) + " (COLLAB_LINK_GRACE)";
  for (auto& [id, member] : members_) {
    const Duration silent = all_->now - member.contact.last_heard_;
    if (silent >= all_->config.link_grace) {
      dead.push_back(id);
    } else if (!member.contact.suspect_ && silent >= kSuspectAfter * all_->config.heartbeat) {
      member.contact.suspect_ = suspected = true;
      all_->note(Note::Level::kWarning, "suspect",
                 member.name + " has not been heard from for " + in_milliseconds(silent) + "; it is removed after " +
                     limit + " [link.suspect]",
                 {{"who", json_quote(member.name)}});
    }
  }
  if (suspected) send_roster();
  for (const SiteId id : dead) close_link(id, "silent for longer than " + limit + " [link.silent]");
}

}  // namespace collab::protocol
