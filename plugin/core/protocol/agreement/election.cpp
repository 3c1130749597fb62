#include "core/protocol/agreement/election.h"

#include <algorithm>
#include <functional>
#include <ranges>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/protocol/agreement/anchor_order.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMostTried = 64;  // most claims to try, because each try reads all records
constexpr Duration kDoubtAgain = std::chrono::seconds(1);
constexpr Duration kUndisturbed = std::chrono::seconds(3);  // before new sites restart a term: a term needs two writes
constexpr auto kCredible = [](const auto&, const auto& applicant) { return !applicant.set_aside; };
constexpr auto kHasPromised = [](const auto&, const auto& a) { return a.promised && !a.set_aside && !a.late; };
constexpr auto kHasAccepted = [](const auto&, const auto& a) { return a.accepted && !a.set_aside && !a.late; };
constexpr auto kAnswers = [](const auto&, const auto& applicant) { return !applicant.set_aside && !applicant.overdue; };

// Orders by ballot: the last term under which it was proposed, then the attempt.
bool is_newer(const wire::Proposal& a, const wire::Proposal& b) {
  const auto rank = [](const wire::Proposal& p) {
    return std::tuple(mutant(Mutant::kNewestByAttempt) ? TermId{} : std::max(p.start.term, p.settled), p.start.attempt,
                      p.settled, p.accepted);
  };
  return rank(a) > rank(b);
}

bool is_of(const wire::Proposal& proposal, const wire::Offer& anchor) {
  return (proposal.start.run == anchor.run || mutant(Mutant::kProposalOfOtherRun)) &&
         proposal.start.round.value == anchor.round.value + 1;
}

bool claims_more(const wire::Record& a, const wire::Record& b) {
  return protocol::is_newer(a.anchor, a.voters.size(), b.anchor, b.voters.size());
}

std::set<AcceptorId> acceptors_that_left(const std::vector<wire::Voter>& voters) {
  std::set<AcceptorId> left;
  for (const wire::Voter& voter : voters)
    if (voter.left) left.insert(voter.acceptor);
  return left;
}

}  // namespace

// ---- who is here -----------------------------------------------------------------------------------

std::optional<LinkId> Election::add_applicant(TimePoint now, LinkId link, const wire::Join& join) {
  std::optional<LinkId> replaced;
  for (const auto& [other, applicant] : applicants_) {
    if (applicant.join.site == join.site && other != link) replaced = other;
  }
  if (replaced) applicants_.erase(*replaced);
  // Sites move between candidates, so the wait counts from the first one that waited for a leader here.
  const bool anew = waiting_.running() && now >= later(last_gone_, config_.link_grace);
  if (applicants_.empty() && anew) forgotten_.clear();
  if (applicants_.empty() && (anew || !waiting_.running())) waiting_.start(now);
  forgotten_.erase(join.site);
  applicants_[link] = Applicant{join};
  applicants_[link].heard = now;
  return replaced;
}

bool Election::remove_applicant(TimePoint now, LinkId link) {
  if (applicants_.erase(link) == 0) return false;
  last_gone_ = now;
  return true;
}

void Election::heard(TimePoint now, LinkId link) {
  if (const auto found = applicants_.find(link); found != applicants_.end()) found->second.heard = now;
}

std::optional<TimePoint> Election::namesake_heard(const wire::Join& join) const {
  for (const auto& [link, applicant] : applicants_) {
    const bool same_process = join.process != 0 && join.process == applicant.join.process;
    if (applicant.join.site == join.site && !same_process) return applicant.heard;
  }
  return std::nullopt;
}

std::vector<LinkId> Election::silent(TimePoint now) const {
  std::vector<LinkId> links;
  for (const auto& [link, applicant] : applicants_) {
    if (now >= later(applicant.heard, config_.link_grace)) links.push_back(link);
  }
  return links;
}

bool Election::on_promise(LinkId link, const wire::Promise& promise) {
  const auto found = applicants_.find(link);
  if (found == applicants_.end() || found->second.prepared != term_) return false;
  if (promise.term != term_ && !mutant(Mutant::kPromiseOfOlderTermCounts)) return false;  // of an older term
  Applicant& applicant = found->second;
  if (decision_ || applicant.promised) return false;  // decided already: this site is told later
  applicant.promised = true;
  applicant.join.offer = promise.offer;
  if (!mutant(Mutant::kReportOfJoin)) applicant.join.report = promise.report;
  return true;
}

bool Election::on_accepted(LinkId link, const wire::Accepted& answer) {
  const auto found = decision_ && answer.term == term_ ? applicants_.find(link) : applicants_.end();
  if (found == applicants_.end()) return false;
  return std::exchange(found->second.accepted, found->second.promised) != found->second.promised;
}

std::size_t Election::trainers() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(applicants_, [](const auto& entry) { return !entry.second.join.helper; }));
}

std::vector<std::string> Election::names() const {
  std::vector<std::string> names;
  for (const auto& [link, applicant] : applicants_) names.push_back(applicant.join.site);
  return names;
}

std::vector<LinkId> Election::links() const {
  const auto keys = std::views::keys(applicants_);
  return {keys.begin(), keys.end()};
}

std::map<LinkId, wire::Join> Election::dismiss() {
  std::map<LinkId, wire::Join> all;
  for (auto& [link, applicant] : std::exchange(applicants_, {})) all.emplace(link, std::move(applicant.join));
  early_.clear();
  if (std::exchange(begun_, false)) ++term_.value;  // some may have accepted something under it
  decision_.reset();
  waiting_.stop();
  forgotten_.clear();
  short_since_ = known_last_ = doubt_at_ = kNever;
  return all;
}

// ---- what the sites here know ----------------------------------------------------------------------

template <typename Counts>
Election::Newest Election::newest_of(Counts counts) const {
  const wire::Record* best = nullptr;  // a list may hold thousands of voters: copy only one
  for (const auto& [link, applicant] : applicants_) {
    const wire::Record& record = applicant.join.report.record;
    if (!counts(link, applicant) || record.voters.empty()) continue;
    if (best == nullptr || claims_more(record, *best)) best = &record;
  }
  Newest newest = best == nullptr ? Newest{} : Newest{best->anchor, best->voters};
  std::map<std::string_view, wire::Voter*> by_name;
  for (wire::Voter& voter : newest.voters) by_name.emplace(voter.name, &voter);
  for (const auto& [link, applicant] : applicants_) {  // only some of them know which sites left
    const wire::Record& record = applicant.join.report.record;
    if (!counts(link, applicant) ||
        std::tie(record.anchor.run, record.anchor.round) != std::tie(newest.anchor.run, newest.anchor.round)) {
      continue;
    }
    if (newest.anchor.digest == Digest{}) newest.anchor.digest = record.anchor.digest;
    for (const wire::Voter& voter : record.voters) {
      if (!voter.left) continue;
      const auto same = by_name.find(voter.name);
      if (same != by_name.end() && same->second->acceptor == voter.acceptor) same->second->left = true;
    }
  }
  return newest;
}

Election::Newest Election::newest() const { return newest_of(kCredible); }

template <typename Counts>
Quorum Election::here(const std::vector<wire::Voter>& membership, Counts counts) const {
  std::map<std::string_view, AcceptorId> present;  // each name is here once
  for (const auto& [link, applicant] : applicants_) {
    if (counts(link, applicant)) present.emplace(applicant.join.site, applicant.join.report.record.acceptor);
  }
  return quorum_of(membership, [&](const wire::Voter& voter) {
    if (const auto found = present.find(voter.name); found != present.end()) {
      const bool same = found->second == voter.acceptor || mutant(Mutant::kPromiseWithoutRecords);
      return same ? Presence::kWithRecord : Presence::kByName;
    }
    if (mutant(Mutant::kForgottenCounts) && is_forgotten(voter.name)) return Presence::kWithRecord;
    return Presence::kAbsent;
  });
}

// An attempt is committed only when all its participants have accepted it. A participant that has not accepted it, and
// has promised a newer term, never will.
template <typename Counts>
Election::Decision Election::decide(Counts counts) const {
  Decision decision{newest_of(counts), {}, {}, {}};
  const wire::Proposal* newest = nullptr;
  for (const auto& [link, applicant] : applicants_) {
    if (!counts(link, applicant)) continue;
    for (const wire::Proposal& proposal : applicant.join.report.record.proposals) {
      if (!is_of(proposal, decision.newest.anchor)) continue;
      if (newest == nullptr || is_newer(proposal, *newest)) newest = &proposal;
    }
  }
  if (newest == nullptr) return decision;
  const bool ruled_out = !mutant(Mutant::kNobodyRulesOut) && std::ranges::any_of(applicants_, [&](const auto& entry) {
    const wire::Record& record = entry.second.join.report.record;
    return counts(entry.first, entry.second) && takes_part(newest->start, record.acceptor) &&
           !has_accepted(record, *newest);
  });
  if (newest->settled.value == 0 && (ruled_out || (!newest->accepted && !mutant(Mutant::kUnacceptedIsSettled)) ||
                                     mutant(Mutant::kGivenUpNotSettled))) {
    decision.given_up = newest->start;
  } else {
    decision.settled = wire::Proposal{newest->start, true, newest->slices, {}};
    decision.next_voters = newest->start.voters;
    const std::set<AcceptorId> left = acceptors_that_left(decision.newest.voters);
    for (wire::Voter& voter : decision.next_voters) {  // some may have left since it was formed
      voter.left = voter.left || left.contains(voter.acceptor);
    }
  }
  return decision;
}

// Asks the membership that decides on the next round. If that round may be decided already, asks the one after it too.
template <typename Counts>
Quorum Election::weakest(const Decision& decision, Counts counts) const {
  const Quorum now = here(decision.newest.voters, counts);
  if (!decision.settled || !now.can_promise() || mutant(Mutant::kNextMembershipNotAsked)) return now;
  return here(decision.next_voters, counts);
}

// ---- towards a result --------------------------------------------------------------------------------

TermId Election::least_term() const {
  TermId least = term_;
  for (const auto& [link, applicant] : applicants_) {
    const TermId promised = applicant.join.report.record.promised;
    if (!applicant.promised && promised >= least)
      least = TermId{promised.value + (mutant(Mutant::kTermNotExceeded) ? 0 : 1)};
  }
  return least;
}

// A voter that came after the term began, without its record.
bool Election::is_late(LinkId link, const wire::Join& join, const std::vector<wire::Voter>& membership) const {
  if (early_.count(link) != 0 || mutant(Mutant::kLateApplicantCounts)) return false;
  const auto voter = std::ranges::find(membership, join.site, &wire::Voter::name);
  return voter != membership.end() && voter->acceptor != join.report.record.acceptor;
}

// A new term is above all promised terms. A voter that comes without its record needs a new term too. If the earlier
// sites are enough, the term goes on for a moment first: one site may come again and again.
void Election::begin_where_due(TimePoint now, const Decision& known) {
  bool late = false;
  for (auto& [link, applicant] : applicants_) {
    applicant.late = begun_ && is_late(link, applicant.join, known.newest.voters);
    late = late || applicant.late;
  }
  const TermId least = std::max(least_term(), TermId{term_.value + (late ? 1 : 0)});
  const auto can_promise = [this](LinkId, const Applicant& a) {
    return !a.set_aside && !a.late && (a.promised || a.join.report.record.promised < term_);
  };
  const bool goes_on =
      begun_ && (least == term_ || (now < later(begun_at_, kUndisturbed) && weakest(known, can_promise).can_promise()));
  if (!goes_on) begin(now, least);
}

void Election::begin(TimePoint now, TermId term) {
  term_ = term;
  begun_at_ = now;
  begun_ = true;
  decision_.reset();
  early_.clear();
  for (auto& [link, applicant] : applicants_) {
    early_.insert(link);
    applicant.promised = applicant.accepted = applicant.overdue = applicant.late = false;
    applicant.asked = kNever;
  }
}

template <typename Is>
void Election::set_aside_if(Is is) {
  for (auto& [link, applicant] : applicants_) {
    const wire::Record& record = applicant.join.report.record;
    if (!record.voters.empty() && is(record)) applicant.set_aside = true;
  }
}

// A claim stays set aside only while the other sites that answer can elect without it.
void Election::count_again() {
  const auto is_set_aside = [](const auto& entry) { return entry.second.set_aside; };
  if (std::ranges::none_of(applicants_, is_set_aside) || weakest(decide(kCredible), kAnswers).can_promise()) return;
  for (auto& [link, applicant] : applicants_) applicant.set_aside = false;
}

// The sites have differed for a grace about the last agreement. Keeps the newest claim for which the sites that claim
// no more can elect, and outnumber the sites that claim more. This is safe: they need a quorum of the membership
// that they know, and that quorum would know of a later round in its own run. Another run's rounds do not concern it.
bool Election::doubt(TimePoint now) {
  std::vector<const wire::Record*> claims;
  for (const auto& [link, applicant] : applicants_) {
    const wire::Record& record = applicant.join.report.record;
    if (!applicant.set_aside && !record.voters.empty()) claims.push_back(&record);
  }
  std::ranges::sort(claims, std::greater(), [](const wire::Record* record) {
    const auto& [run, round, digest] = record->anchor;
    return std::tuple(round, round.value > 0 ? 0 : record->voters.size(), run);
  });
  if (claims.empty() || !claims_more(*claims.front(), *claims.back())) return false;
  // Sites come and go: a gap shorter than the grace does not restart the wait.
  if (doubt_at_ == kNever || now >= later(apart_last_, config_.link_grace)) doubt_at_ = later(now, config_.link_grace);
  apart_last_ = now;
  if (now < doubt_at_ || mutant(Mutant::kNobodyDoubts)) return false;
  doubt_at_ = later(now, kDoubtAgain);
  std::size_t tried = 0;
  for (std::size_t i = 1; 2 * i < claims.size() && tried < kMostTried; ++i) {  // only a minority may claim more
    if (!claims_more(*claims[i - 1], *claims[i])) continue;
    ++tried;
    const auto counts = [&](LinkId, const Applicant& applicant) {
      const wire::Record& record = applicant.join.report.record;
      return !applicant.set_aside && (record.voters.empty() || !claims_more(record, *claims[i]));
    };
    const auto answers = [&](LinkId link, const Applicant& a) { return counts(link, a) && !a.overdue; };
    const Quorum quorum = weakest(decide(counts), answers);
    if (!quorum.can_promise() || quorum.with_record <= i) continue;
    set_aside_if([&](const wire::Record& record) { return claims_more(record, *claims[i]); });
    return true;
  }
  return false;
}

// A site that claims more than this candidate led comes first, and may be the only witness. So the candidate waits for
// a second witness, or for enough of the other sites, which are on their way back.
bool Election::waits_for_former_members(TimePoint now, const Newest& known) const {
  if (!led_before_ || now >= led_before_until_ || known.anchor.run != led_before_->anchor.run) return false;
  const auto knows_more = [&](LinkId, const Applicant& applicant) {
    const wire::Offer& anchor = applicant.join.report.record.anchor;
    return anchor.run == led_before_->anchor.run && anchor.round > led_before_->anchor.round;
  };
  const auto others = [&](LinkId link, const Applicant& applicant) { return !knows_more(link, applicant); };
  const auto witnesses =
      std::ranges::count_if(applicants_, [&](const auto& entry) { return knows_more(entry.first, entry.second); });
  return witnesses == 1 && !here(led_before_->voters, others).can_promise();
}

// If its run had agreed on that round, every promising quorum would have a site that knows it (agreement.md, Proof 2).
// If the quorum would settle the same round, the claim may be true: it is dropped only if no newer run's anchor wins.
template <typename Counts>
bool Election::is_disproved(const wire::Offer& claim, Counts counts) const {
  const auto without_it = [&](LinkId link, const Applicant& applicant) {
    const wire::Offer& anchor = applicant.join.report.record.anchor;
    return counts(link, applicant) && (anchor.run != claim.run || anchor.round < claim.round);
  };
  const auto knows_less = [&](LinkId link, const Applicant& applicant) {
    const wire::Record& record = applicant.join.report.record;
    return without_it(link, applicant) && (record.voters.empty() || record.anchor.run == claim.run);
  };
  const Decision others = decide(knows_less);
  const bool may_be_so = others.settled && others.settled->start.round == claim.round;
  return !mutant(Mutant::kNothingIsDisproved) && weakest(others, knows_less).can_promise() &&
         (!may_be_so || newest_of(without_it).anchor.run == claim.run);
}

std::optional<ElectionResult> Election::advance(TimePoint now, std::vector<CoordinatorAction>& out) {
  if (applicants_.empty()) return std::nullopt;
  for (auto& [link, applicant] : applicants_) {
    applicant.overdue = !applicant.promised && now >= later(applicant.asked, config_.link_grace);
  }
  if (!decision_) count_again();
  for (;;) {  // each pass has one claim less
    Step step = try_elect_once(now, out);
    if (!step.again) return std::move(step.elected);
  }
}

Election::Step Election::try_elect_once(TimePoint now, std::vector<CoordinatorAction>& out) {
  if (decision_) {
    if (weakest(*decision_, kHasAccepted).can_promise()) return {lead({}, *decision_)};
    if (waits_for_accepted(now)) return {};
  }
  const Decision known = decide(kCredible);
  if (known.newest.voters.empty()) {  // sites that know more may be at another candidate
    if (known_last_ != kNever && now < later(known_last_, config_.link_grace)) return {};
    return {lead({}, known)};
  }
  known_last_ = now;
  const Quorum quorum = weakest(known, kAnswers);
  if (const std::string why = reason_for_new_run(now, known, quorum); !why.empty()) return {lead(why, known)};
  if (doubt(now)) return {.again = true};
  if (!quorum.can_promise() || waits_for_former_members(now, known.newest)) return {};
  begin_where_due(now, known);
  ask_for_promises(now, out);
  Decision decision = decide(kHasPromised);
  if (!weakest(decision, kHasPromised).can_promise()) {
    short_since_ = kNever;  // they may be enough once they promise
    return {};
  }
  const Claim claim = judge_claim(now, known.newest.anchor, decision.newest.anchor);
  if (claim != Claim::kStands) return {.again = claim == Claim::kSetAside};
  if (decision.settled) decision.settled->settled = term_;
  if (mutant(Mutant::kAcceptSkipped)) return {lead({}, decision)};
  begin_accept_phase(now, std::move(decision), out);
  return {};
}

// True while answers of sites that promised are on their way. Otherwise the term is over.
bool Election::waits_for_accepted(TimePoint now) {
  if (weakest(*decision_, kHasPromised).can_promise()) {
    if (now < later(decided_at_, config_.link_grace)) return true;
    for (auto& [link, a] : applicants_) a.set_aside = a.set_aside || (a.promised && !a.accepted);
  }
  begin(now, TermId{term_.value + 1});  // too many of the sites that promised have gone
  count_again();
  return false;
}

void Election::ask_for_promises(TimePoint now, std::vector<CoordinatorAction>& out) {
  for (auto& [link, applicant] : applicants_) {
    if (std::exchange(applicant.prepared, term_) == term_) continue;
    applicant.asked = now;
    out.emplace_back(Send{link, wire::Prepare{term_}});
  }
}

// `newest`: the newest anchor that any site here reports. `promised`: the newest of the sites that promised.
Election::Claim Election::judge_claim(TimePoint now, const wire::Offer& newest, const wire::Offer& promised) {
  if (is_disproved(newest, kHasPromised)) {
    set_aside_if([&](const wire::Record& r) { return r.anchor.run == newest.run && r.anchor.round >= newest.round; });
    return Claim::kSetAside;
  }
  // More promises are on their way, perhaps that of a site that knows more.
  if (is_disproved(newest, kCredible) && now < later(begun_at_, config_.link_grace)) return Claim::kOpen;
  if (std::tie(promised.run, promised.round) == std::tie(newest.run, newest.round)) return Claim::kStands;
  if (mutant(Mutant::kOlderAnchorLeads)) return Claim::kStands;
  Claim claim = Claim::kOpen;
  for (auto& [link, applicant] : applicants_) {  // only overdue sites know it; those that promised go on without them
    if (!applicant.overdue || applicant.set_aside) continue;
    applicant.set_aside = true;
    claim = Claim::kSetAside;
  }
  return claim;
}

void Election::begin_accept_phase(TimePoint now, Decision decision, std::vector<CoordinatorAction>& out) {
  for (const auto& [link, applicant] : applicants_) {
    if (!applicant.promised || applicant.late) continue;
    wire::Accept accept{term_};
    if (decision.settled && !mutant(Mutant::kAcceptWithoutProposal)) accept.proposals.push_back(*decision.settled);
    out.emplace_back(Send{link, std::move(accept)});
  }
  decision_ = std::move(decision);
  decided_at_ = now;
}

// Why the sites here may go on alone. They use a new run's name, so that their agreements cannot be mistaken for those
// of other sites.
std::string Election::reason_for_new_run(TimePoint now, const Decision& known, const Quorum& quorum) {
  if (quorum.can_promise()) {
    const wire::Join* ahead = voter_of_later_run(known);
    if (ahead == nullptr) return {};
    return missing_text(known) + ", and " + ahead->site + " brings round " + std::to_string(ahead->offer.round.value) +
           " of a later run, which went on without the others: the sites here go on from the newest anchor";
  }
  if (quorum.lacks_records()) {
    if (short_since_ == kNever || now >= later(short_last_, config_.link_grace)) short_since_ = now;
    short_last_ = now;
    if (now >= later(short_since_, config_.link_grace)) {
      return missing_text(known) + ", and too few of the sites here have kept their records; after " +
             in_seconds(config_.link_grace) + " (COLLAB_LINK_GRACE) they go on";
    }
  } else if (missing_are_forgotten(now, known)) {
    return missing_text(known) + ", and they are forgotten (collab forget, or COLLAB_FORGET_AFTER): the others go on";
  }
  return {};
}

// A voter that ended in good order has its anchor but no record. Here it would count by name for a round that its run
// has left behind, and that run's newer rounds would be lost. A round that may be committed counts as agreed on.
const wire::Join* Election::voter_of_later_run(const Decision& known) const {
  wire::Offer newest = known.newest.anchor;
  if (known.settled && !mutant(Mutant::kSettledIsPassedOver)) newest.round = known.settled->start.round;
  const wire::Join* ahead = nullptr;
  for (const auto& [link, applicant] : applicants_) {
    const wire::Join& join = applicant.join;
    const bool later = !mutant(Mutant::kLaterRunOfVoterIgnored) && join.offer.run > newest.run &&
                       is_newer(join.offer, 0, ahead ? ahead->offer : newest, 0);
    const auto is_its = [&](const wire::Voter& voter) { return voter.name == join.site; };
    if (later && join.report.record.voters.empty() && std::ranges::any_of(known.newest.voters, is_its)) ahead = &join;
  }
  return ahead;
}

// All missing sites must be forgotten: forgetting some says nothing about the others.
bool Election::missing_are_forgotten(TimePoint now, const Decision& known) const {
  if (now >= later(waiting_.since(), config_.forget_after)) return true;
  const auto is_forgotten = [this](const std::string& name) { return forgotten_.count(name) != 0; };
  return !forgotten_.empty() && std::ranges::all_of(missing(known), is_forgotten);
}

ElectionResult Election::lead(const std::string& new_run, const Decision& decision) {
  ElectionResult elected;
  elected.founded = decision.newest.voters.empty();
  elected.new_run = new_run;
  elected.term = elected.founded || !new_run.empty() ? least_term() : term_;
  const wire::Join* ahead = new_run.empty() ? nullptr : voter_of_later_run(decision);
  elected.anchor = decision.newest.anchor;
  elected.newest = ahead != nullptr ? ahead->offer : elected.anchor;
  elected.voters = decision.newest.voters;
  elected.settled = new_run.empty() ? decision.settled : std::nullopt;
  elected.next_voters = decision.next_voters;
  elected.given_up = decision.given_up;
  for (auto& [link, applicant] : applicants_) {
    for (const wire::Past& past : applicant.join.report.record.recent) elected.recent.push_back(past);
    const bool early = elected.founded || !new_run.empty() || early_.count(link) != 0;
    elected.applicants.push_back({link, std::move(applicant.join), early});
  }
  applicants_.clear();
  early_.clear();
  begun_ = false;
  decision_.reset();
  waiting_.stop();
  forgotten_.clear();
  short_since_ = doubt_at_ = kNever;
  term_ = TermId{elected.term.value + 1};
  return elected;
}

// ---- words and time --------------------------------------------------------------------------------

std::vector<std::string> Election::missing() const { return missing(decide(kCredible)); }

std::vector<std::string> Election::missing(const Decision& known) const {
  std::set<std::string_view> seen;  // here, or named already
  for (const auto& [link, applicant] : applicants_) {
    if (!applicant.overdue) seen.insert(applicant.join.site);
  }
  const std::set<AcceptorId> left = acceptors_that_left(known.newest.voters);  // perhaps since the attempt was formed
  std::vector<std::string> missing;
  const auto look = [&](const std::vector<wire::Voter>& membership) {
    for (const wire::Voter& voter : membership) {
      if (voter.left || left.contains(voter.acceptor)) continue;
      if (seen.insert(voter.name).second) missing.push_back(voter.name);
    }
  };
  look(known.newest.voters);
  if (known.settled) look(known.settled->start.voters);
  return missing;
}

std::string Election::missing_text(const Decision& known) const {
  const std::vector<std::string> gone = missing(known);
  const std::set<std::string_view> absent(gone.begin(), gone.end());
  const auto present = std::ranges::count_if(known.newest.voters,
                                             [&](const wire::Voter& voter) { return !absent.contains(voter.name); });
  return std::to_string(present) + " of the " + std::to_string(known.newest.voters.size()) +
         " sites that agreed on round " + std::to_string(known.newest.anchor.round.value) +
         " are here; missing: " + (gone.empty() ? "none" : names_text(gone, {}));
}

// A minority may wait for sites that never come. An operator who knows that can say so.
std::string Election::remedy_text(TimePoint at, const Decision& known) const {
  std::vector<std::string> names = missing(known);
  std::erase_if(names, [this](const std::string& name) { return forgotten_.count(name) != 0; });
  const TimePoint over = later(waiting_.since(), config_.forget_after);
  return forget_text(names) +
         (over == kNever ? "" : " (else they are forgotten in " + in_seconds(over - at) + ", COLLAB_FORGET_AFTER)");
}

std::string Election::waiting_text(TimePoint at) const {
  if (applicants_.empty()) return {};
  const Decision known = decide(kCredible);
  if (known.newest.voters.empty()) return "waiting for sites that know what was agreed; they were here a moment ago";
  const Quorum quorum = weakest(known, kAnswers);
  if (quorum.can_promise()) return "waiting for a leader to be elected: " + missing_text(known);
  if (quorum.lacks_records()) return "waiting for sites that have kept their records: " + missing_text(known);
  return "waiting for more than half of the sites that agreed last: " + missing_text(known) + remedy_text(at, known);
}

std::optional<std::string> Election::waiting(TimePoint now) {
  const auto waited = applicants_.empty() ? std::nullopt : waiting_.due(now);
  return waited ? std::optional(waiting_text(now) + " (" + in_seconds(*waited) + ")") : std::nullopt;
}

TimePoint Election::next_deadline(TimePoint now) const {
  if (applicants_.empty()) return kNever;
  TimePoint next = waiting_.next();
  for (const auto& [link, applicant] : applicants_) {
    next = std::min(next, later(applicant.heard, config_.link_grace));
    const TimePoint owed = later(applicant.asked, config_.link_grace);  // checked only while asking for promises
    if (!applicant.promised && !applicant.overdue && now < owed) next = std::min(next, owed);
  }
  for (const TimePoint over :
       {later(short_since_, config_.link_grace), later(waiting_.since(), config_.forget_after),
        later(known_last_, config_.link_grace), decision_ ? later(decided_at_, config_.link_grace) : kNever, doubt_at_,
        led_before_ ? led_before_until_ : kNever, begun_ ? later(begun_at_, kUndisturbed) : kNever,
        begun_ ? later(begun_at_, config_.link_grace) : kNever}) {
    if (now < over) next = std::min(next, over);
  }
  return next;
}

}  // namespace collab::protocol
