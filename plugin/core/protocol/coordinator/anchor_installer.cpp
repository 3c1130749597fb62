#include "core/protocol/coordinator/anchor_installer.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/agreement/acceptor_id.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {

bool AnchorInstaller::holds_anchor(const Member& member) const {
  const auto& anchor = all_->anchor.record();
  const auto& holds = member.anchor.holds_;
  return anchor && anchor->digest && holds && wire::Offer{holds->run, holds->round, holds->digest} == offer_of(*anchor);
}

bool AnchorInstaller::somebody_holds() const {
  return std::ranges::any_of(all_->members(), [this](const auto& entry) {
    return entry.second.phase() == MemberPhase::kActive || holds_anchor(entry.second);
  });
}

// ---- a member's state ------------------------------------------------------------------------------

void AnchorInstaller::welcome(Member& member, const wire::Join& join) {
  const auto& anchor = all_->anchor.record();
  const wire::Offer& offer = join.offer;
  const bool holds = anchor && offer.run == anchor->run && offer.round == anchor->round;
  if (holds) member.anchor.holds_ = wire::AnchorInstalled{offer.run, offer.round, offer.digest};
  if (repeat_commit(member, join) || !anchor) return;
  all_->anchor.notify_late_joiner(member);
  // Its parameters move, so it cannot take another anchor now. It comes to its trigger by itself.
  if (join.report.training && !holds) member.anchor.phase_ = MemberPhase::kStale;
}

bool AnchorInstaller::repeat_commit(Member& member, const wire::Join& join) {
  const CommittedRounds& history = all_->agreed.history();
  const wire::Proposal* missed = history.missed_by(join.offer, join.report);
  if (missed == nullptr) return false;
  const wire::StartAttempt& start = missed->start;
  const std::string round = std::to_string(start.round.value);
  if (!history.has_right_mean(*missed)) {
    all_->note(Note::Level::kError, "repair",
               member.name + " has a different mean of round " + round +
                   " from the one that was committed; it takes the anchor instead [round.other-mean]",
               {{"who", json_quote(member.name)}, {"round", round}});
    return false;
  }
  member.anchor.recommitted_ = true;
  const TermId term = all_->leadership.term();
  all_->send(
      member,
      wire::Commit{term, start.run, start.round, start.attempt, contributors_of(start),
                   all_->anchor.record() && all_->anchor.record()->round == start.round ? all_->period.in_force() : 0});
  for (const auto& [id, voter] : all_->agreed.voters()) {  // no InstallAnchor follows that would tell it
    if (voter.left) all_->send(member, wire::MemberLeft{term, voter.name, voter.acceptor});
  }
  member.anchor.phase_ = MemberPhase::kStale;
  all_->note(Note::Level::kInfo, "resume",
             member.name + " had missed the commit of round " + round + " and gets it now",
             {{"who", json_quote(member.name)}});
  return true;
}

// A site gets another acceptor when it changes runs, and the next one only after it has confirmed this one. If the
// coordinator guessed further ahead, the site could count as a witness of what it had accepted before.
void AnchorInstaller::begin_run(RunId run) {
  for (auto& [id, member] : all_->members()) {
    MemberAnchor& anchor = member.anchor;
    const bool another = anchor.run_.value != 0 && anchor.run_ != run && !mutant(Mutant::kAcceptorInOtherRun);
    if (!std::exchange(anchor.foretold_, true) && another) {
      anchor.acceptor_ = acceptor_after(anchor.acceptor_, member.join.process);
    }
    anchor.run_ = run;
  }
}

void AnchorInstaller::begin_from(Member& source, const wire::Offer& anchor) {
  source.anchor.renamed_from_ = source.brought();
  source.anchor.holds_ = wire::AnchorInstalled{anchor.run, anchor.round, anchor.digest, source.anchor.acceptor_};
  all_wait();  // a member that was stale is offered this anchor
}

void AnchorInstaller::all_wait() {
  for (auto& [id, member] : all_->members()) member.anchor.phase_ = MemberPhase::kJoined;
}

void AnchorInstaller::wait(Member& member, const wire::AnchorInstalled& holding) {
  member.anchor.phase_ = MemberPhase::kJoined;
  member.anchor.holds_ = holding;
}

void AnchorInstaller::left_out(Member& member) {
  if (member.phase() == MemberPhase::kActive) {  // a member that is ready by now takes the anchor at once
    member.anchor.phase_ = member.round.ready() ? MemberPhase::kJoined : MemberPhase::kStale;
    all_->round.retract(member);
  } else if (member.phase() == MemberPhase::kInstalling) {  // it is given the newer one
    member.anchor.phase_ = MemberPhase::kJoined;
    member.anchor.overtaken_ = true;
  }
}

bool AnchorInstaller::mark_not_used(Member& member) { return !std::exchange(member.anchor.told_not_used_, true); }

void AnchorInstaller::on_progress(Member& member, std::uint64_t progress) {
  if (progress <= member.anchor.progress_) return;
  member.anchor.progressed_at_ = all_->now;
  member.anchor.progress_ = progress;
}

void AnchorInstaller::on_installed(Member& member, const wire::AnchorInstalled& installed) {
  const auto& anchor = all_->anchor.record();
  if (anchor && installed.run == anchor->run) {
    member.anchor.acceptor_ = installed.acceptor;
    member.anchor.foretold_ = false;
  }
  const bool waited_for = member.phase() == MemberPhase::kInstalling;
  member.anchor.holds_ = installed;
  if (!anchor) return;
  if (installed.run != anchor->run || installed.round != anchor->round) {
    // The site holds its anchor under the swarm's name by now, and knows whether its contribution was counted.
    if (installed.run == anchor->run) member.anchor.renamed_from_.reset();
    if (waited_for) installed_another(member, installed);
    return;
  }
  all_->idle = anchor->digest && member.phase() == MemberPhase::kActive;  // one more site has taken the outer step
  if (!anchor->digest) all_->anchor.set_digest(installed.digest);
  if (holds_anchor(member)) add_source(member);
  if (member.phase() == MemberPhase::kActive) return;
  // A site that has applied the commit may be right, and the first report wrong. The digests decide once sites are
  // ready.
  const bool applied = std::exchange(member.anchor.recommitted_, false);
  if (installed.digest == *anchor->digest || (applied && !waited_for)) return active(member, installed, waited_for);
  // The site gets the right anchor, or was offered it already: the messages crossed.
  if (!waited_for || applied) return;
  const std::string what = "its anchor of " + anchor_text(installed.run, installed.round) + " has the digest " +
                           to_hex(installed.digest) + ", but the swarm's has " + to_hex(*anchor->digest);
  if (all_->exclusions.count_state_repair(member.id) > kMaxRepeats)
    return all_->membership.expel(member.id, what + " [round.anchor-beyond-repair]");
  all_->note(Note::Level::kError, "repair",
             member.name + ": " + what + "; it takes the swarm's anchor [round.other-anchor]",
             {{"who", json_quote(member.name)}, {"round", std::to_string(installed.round.value)}});
  member.anchor.phase_ = MemberPhase::kJoined;
}

// The member installed another anchor than the one it was told to take.
void AnchorInstaller::installed_another(Member& member, const wire::AnchorInstalled& installed) {
  if (member.anchor.sources_ != std::vector{member.id}) {  // its parameters move: it takes this at its next trigger
    member.anchor.phase_ = MemberPhase::kStale;
    return;
  }
  if (all_->leadership.began_here(installed.run)) return;  // from an earlier choice; it is offered the newer one
  const AnchorRecord& anchor = *all_->anchor.record();
  const std::string what = member.name + " now holds the anchor of " + anchor_text(installed.run, installed.round) +
                           ", not that of " + anchor_text(anchor.run, anchor.round);
  if (all_->exclusions.count_state_repair(member.id) > kMaxRepeats) {
    return all_->membership.expel(member.id,
                                  what + "; " + times_text(kMaxRepeats + 1) +
                                      " it has not taken the one it was told to take [join.anchor-unsteady]");
  }
  // One member's report does not undo what the others hold or are about to agree on. It is told to take theirs.
  const bool held = somebody_holds() || all_->round.attempt();
  all_->note(Note::Level::kWarning, "anchor",
             what + "; " + (held ? "it takes the latter from the others" : "an anchor is chosen again") +
                 " [join.anchor-changed]",
             {{"who", json_quote(member.name)}});
  if (held) {
    member.anchor.phase_ = MemberPhase::kJoined;
    return;
  }
  // The member was chosen for what it brought when it joined, but has put another anchor in place since: choose again.
  all_->anchor.drop();
}

void AnchorInstaller::active(Member& member, const wire::AnchorInstalled& installed, bool waited_for) {
  member.anchor.phase_ = MemberPhase::kActive;
  member.anchor.overtaken_ = false;
  member.anchor.renamed_from_.reset();  // not earlier: a site with another anchor is told again what was counted
  // A member that was its own source had the anchor before it came.
  if (waited_for && member.anchor.sources_ != std::vector{member.id}) all_->gate.joiner_arrived();
  if (!std::exchange(member.anchor.greeted_, true)) {
    all_->note(Note::Level::kInfo, "join",
               member.name + " joined as site " + std::to_string(member.id.value) + " at " +
                   anchor_text(installed.run, installed.round),
               {{"who", json_quote(member.name)}, {"round", std::to_string(installed.round.value)}});
  }
  all_->membership.send_roster();
}

// ---- from which sites ------------------------------------------------------------------------------

// If there are many sources, they take turns, so that several joiners load several sites. If the coordinator gets
// through to neither of a pair, they may link up all the same. If neither has an address, the pair is the last resort:
// it will not link, and the joiner says so.
std::vector<SiteId> AnchorInstaller::pick_sources(const Member& joiner) {
  if (holds_anchor(joiner)) return {joiner.id};
  std::vector<SiteId> reachable;
  std::vector<SiteId> unverified;
  std::vector<SiteId> others;
  for (const auto& [id, member] : all_->members()) {
    if (id == joiner.id || !holds_anchor(member)) continue;
    const bool way = member.dialable() || joiner.dialable();
    (way ? reachable : member.address.empty() && joiner.address.empty() ? others : unverified).push_back(id);
  }
  auto& from = !reachable.empty() ? reachable : unverified.empty() ? others : unverified;
  if (from.size() <= kSources) return from;
  std::ranges::rotate(from, from.begin() + static_cast<std::ptrdiff_t>(next_source_ % from.size()));
  next_source_ += kSources;
  from.resize(kSources);
  std::ranges::sort(from);
  return from;
}

// The digest that was reported first stands unless more than half of the membership reports another. Helpers do not
// count, as they may be one peer under many names. If no site holds that anchor any more, the digest that most report
// is right. The anchor is not lost while a site that brought it has yet to report it in place.
void AnchorInstaller::trust_reported_holders() {
  const AnchorRecord& anchor = *all_->anchor.record();
  const auto says_so = [&](const auto& entry) {
    const auto& holds = entry.second.anchor.holds_;
    return !holds || holds->run != anchor.run || holds->round != anchor.round || holds->digest == anchor.digest;
  };
  if (std::ranges::all_of(all_->members(), says_so)) return;
  const Voters& voters = all_->agreed.voters();
  std::map<SiteId, Digest> said;
  std::map<SiteId, Digest> said_by_voters;
  std::size_t helpers = 0;
  bool somebody_waits = false;
  bool somebody_holds = false;
  for (const auto& [id, member] : all_->members()) {
    somebody_waits = somebody_waits || member.phase() == MemberPhase::kJoined;
    const bool keeps = member.phase() == MemberPhase::kInstalling && member.brought().digest == anchor.digest;
    somebody_holds = somebody_holds || keeps || holds_anchor(member);
    const bool is_voter = voters.contains(id) && !member.helper;
    helpers += voters.contains(id) && member.helper ? 1 : 0;
    const auto& holds = member.anchor.holds_;
    if (!holds || holds->run != anchor.run || holds->round != anchor.round) continue;
    if (is_voter) said_by_voters[id] = holds->digest;
    if (member.phase() == MemberPhase::kActive || member.phase() == MemberPhase::kJoined) said[id] = holds->digest;
  }
  std::optional<Digest> right;
  if (somebody_holds && !said_by_voters.empty()) {
    const Digest most = most_reported(said_by_voters);
    const auto count = std::ranges::count_if(said_by_voters, [&](const auto& entry) { return entry.second == most; });
    if (2 * static_cast<std::size_t>(count) > voters.size() - helpers) right = most;
  } else if (!somebody_holds && somebody_waits && !said.empty()) {
    right = most_reported(said);
  }
  if (!right || right == anchor.digest) return;
  const std::string round = std::to_string(anchor.round.value);
  all_->anchor.set_digest(*right);
  digest_changed();
  all_->note(Note::Level::kWarning, "repair",
             "most sites hold a different anchor of round " + round +
                 " from the one reported first; the majority's is used [round.anchor-by-majority]",
             {{"round", round}});
}

// The anchor must not move under a joiner. So none is offered while an attempt is in flight, and no attempt is formed
// while a site installs one.
void AnchorInstaller::offer() {
  const auto& anchor = all_->anchor.record();
  if (!anchor || !anchor->digest || all_->round.attempt()) return;
  trust_reported_holders();
  for (auto& [id, member] : all_->members()) {
    if (member.phase() != MemberPhase::kJoined) continue;
    auto sources = pick_sources(member);
    if (!sources.empty() && !waits_until_reachable(member, sources)) install(member, std::move(sources));
  }
}

// If there is no source, each site that held the anchor has reported another one since. Then the joiner waits.
void AnchorInstaller::install(Member& to, std::vector<SiteId> sources) {
  to.anchor.phase_ = sources.empty() ? MemberPhase::kJoined : MemberPhase::kInstalling;
  to.anchor.installing_since_ = all_->now;
  // A member that took nothing of the last anchor gets no more time for this one.
  if (!std::exchange(to.anchor.overtaken_, false)) to.anchor.progressed_at_ = all_->now;
  to.anchor.sources_ = std::move(sources);
  all_->round.retract(to);
  if (!to.anchor.sources_.empty()) send_sources(to);
}

void AnchorInstaller::install_again(Member& member) { install(member, pick_sources(member)); }

void AnchorInstaller::digest_changed() {
  for (auto& [id, member] : all_->members()) {
    if (member.phase() == MemberPhase::kInstalling) install_again(member);
  }
}

void AnchorInstaller::send_sources(const Member& to) {
  const AnchorRecord& anchor = *all_->anchor.record();
  const auto [counted, attempt] =
      all_->agreed.counted(to.name, to.anchor.renamed_from().value_or(to.brought()), anchor.run, anchor.round);
  all_->send(to, wire::InstallAnchor{all_->leadership.term(), anchor.run, anchor.round, to.anchor.sources_,
                                     *anchor.digest, counted, list_of(all_->agreed.voters()),
                                     all_->generation.generations().current(), all_->period.in_force(), attempt});
}

void AnchorInstaller::add_source(const Member& holder) {
  for (auto& [id, member] : all_->members()) {
    if (member.phase() != MemberPhase::kInstalling || id == holder.id) continue;
    std::vector<SiteId>& sources = member.anchor.sources_;
    if (sources.size() >= kSources || sources == std::vector{id}) continue;
    if (member.address.empty() && holder.address.empty()) continue;
    const auto place = std::ranges::lower_bound(sources, holder.id);
    if (place != sources.end() && *place == holder.id) continue;
    sources.insert(place, holder.id);
    send_sources(member);
  }
}

void AnchorInstaller::lost(SiteId source) {
  const auto& anchor = all_->anchor.record();
  for (auto& [id, member] : all_->members()) {
    if (member.phase() != MemberPhase::kInstalling || std::erase(member.anchor.sources_, source) == 0) continue;
    if (member.anchor.sources_.empty()) {
      member.anchor.phase_ = MemberPhase::kJoined;
    } else if (anchor && anchor->digest) {  // it goes on with the other sources
      send_sources(member);
    }
  }
}

// The lost member had one source. Once per link grace, that source is asked again what it holds: its first report may
// be wrong.
void AnchorInstaller::went_without(const Member& gone) {
  const auto& anchor = all_->anchor.record();
  if (gone.phase() != MemberPhase::kInstalling || gone.anchor.sources_.size() != 1) return;
  if (!anchor || !anchor->digest || all_->round.attempt()) return;
  const auto source = all_->members().find(gone.anchor.sources_.front());
  if (source == all_->members().end() || source->second.phase() != MemberPhase::kActive) return;
  if (all_->now < ask_again_from_ || mutant(Mutant::kSourceNotAskedAgain)) return;
  ask_again_from_ = later(all_->now, all_->config.link_grace);
  install(source->second, {source->first});
}

void AnchorInstaller::find_reachable_sources() {
  for (auto& [id, member] : all_->members()) {
    if (member.phase() != MemberPhase::kInstalling || reaches_any(member, member.anchor.sources_)) continue;
    std::vector<SiteId> better = pick_sources(member);
    if (reaches_any(member, better)) install(member, std::move(better));
  }
}

bool AnchorInstaller::reaches_any(const Member& member, const std::vector<SiteId>& sources) const {
  return std::ranges::any_of(
      sources, [&](SiteId id) { return id == member.id || member.dialable() || all_->members().at(id).dialable(); });
}

// True if neither the joiner nor any holder of the anchor has an address: a site that can be dialled may take the
// anchor first, or a helper may come. A joiner that has an address tries at once, and gives up by itself.
bool AnchorInstaller::waits_until_reachable(Member& joiner, const std::vector<SiteId>& sources) {
  const auto has_address = [this](SiteId id) { return !all_->members().at(id).address.empty(); };
  if (!joiner.address.empty() || sources == std::vector{joiner.id}) return false;
  if (std::ranges::any_of(sources, has_address)) return false;
  const bool comes = std::ranges::any_of(
      all_->members(), [](const auto& entry) { return entry.second.anchor.comes() && entry.second.dialable(); });
  if (comes) return true;
  if (joiner.anchor.unreachable_since_ == kNever) {
    joiner.anchor.unreachable_since_ = all_->now;
    all_->note(Note::Level::kWarning, "waiting",
               joiner.name + " cannot take the anchor from " + all_->membership.name_of(sources.front()) +
                   ": neither can be dialled; run `collab helper` on a machine that both reach, within " +
                   in_seconds(all_->config.link_grace) + " (COLLAB_LINK_GRACE) [join.no-source]",
               {{"who", json_quote(joiner.name)}});
  }
  return all_->now < later(joiner.anchor.unreachable_since_, all_->config.link_grace);
}

// ---- how long --------------------------------------------------------------------------------------

// If nothing arrives, this is two heartbeats after the joiner itself gives up, because the joiner can say why.
TimePoint AnchorInstaller::installing_until(const Member& member) const {
  const TimePoint idle_until =
      later(member.anchor.progressed_at_, all_->config.link_grace + 2 * all_->config.heartbeat);
  return std::min(idle_until, later(member.anchor.installing_since_, all_->config.round_timeout));
}

TimePoint AnchorInstaller::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [id, member] : all_->members()) {
    if (member.phase() == MemberPhase::kInstalling) next = std::min(next, installing_until(member));
  }
  return next;
}

void AnchorInstaller::on_tick() {
  std::vector<SiteId> slow;
  for (const auto& [id, member] : all_->members()) {
    if (member.phase() == MemberPhase::kInstalling && all_->now >= installing_until(member)) slow.push_back(id);
  }
  const Duration limit = all_->config.round_timeout;
  for (const SiteId id : slow) {
    if (all_->now - all_->members().at(id).anchor.installing_since_ >= limit) {
      const std::uint64_t came = all_->members().at(id).anchor.progress_;
      all_->membership.expel(id, "it did not have the anchor in place " + in_seconds(limit) +
                                     " after it was offered; " + in_megabytes(came) +
                                     " had arrived. If its line needs longer, raise COLLAB_ROUND_TIMEOUT at all sites "
                                     "and coordinators; rounds wait for it meanwhile [join.anchor-slow]");
    } else {  // it may come again, and have more luck with other sources
      all_->membership.close_link(id, "no part of the anchor has reached it for " +
                                          in_seconds(all_->config.link_grace) +
                                          " (COLLAB_LINK_GRACE) [join.anchor-stalled]");
    }
  }
}

}  // namespace collab::protocol
