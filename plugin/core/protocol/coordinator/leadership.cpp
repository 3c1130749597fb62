#include "core/protocol/coordinator/leadership.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <ranges>
#include <set>
#include <string_view>
#include <tuple>

#include "core/base/text.h"
#include "core/protocol/agreement/anchor_order.h"
#include "core/protocol/agreement/run_name.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/mutants.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

Election new_election(TermId led, const CoordinatorConfig& config) {
  return Election({TermId{led.value + 1}, config.link_grace, config.forget_after});
}

}  // namespace

Leadership::Leadership(const CoordinatorConfig& config)
    : term_{config.term.value - 1}, election_(new_election(term_, config)) {}

RunId Leadership::next_run(RunId known) {
  const RunId own = begun_.empty() ? all_->config.fresh_run : RunId{begun_.rbegin()->value + 1};
  return *begun_.insert(run_name_after(known, own)).first;
}

bool Leadership::began_here(RunId run) const { return begun_.count(run) != 0; }

TimePoint Leadership::next_deadline() const {
  return leads_ ? later(minority_since_, all_->config.link_grace) : election_.next_deadline(all_->now);
}

// ---- while it does not lead ------------------------------------------------------------------------

void Leadership::try_to_lead() {
  if (leads_) return;
  if (std::optional<ElectionResult> elected = election_.advance(all_->now, all_->out)) lead(std::move(*elected));
}

void Leadership::apply(LinkId link, const wire::Join& join) {
  if (election_.size() >= wire::kMaxSites) {
    return all_->admission.refuse_link(link, join.site, "too many sites join at once; try again [join.too-many]");
  }
  if (const auto replaced = election_.add_applicant(all_->now, link, join)) {
    all_->out.emplace_back(CloseLink{*replaced, "replaced by a new link of " + join.site});
  }
  try_to_lead();
}

void Leadership::heard(LinkId link) {
  election_.heard(all_->now, link);
  if (election_.has(link)) all_->admission.refuse_claims_of(election_.name_of(link), {});
}

bool Leadership::from_applicant(LinkId link, const wire::Message& message) {
  if (!election_.has(link)) return false;
  const auto* promise = std::get_if<wire::Promise>(&message);
  const auto* accepted = std::get_if<wire::Accepted>(&message);
  const bool counts = (promise != nullptr && election_.on_promise(link, *promise)) ||
                      (accepted != nullptr && election_.on_accepted(link, *accepted));
  if (counts) try_to_lead();  // this looks at all answers
  return true;
}

void Leadership::remove_applicant(LinkId link) {
  if (!election_.remove_applicant(all_->now, link)) return;
  all_->generation.somebody_trained();
  try_to_lead();
}

void Leadership::on_tick() {
  for (const LinkId link : election_.silent(all_->now)) {  // the election would wait for its promise
    all_->out.emplace_back(CloseLink{link, "silent for longer than " + in_seconds(all_->config.link_grace) +
                                               " (COLLAB_LINK_GRACE) [link.silent-applicant]"});
    election_.remove_applicant(all_->now, link);
  }
  try_to_lead();
  const auto text = election_.waiting(all_->now);
  if (!text) return;
  all_->note(Note::Level::kInfo, std::string(kWait), *text);
  all_->out.emplace_back(Broadcast{election_.links(), wire::Notice{std::string(kWait), *text}});
}

// ---- what the operator says ------------------------------------------------------------------------

std::vector<std::string> Leadership::missed() const {
  return leads_ ? all_->agreed.missed_by(all_->membership.ids()) : election_.missing();
}

// Why `forget` changes nothing here. Empty if it changes something.
std::string Leadership::no_use_text(const wire::Forget& forget, const std::vector<std::string>& missed) const {
  if (leads_ && all_->anchor.gathers())
    return "the swarm has not begun, so no particular site is waited for: " + all_->anchor.gathered_text() +
           " [coordinator.forget-too-early]";
  if (!leads_ && election_.empty()) return "no site is waiting at this coordinator [coordinator.forget-nobody-waits]";
  const std::set<std::string_view> are_missed(missed.begin(), missed.end());
  std::vector<std::string> others;
  std::ranges::copy_if(forget.sites, std::back_inserter(others),
                       [&](const std::string& name) { return !are_missed.contains(name); });
  if (others.empty() && !forget.sites.empty()) return {};
  for (std::string& name : others) name = name.empty() ? "a site without a name" : name;
  const std::vector<std::string> here = leads_ ? all_->membership.names() : election_.names();
  return "no site was forgotten: no site here is waiting for " +
         (others.empty() ? "a site without a name" : join_words(others)) + "; here: " + names_text(here, {}) +
         "; missing: " + names_text(missed, {}) + " [coordinator.forget-not-missed]";
}

// Forget counts only if the sites here are too few without the missing ones, and only for missing sites. A misspelt
// name must not look like a success.
void Leadership::on_forget(LinkId link, const wire::Forget& forget) {
  const auto answer = [&](std::string_view event, std::string text) {
    all_->out.emplace_back(Send{link, wire::Notice{std::string(event), std::move(text)}});
  };
  if (leads_ && minority_since_ == kNever && !all_->anchor.gathers()) {
    return answer(kForget, "no site is waited for: " + names_text(all_->membership.names(), {}) +
                               " go on by themselves, because they are most of the sites that agreed last");
  }
  std::vector<std::string> missing = missed();
  if (const std::string why = no_use_text(forget, missing); !why.empty()) return answer(kRefused, why);
  const std::string whom = names_text(forget.sites, {});
  all_->note(Note::Level::kWarning, std::string(kForget),
             "collab forget: no site waits for " + whom + " any longer [coordinator.forgotten]",
             {{"who", json_list(forget.sites)}});
  if (leads_) step_down("the missing sites are forgotten");
  election_.forget(forget.sites);
  try_to_lead();
  std::erase_if(missing, [&](const std::string& name) { return election_.is_forgotten(name); });
  if (leads_)
    return answer(kForget, names_text(all_->membership.names(), {}) + " go on without " + whom + ", as another run");
  answer(kForget, missing.empty() ? whom + " is no longer waited for: the sites here go on in a moment"
                                  : whom + " is no longer waited for, but others are: " + names_text(missing, {}) +
                                        " (start them again, or forget them, too)");
}

// ---- from the result of an election -----------------------------------------------------------------

void Leadership::lead(ElectionResult elected) {
  leads_ = true;
  founded_ = elected.founded;
  term_ = elected.term;
  all_->generation.begin_term();
  all_->round.begin_term(term_);
  if (!founded_) inherit(elected);
  for (const ElectionResult::Applicant& applicant : elected.applicants) {
    if (applicant.early) early_.insert(applicant.link);
  }
  // The first trainer that is let in sets the model and the settings for all. So voters come first.
  std::ranges::stable_partition(elected.applicants,
                                [&](const auto& applicant) { return elected.is_of_a_voter(applicant); });
  for (const ElectionResult::Applicant& applicant : elected.applicants) {
    if (elected.disproves(applicant)) {
      const bool kept = elected.is_of_a_voter(applicant) && disproved_.size() < wire::kMaxSites;
      if (kept) disproved_.insert(applicant.join.report.record.acceptor);
      refuse_disproved(applicant.link, applicant.join, elected.round());
    } else {
      all_->admission.on_join(applicant.link, applicant.join);
    }
  }
}

void Leadership::refuse_disproved(LinkId link, const wire::Join& join, RoundId agreed) {
  all_->admission.refuse_link(link, join.site,
                              "its record says that round " + std::to_string(join.report.record.anchor.round.value) +
                                  " was agreed on; the sites that decided on round " + std::to_string(agreed.value) +
                                  " still have their records, and accepted nothing later: the record is damaged or "
                                  "belongs to another swarm; move "
                                  "what is in COLLAB_STATE_DIR away and start again [join.record-disproved]");
}

// The result holds what counts of the past: the newest anchor with its membership, and what may have been committed in
// the round after it.
void Leadership::inherit(const ElectionResult& elected) {
  wire::Offer newest = elected.newest;
  const bool forks = !elected.new_run.empty();
  all_->agreed.inherit(elected);
  all_->note(forks ? Note::Level::kWarning : Note::Level::kInfo, "coordinator",
             (forks ? elected.new_run + " under another run's name; " : "") + "this coordinator leads term " +
                 std::to_string(term_.value) + ", elected by " + std::to_string(elected.applicants.size()) +
                 " sites, at " + anchor_text(newest.run, newest.round),
             {{"term", std::to_string(term_.value)}});
  const auto tell = [this](const wire::StartAttempt& start, const std::string& what) {
    all_->note(
        Note::Level::kInfo, "coordinator",
        "attempt " + std::to_string(start.attempt.value) + " of round " + std::to_string(start.round.value) + what);
  };
  if (elected.given_up && !forks) {  // by enough sites that would know
    tell(*elected.given_up, " is given up: not all had accepted it, so it was not committed");
    all_->round.keep_slices(elected.given_up->slices);
  }
  if (elected.settled && !mutant(Mutant::kSettledNotCommitted)) {
    const wire::StartAttempt& start = elected.settled->start;
    tell(start, " is committed, because its leader may have committed it already");
    all_->agreed.settle(elected);
    newest = {start.run, start.round, {}};
  }
  all_->anchor.inherit(elected, newest);
}

// ---- stepping down ---------------------------------------------------------------------------------

// A leader that a majority elected is not deposed by a stranger, nor by a site that claims to be a voter which is here.
bool Leadership::hear_of(LinkId link, const wire::Join& join) {
  const wire::Record& record = join.report.record;
  const bool voter = all_->agreed.is_acceptor_of(record.acceptor, join.site);
  const auto& anchor = all_->anchor.record();
  const bool ahead = anchor && record.anchor.run == anchor->run && record.anchor.round > anchor->round;
  const bool newer_term = record.promised > term_ && voter;
  if (ahead && !voter) {  // it will find its own leader at another candidate
    all_->out.emplace_back(CloseLink{
        link,
        join.site + " knows of a later round than this leader, but is not a voter here [coordinator.later-round]"});
    return false;
  }
  if (ahead && !newer_term && disproved_.contains(record.acceptor)) {
    refuse_disproved(link, join, anchor->round);
    return false;
  }
  if ((newer_term || ahead) && !may_depose(record.acceptor)) {
    all_->out.emplace_back(
        CloseLink{link, join.site + " made leaders here step down " + std::to_string(kMaxRepeats) + " times in " +
                            in_seconds(all_->config.link_grace) +
                            " (COLLAB_LINK_GRACE); it may come again after that [coordinator.deposed]"});
    return false;
  }
  if ((newer_term && !mutant(Mutant::kNewerTermIgnored)) || ahead) {
    const Election::Newest led{{anchor ? anchor->run : RunId{}, anchor ? anchor->round : RoundId{}, {}},
                               list_of(all_->agreed.voters())};
    step_down(join.site +
              (ahead ? " knows of a later round" : " follows term " + std::to_string(record.promised.value)));
    if (ahead) election_.stepped_down(led, all_->now);
  } else if (founded_ && is_older(join)) {
    step_down(join.site + " belongs to an older swarm than the one that has just begun here");
  }
  return true;
}

// Each deposition costs the others an election and the attempt in flight.
bool Leadership::may_depose(AcceptorId voter) {
  const TimePoint now = all_->now;
  const double a_second = kMaxRepeats / std::chrono::duration<double>(all_->config.link_grace).count();
  std::erase_if(depositions_, [&](const auto& entry) { return entry.second.left(now) >= kMaxRepeats; });  // as if new
  return depositions_.try_emplace(voter, kMaxRepeats, a_second).first->second.allow(now).has_value();
}

// A leader that founded a swarm, because no site knew better, gives way to a swarm that existed before. If both have
// trained, it gives way only to one that has agreed on far more. Otherwise this swarm stays, and the other's sites come
// over to it.
bool Leadership::is_older(const wire::Join& join) const {
  const wire::Offer& theirs = join.report.record.anchor;
  if (join.report.record.voters.empty() || mutant(Mutant::kFounderStays)) return false;
  const auto newest = all_->anchor.newest();
  if (!newest) return true;
  const auto& [run, agreed] = *newest;
  if (run == theirs.run) return false;
  if (agreed.value == 0) return true;
  // What was agreed here is not given up for a membership whose sites are not here, or because one site of many says
  // so.
  const std::vector<wire::Voter>& voters_there = join.report.record.voters;
  std::size_t from_there = 1;
  std::size_t others = 0;
  std::size_t by_name = 0;
  for (const wire::Voter& voter : voters_there) by_name += voter.left || voter.name == join.site ? 1 : 0;
  for (const auto& [id, member] : all_->members()) {
    if (member.name == join.site) continue;
    const auto voter = std::ranges::find(voters_there, member.name, &wire::Voter::name);
    const bool theirs_too = voter != voters_there.end() && member.join.report.record.anchor.run == theirs.run;
    from_there += theirs_too ? 1 : 0;
    others += !theirs_too && !member.helper ? 1 : 0;
    by_name += theirs_too && !voter->left ? 1 : 0;
  }
  return is_far_ahead(theirs.round, agreed) && 2 * by_name > voters_there.size() && from_there >= others;
}

void Leadership::judge_quorum() {
  if (all_->agreed.voters().empty() || all_->membership.quorum_here().can_accept()) {
    minority_since_ = kNever;
    return;
  }
  if (all_->membership.quorum_at_the_next_term().can_accept()) {
    return step_down("a new term begins, in which sites without their records count");
  }
  minority_since_ = std::min(minority_since_, all_->now);
  if (all_->now < later(minority_since_, all_->config.link_grace)) return;
  step_down(all_->membership.quorum_text(all_->membership.ids()));
}

void Leadership::step_down(const std::string& reason) {
  const std::string text = "this coordinator no longer leads: " + reason + " [coordinator.steps-down]";
  all_->note(Note::Level::kWarning, "coordinator", text, {{"term", std::to_string(term_.value)}});
  all_->membership.close_all_links(text);
  all_->admission.close_claims(text);
  stop();
}

void Leadership::stop() {
  all_->forget_swarm();
  leads_ = founded_ = false;
  election_ = new_election(term_, all_->config);
}

void Leadership::forget() {
  early_.clear();
  minority_since_ = kNever;
}

}  // namespace collab::protocol
