#include "core/protocol/coordinator/anchor_choice.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/agreement/anchor_order.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {
namespace {

// Ranks the sites that hold no anchor; the highest claim wins.
enum class Claim : std::uint8_t { kNone, kResumed, kNamed };

Claim claim_of(const Member& member, const std::string& named) {
  if (member.name == named) return Claim::kNamed;
  return member.join.resumed ? Claim::kResumed : Claim::kNone;
}

std::string text_of(Claim claim) {
  switch (claim) {
    case Claim::kNone: return "the lowest site";
    case Claim::kResumed: return "the lowest of the sites that had loaded a state";
    case Claim::kNamed: return "named by COLLAB_INIT_FROM";
  }
  return "unknown";
}

}  // namespace

wire::Offer offer_of(const AnchorRecord& anchor) {
  return {anchor.run, anchor.round, anchor.digest.value_or(Digest{})};
}

std::string anchor_text(RunId run, RoundId round) {
  return "run " + std::to_string(run.value) + " round " + std::to_string(round.value);
}

Digest most_reported(const std::map<SiteId, Digest>& said) {
  std::map<Digest, std::size_t> votes;
  for (const auto& [site, digest] : said) ++votes[digest];
  const Digest* right = nullptr;
  for (const auto& [site, digest] : said) {  // ascending: in a tie, the lowest site's digest stands
    if (right == nullptr || votes[digest] > votes[*right]) right = &digest;
  }
  COLLAB_CHECK(right != nullptr, "a majority needs voters");
  return *right;
}

std::optional<AnchorChoice::Name> AnchorChoice::newest() const {
  return anchor_ ? Name(anchor_->run, anchor_->round) : wanted_;
}

// Takes over what was agreed, as far as this leader's electors know.
void AnchorChoice::inherit(const ElectionResult& elected, const wire::Offer& newest) {
  gathered_ = true;
  if (!elected.new_run.empty()) {  // from the newest anchor that they have
    begins_from_ = {newest.run, newest.round};
    return;
  }
  std::map<SiteId, Digest> held;
  for (const bool of_voters : {true, false}) {  // other sites' word counts only if no voter holds it
    for (const ElectionResult::Applicant& applicant : elected.applicants) {
      const wire::Offer& offer = applicant.join.offer;
      if (std::tie(offer.run, offer.round) != std::tie(newest.run, newest.round)) continue;
      if (elected.is_of_a_voter(applicant) != of_voters) continue;
      held[SiteId{static_cast<std::uint32_t>(held.size())}] = offer.digest;
    }
    if (!held.empty()) break;
  }
  const CommittedRounds& history = all_->agreed.history();
  if (!held.empty()) {  // it may have been damaged since: the sites compare it before the next round
    anchor_ = AnchorRecord{newest.run, newest.round, most_reported(held)};
  } else if (std::ranges::any_of(elected.applicants, [&](const ElectionResult::Applicant& applicant) {
               const wire::Proposal* missed = history.missed_by(applicant.join.offer, applicant.join.report);
               return missed != nullptr && missed->start.round == newest.round && history.has_right_mean(*missed);
             })) {  // a site that missed the commit is sent it, and will hold the anchor soon
    anchor_ = AnchorRecord{newest.run, newest.round, {}};
  } else {
    wanted_ = {newest.run, newest.round};
  }
}

void AnchorChoice::committed(RoundId round, bool moved) {
  anchor_->round = round;
  if (moved) anchor_->digest.reset();
}

void AnchorChoice::lose() {
  all_->note(Note::Level::kWarning, "anchor",
             "no site holds the anchor of round " + std::to_string(anchor_->round.value) +
                 " any more; the swarm takes the best anchor that the sites here bring [join.anchor-lost]");
  if (anchor_->round.value > 0) wanted_ = {anchor_->run, anchor_->round};
  drop();
  start_gathering();
}

// Also discards the attempt at the round after this anchor, as it belongs to the anchor's run.
void AnchorChoice::drop() {
  all_->round.discard_exchange();
  anchor_.reset();
  all_->installer.all_wait();
}

void AnchorChoice::forget() {
  anchor_.reset();
  wanted_.reset();
  begins_from_.reset();
  gathered_ = false;
  gathering_.stop();
}

// ---- an anchor that was agreed on, but is not here -------------------------------------------------

// After a loss, rounds that were committed are not undone lightly. The sites that hold the newest one get the grace to
// come back before the swarm starts from less.
bool AnchorChoice::wanted_missed() const {
  return wanted_ && std::none_of(all_->members().begin(), all_->members().end(), [this](const auto& entry) {
           const wire::Offer offer = entry.second.brought();
           return std::pair(offer.run, offer.round) == *wanted_;
         });
}

// False if no missing site is left that could bring it.
bool AnchorChoice::wanted_may_come() const {
  const auto is_missed = [this](const auto& entry) {
    return !entry.second.left && all_->members().count(entry.first) == 0;
  };
  return std::ranges::any_of(all_->agreed.voters(), is_missed) ||
         std::ranges::any_of(all_->members(), [](const auto& entry) { return entry.second.anchor.recommitted(); });
}

bool AnchorChoice::anybody_resumes() const {
  return std::any_of(all_->members().begin(), all_->members().end(),
                     [](const auto& entry) { return entry.second.brought().run.value != 0; });
}

// The agreed anchor is lost. The swarm starts another run from the newest anchor that is left, even if the previous run
// was founded here.
void AnchorChoice::give_up_wanted(const std::string& why) {
  all_->note(Note::Level::kWarning, "anchor",
             "no site has brought back round " + std::to_string(wanted_->second.value) + why +
                 "; the swarm goes on without it [join.round-lost]");
  wanted_.reset();
  gathered_ = gathered_ || anybody_resumes();
  wire::Offer newest;
  for (const auto& [id, member] : all_->members()) {
    const wire::Offer offer = member.brought();
    if (offer.run.value == 0 || (newest.run.value != 0 && !is_newer(offer, 0, newest, 0))) continue;
    newest = offer;
    begins_from_ = {newest.run, newest.round};
  }
}

// ---- whose model it is, if no site holds an anchor -------------------------------------------------

// How many sites the coordinator itself asks for.
std::uint32_t AnchorChoice::least_sites() const {
  return all_->generation.generations().follows() ? 1 : all_->config.min_sites;
}

std::uint32_t AnchorChoice::sites_wanted() const {
  std::uint32_t sites = least_sites();
  for (const auto& [id, member] : all_->members()) {
    if (!member.helper) sites = std::max(sites, member.join.expected_sites);
  }
  return sites;
}

std::pair<std::string, std::string> AnchorChoice::init_from() const {
  if (!all_->config.init_from.empty()) return {all_->config.init_from, "the coordinator"};
  for (const auto& [id, member] : all_->members()) {
    if (!member.helper && !member.join.init_from.empty()) return {member.join.init_from, member.name};
  }
  return {};
}

// A site that holds an anchor, or joins a swarm that has one, may name any site: the name comes too late to matter.
std::string AnchorChoice::init_from_difference(const wire::Join& join) const {
  const bool late = !all_->leadership.leads() || anchor_ || wanted_ || join.offer.run.value != 0;
  if (late || join.helper || join.init_from.empty() || anybody_resumes()) return {};
  const auto [named, by] = init_from();
  if (named.empty() || join.init_from == named) return {};
  return "COLLAB_INIT_FROM: this site has " + join.init_from + ", the swarm (from " + by + ") has " + named +
         "; name the same site at all sites, or set it at one site only [join.init-from-mismatch]";
}

// A later generation waits only for sites that have left for it. The first generation does not wait for sites that have
// finished it.
bool AnchorChoice::init_from_missed() const {
  if (all_->generation.generations().current() > 1) return false;
  const std::string named = init_from().first;
  const auto is_named = [&](const auto& waits) { return waits.second.join.site == named; };
  if (std::ranges::any_of(all_->generation.generations().waiting(), is_named))
    return false;  // the named site waits for a later generation
  const Member* site = named.empty() ? nullptr : all_->membership.find_by_name(named);
  return !named.empty() && (site == nullptr || site->helper) && !anybody_resumes();
}

// A state that a script had loaded is not dropped without a message.
void AnchorChoice::notify_not_used(Member& member, const std::string& why, const std::string& or_else) {
  const wire::Offer offer = member.brought();
  if (member.helper || !member.join.resumed || offer.run.value != 0 || anchor_->digest == offer.digest) return;
  if (!all_->installer.mark_not_used(member)) return;  // it was told before
  const std::string text = "the swarm does not start from the state that " + member.name + " had loaded: " + why +
                           ". To begin from the model of " + member.name +
                           ", start all sites with COLLAB_INIT_FROM=" + member.name + or_else +
                           " [join.state-not-used]";
  all_->note(Note::Level::kWarning, "state-not-used", text, {{"who", json_quote(member.name)}});
  all_->send(member, wire::Notice{"state-not-used", text});
}

void AnchorChoice::notify_late_joiner(Member& joiner) {
  notify_not_used(
      joiner, "the swarm already had an anchor, of " + anchor_text(anchor_->run, anchor_->round) + ", when it joined",
      "; or let the first agreement wait for all of them, with COLLAB_MIN_SITES=N for N sites");
}

// If fresh sites brought different parameters, the log says why this site's were taken.
void AnchorChoice::report_choice(const Member& best, bool newborn) {
  const auto differs = [this](const auto& entry) {
    const wire::Offer offer = entry.second.brought();
    return !entry.second.helper && offer.run.value == 0 && anchor_->digest != offer.digest;
  };
  const std::string taken = anchor_text(anchor_->run, anchor_->round);
  const std::string claim = text_of(claim_of(best, init_from().first));
  const bool chosen = newborn && std::ranges::any_of(all_->members(), differs);
  all_->note(Note::Level::kInfo, "anchor",
             std::to_string(all_->members().size()) + (all_->members().size() == 1 ? " site is" : " sites are") +
                 " here; the anchor of " + taken + " is taken from " + best.name +
                 (chosen ? ", " + claim + ", because the sites' parameters differ" : ""));
  const std::string why =
      best.name + (newborn ? ", " + claim + ", has the parameters of round 0" : " holds an anchor, of " + taken);
  for (auto& [id, member] : all_->members()) notify_not_used(member, why, "");
}

// The anchor that the electing sites know; otherwise the newest that any site offers, in the election's order. When a
// swarm is founded, no site knows what was agreed on, and the run that began last stays. If all sites are fresh, their
// claims decide; among equals, the lowest site wins.
Member& AnchorChoice::best() const {
  const auto is_better = [this, named = init_from().first](const Member& a, const Member& b) {
    const wire::Offer of_a = a.brought();
    const wire::Offer of_b = b.brought();
    const std::optional<Name>& known = wanted_ ? wanted_ : begins_from_;
    const auto is_known = [&](const wire::Offer& offer) { return known && Name(offer.run, offer.round) == *known; };
    if (wanted_ || is_known(of_a) || is_known(of_b)) return is_known(of_a) && !is_known(of_b);
    if (of_a.run.value == 0 && of_b.run.value == 0) return claim_of(a, named) > claim_of(b, named);
    if (all_->leadership.founded()) return std::tie(of_a.run, of_a.round) > std::tie(of_b.run, of_b.round);
    return is_newer(of_a, 0, of_b, 0);
  };
  Member* best = nullptr;
  for (auto& [id, member] : all_->members()) {
    if (member.helper && member.brought().run.value == 0) continue;
    if (best == nullptr || is_better(member, *best)) best = &member;
  }
  COLLAB_CHECK(best != nullptr, "an anchor is chosen among sites that bring one");
  return *best;
}

// The latest run that any site here knows.
RunId AnchorChoice::latest_run() const {
  RunId latest;
  for (const auto& [id, member] : all_->members()) {
    latest = std::max({latest, member.brought().run, member.anchor.run()});
  }
  return latest;
}

void AnchorChoice::choose() {
  if (anchor_) return;
  // A helper holds what it was given, or nothing that a site would train from.
  const bool brought = all_->membership.sites_here() > 0 || anybody_resumes();
  // No site is still on its way here from the previous generation.
  const bool complete = all_->generation.generations().expected_here(all_->now).empty();
  const bool all_here =
      (gathered_ || all_->membership.sites_here() >= sites_wanted()) && complete && !init_from_missed();
  if (wanted_missed() && !wanted_may_come()) give_up_wanted(": no missing site could bring it");
  if (!brought && !wanted_) return gathering_.stop();  // the time runs from the first site that trains
  if (!brought || (wanted_ ? wanted_missed() : !all_here)) {
    if (!gathers()) start_gathering();
    return;
  }
  gathered_ = true;
  gathering_.stop();
  all_->round.begin_anchor();
  Member& source = best();
  wire::Offer chosen = source.brought();
  const bool newborn = chosen.run.value == 0;
  const bool goes_on = wanted_.has_value();  // an agreed anchor: it goes on with the sites that agreed on it
  wanted_.reset();
  begins_from_.reset();
  if (!goes_on) {
    if (newborn || !mutant(Mutant::kSameRunName)) chosen.run = all_->leadership.next_run(latest_run());
    all_->installer.begin_run(chosen.run);
    // Helpers may be one peer under many names, so only a round makes them voters, unless only helpers are here.
    Voters founders;
    const bool helpers_alone = all_->membership.sites_here() == 0;
    for (const auto& [id, member] : all_->members()) {
      if (helpers_alone || !member.helper) founders.emplace(id, voter_of(member));
    }
    all_->agreed.begin_run(source.brought(), chosen.run, std::move(founders));
  }
  anchor_ = AnchorRecord{chosen.run, chosen.round, chosen.digest};
  all_->installer.begin_from(source, chosen);
  report_choice(source, newborn);
}

// ---- gathering -------------------------------------------------------------------------------------

void AnchorChoice::start_gathering() {
  gathering_.start(all_->now);
  all_->admission.start_gathering();
}

std::string AnchorChoice::gathered_text() const {
  const std::vector<std::string> on_their_way = all_->generation.generations().expected_here(all_->now);
  return std::to_string(all_->membership.sites_here()) + " of " + std::to_string(sites_wanted()) + " sites are here (" +
         join_words(all_->membership.names()) + all_->admission.refused_text() + ")" +
         (on_their_way.empty() ? "" : ", on their way: " + join_words(on_their_way));
}

std::string AnchorChoice::waiting_text() const {
  return "round 0: " + std::to_string(all_->membership.sites_here()) + " of " + std::to_string(sites_wanted()) +
         " sites are here" + (init_from_missed() ? "; waiting for " + init_from().first + " (COLLAB_INIT_FROM)" : "");
}

void AnchorChoice::give_up_gathering(const std::string& reason) {
  gathering_.stop();
  while (!all_->members().empty()) all_->membership.expel(all_->members().begin()->first, reason);
}

// Refuses the sites for which `asks` holds. The others go on, unless none of them trains: then all are refused.
template <class Asks>
void AnchorChoice::refuse(bool all, Asks asks, const std::string& reason) {
  std::vector<SiteId> sites;
  for (const auto& [id, member] : all_->members()) {
    if (!member.helper && asks(member)) sites.push_back(id);
  }
  if (all || sites.size() == all_->membership.sites_here()) return give_up_gathering(reason);
  for (const SiteId id : sites) all_->membership.expel(id, reason);
}

TimePoint AnchorChoice::next_deadline() const {
  if (!gathers()) return kNever;
  const Duration limit = wanted_missed() ? all_->config.link_grace : all_->config.join_timeout;
  return std::min(gathering_.next(), later(gathering_.since(), limit));
}

void AnchorChoice::on_tick() {
  if (!gathers()) return;
  const auto waited = gathering_.due(all_->now);
  if (wanted_missed()) return wait_for_wanted(waited);
  if (all_->now - gathering_.since() >= all_->config.join_timeout) {
    while (gathers() && !end_gathering()) {
    }
  } else if (init_from_missed()) {
    wait_for_named(waited);
  } else if (waited) {
    all_->note(Note::Level::kInfo, "waiting",
               "round 0: " + gathered_text() + "; waiting for the others (" + in_seconds(*waited) + ")");
  }
}

// The time to gather is over. True if the sites here begin; otherwise some are refused. An unmet demand of a site
// refuses only the sites that make it. An unmet demand of the coordinator refuses all.
bool AnchorChoice::end_gathering() {
  const std::string limit = in_seconds(all_->config.join_timeout);
  const std::string few = "only " + gathered_text() + " after " + limit + " (COLLAB_JOIN_TIMEOUT)";
  const auto go_on = [&](const std::string& how) {
    all_->note(Note::Level::kWarning, "anchor", few + how + " [join.few-sites]");
    gathered_ = true;
  };
  if (anybody_resumes()) {
    go_on("; they go on from what they have brought");
    return true;
  }
  if (init_from_missed()) {
    const auto names_it = [](const Member& member) { return !member.join.init_from.empty(); };
    refuse(!all_->config.init_from.empty(), names_it,
           "round 0 has to start from the parameters of " + named_text() +
               ", but no site of that name has joined within " + limit + " (COLLAB_JOIN_TIMEOUT); " + gathered_text() +
               ": start that site, or name another one [join.init-from-missing]");
    return false;
  }
  // A site that was lost before the swarm began does not hold up the others for good. They cannot be a majority in two
  // places.
  const std::size_t here = all_->membership.sites_here();
  if (2 * here > sites_wanted()) {
    go_on("; they are a majority, so they begin");
    return true;
  }
  refuse(
      2 * here <= least_sites(), [here](const Member& member) { return 2 * here <= member.join.expected_sites; },
      few + ": start the others (or, if each site is a world of its own, lower COLLAB_MIN_SITES) [join.too-few-sites]");
  return false;
}

void AnchorChoice::wait_for_wanted(std::optional<Duration> waited) {
  const Duration limit = all_->config.link_grace;
  if (all_->now - gathering_.since() >= limit) {
    return give_up_wanted(" within " + in_seconds(limit) + " (COLLAB_LINK_GRACE)");
  }
  if (!waited) return;
  all_->note(
      Note::Level::kInfo, "waiting",
      "no site has brought back round " + std::to_string(wanted_->second.value) + " yet (" + in_seconds(*waited) + ")");
}

std::string AnchorChoice::named_text() const {
  const auto [named, by] = init_from();
  return named + " (COLLAB_INIT_FROM, from " + by + ")";
}

void AnchorChoice::wait_for_named(std::optional<Duration> waited) {
  if (!waited) return;
  const std::string text =
      "round 0: " + gathered_text() + "; waiting for " + named_text() + " (" + in_seconds(*waited) + ")";
  all_->note(Note::Level::kInfo, std::string(kWait), text);
  all_->membership.broadcast(wire::Notice{std::string(kWait), text});
}

}  // namespace collab::protocol
