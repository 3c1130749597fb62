#include "core/runtime/site_lead.h"

#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "core/protocol/formatting.h"

namespace collab {

// ---- the calls of all ranks ------------------------------------------------------------------------

CallResult SiteLead::join(const std::vector<RankReport>& reports) {
  CallResult mine;
  if (Status same = same_model_check_.check(reports); !same.ok()) return failed(mine, same);
  const Result<SealedAnchor> joined = leader_.join();
  if (joined.status().code() == StatusCode::kOutdated) {
    mine.alone = true;
    why_alone_ = joined.status().message();
    return mine;
  }
  if (!joined.ok()) return failed(mine, joined.status());
  mine.change = options_.config.overlap ? ParameterChange::kTakeCopy : ParameterChange::kToAnchor;
  mine.round = joined->round;
  mine.period = node()->period();
  mine.alone = node()->budget_over();
  state_ = joined->digest;
  return mine;
}

CallResult SiteLead::call(const std::vector<RankReport>& reports, bool behind, TimePoint called) {
  same_model_check_.warn(reports);
  std::uint64_t samples = 0;
  for (const RankReport& report : reports) samples += report.samples;
  work_.count(samples);
  if (rounds_.in_flight()) {
    CallResult merged = result_of(leader_.end_round(called), false);
    // The steps since the trigger are dropped together with the unfit delta.
    if (merged.took_anchor) work_.drop(rounds_.schedule().steps_since_round());
    return merged;
  }
  pace_.triggered(called, rounds_.steps());
  CallResult mine;
  mine.round = rounds_.round();
  if (node()->budget_over()) {  // spent on joiners since the last round
    mine.alone = budget_is_over();
    mine.leaving = leaving_;
    return mine;
  }
  if (behind && !leaving_) {
    mine = failed(mine, leader_.start_round(trigger(), called));
    mine.in_flight = mine.ok();
    return mine;
  }
  const TimePoint start = clock_.now();
  const Result<RoundReport> report = leader_.round(trigger());
  leaving_ = leaving_ || termination_requested();  // requested meanwhile: this was the last round
  mine = result_of(report, leaving_);
  mine.stays_due = asks_again(mine, clock_.now() - start);
  return mine;
}

void SiteLead::call_over(TimePoint called) {
  const TimePoint now = clock_.now();
  pace_.stood_still(now - called, leader_.take_merging());
  if (!rounds_.in_flight()) pace_.round_over(now, !rounds_.skipped());
}

// The script may have replaced the parameters on some ranks only, so the ranks ask each other first.
CallResult SiteLead::keeps_out(const std::vector<RankReport>& reports) const {
  std::vector<std::string> ranks;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].samples == RankReport::kKeepsOut) ranks.push_back(std::to_string(rank));
  }
  CallResult mine;
  mine.round = rounds_.round();
  mine.skipped = !ranks.empty();
  if (mine.skipped) {
    log_warning("site " + options_.site + " leaves without a last round: since the last step, its parameters were " +
                "replaced by other values (a state was loaded, or an average of weights copied in, at its rank " +
                protocol::join_words(ranks) +
                "). These values stay as they are, and no other site gets them; the steps since round " +
                std::to_string(rounds_.round().value) + " are in no average. To have those " +
                "averaged, call torch_collab.synchronize() on every rank before loading [round.values-replaced]");
  }
  return mine;
}

// Sites may be one step apart, for example after a step that GradScaler skipped. Then the others may be in a collective
// each time a period ends here, and a round is made only if this site asks again one step later. It does so a few times
// in a row at most, because each attempt is a wait (shorter than a grace).
bool SiteLead::asks_again(const CallResult& result, Duration waited) {
  constexpr std::uint32_t kMost = 4;
  const Duration limit = std::min<Duration>(options_.config.link_grace, options_.config.round_timeout);
  if (!result.skipped) asked_again_ = 0;
  return result.skipped && !result.leaving && waited < limit && asked_again_++ < kMost;
}

protocol::Trigger SiteLead::trigger() const { return work_.trigger(rounds_.steps(), pace_.measured()); }

bool SiteLead::budget_is_over() const { return node()->budget_over() && !leaving_ && !ends_; }

CallResult SiteLead::result_of(const Result<RoundReport>& report, bool leaving) {
  CallResult mine;
  if (report.status().code() == StatusCode::kOutdated) {
    mine.alone = true;
    mine.round = rounds_.round();
    why_alone_ = report.status().message();
    return mine;
  }
  if (!report.ok()) return failed(mine, report.status());
  mine.change = report->change;
  mine.range = report->range;
  mine.took_anchor = !report->unfit.empty();
  mine.round = report->round;
  mine.skipped = !report->skipped.empty() || nothing_was_averaged(*report);
  mine.leaving = leaving;
  mine.period = report->period;
  mine.alone = budget_is_over();
  state_ = report->state;
  return mine;
}

// True although this site has trained; its steps count later.
bool SiteLead::nothing_was_averaged(const RoundReport& report) const {
  const std::uint64_t steps = rounds_.steps_to_count();
  if (!report.contributors.empty() || steps == 0) return false;
  log_warning(
      "round " + std::to_string(report.round.value) + " averaged nothing, although this site has trained " +
      std::to_string(steps) + (steps == 1 ? " step" : " steps") +
      " since the round before: no site contributed. If that round was skipped in mid-exchange, the steps count in the "
      "next one. Otherwise look at what the script passes to torch_collab.count_samples(): a step without samples has "
      "no weight [round.no-samples]");
  return true;
}

CallResult SiteLead::failed(CallResult result, const Status& status) {
  if (status.ok()) return result;
  result.error = status.message();
  failure_ = status.code();
  return result;
}

// ---- between calls ---------------------------------------------------------------------------------

std::uint64_t SiteLead::step_of_round() {
  return leaving_ ? rounds_.schedule().step_to_announce_early() : rounds_.schedule().step_to_announce(clock_.now());
}

std::uint64_t SiteLead::step_of_merge() { return round_is_over() ? rounds_.schedule().step_to_announce_early() : 0; }

bool SiteLead::round_is_over() {
  const bool over = leaving_ || leader_.round_is_over();
  if (!over) log_delay();
  return over;
}

void SiteLead::log_delay() {
  const TimePoint now = clock_.now();
  if (!rounds_.schedule().overdue(now) || !delay_log_limit_.allow(now)) return;
  node()->warn_of_late_round("rounds take longer than COLLAB_SYNC_EVERY" +
                             std::string(rounds_.fragments() > 1 ? " and COLLAB_FRAGMENTS leave" : "") + ", " +
                             rounds_.schedule().period_text());
}

// ---- the end ---------------------------------------------------------------------------------------

void SiteLead::leave(std::uint32_t next_generation) {
  part(leaving_               ? asked_to_end()
       : next_generation != 0 ? "it goes on to generation " + std::to_string(next_generation)
                              : std::string("the training script has ended"),
       next_generation);
}

void SiteLead::continue_alone() {
  if (why_alone_.empty()) why_alone_ = kBudgetOver;
  log_warning(why_alone_ + ": this site leaves the swarm and trains on alone [join.alone]");
  part(why_alone_, 0);
}

// The node is gone afterwards, but its count of egress is kept.
void SiteLead::part(const std::string& reason, std::uint32_t next_generation) {
  if (node() != nullptr) egress_spent_ = std::max(egress_spent_, node()->egress_spent());
  leader_.leave(reason, next_generation);
}

// Logged at each round that is due while this site trains alone, so that the site does not look healthy. A spent budget
// is logged only once.
void SiteLead::log_training_alone() {
  const TimePoint now = clock_.now();
  if (why_alone_ == kBudgetOver || !rounds_.schedule().would_be_due(now)) return;
  log_warning("a round is due, but " + why_alone_ + ": nothing is averaged, this site trains alone [round.alone]");
  rounds_.pass(now);
}

void SiteLead::add_to(SessionStatus& status) const {
  status.state = state_;
  status.egress_spent = egress_spent_;
  if (node() == nullptr) return;
  status.bytes_sent = node()->bytes_sent();
  status.bytes_received = node()->bytes_received();
  status.egress_spent = node()->egress_spent();
}

}  // namespace collab
