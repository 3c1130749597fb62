#include "collab/session.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "core/base/log.h"
#include "core/base/rate_limit.h"
#include "core/protocol/formatting.h"
#include "core/protocol/fragments.h"
#include "core/runtime/leader.h"
#include "core/runtime/one_model.h"
#include "core/runtime/schedule.h"
#include "core/runtime/site_channel.h"
#include "core/runtime/step_pace.h"
#include "core/runtime/termination.h"

namespace collab {
namespace {

using std::chrono::milliseconds;

class RankSession final : public Session {
 public:
  RankSession(SessionOptions options, std::shared_ptr<ParameterVector> parameters, std::shared_ptr<SiteGroup> group)
      : options_(std::move(options)),
        parameters_(std::move(parameters)),
        group_(std::move(group)),
        fragments_(protocol::fragments_for(options_.config.fragments, parameters_->size()).count),
        one_model_(options_.site),
        schedule_(between_rounds(options_.config.sync_every, fragments_), options_.config.sync_warmup,
                  options_.config.sync_anneal) {}

  Status begin() override {
    if (begun_) return invalid_argument("the session has begun already [round.begun-twice]");
    begun_ = true;
    return remember(begin_once());
  }

  Result<bool> count_step(std::uint64_t samples) override {
    COLLAB_RETURN_IF_ERROR(usable());
    if (leader_ && !alone_ && schedule_.steps() == 0) leader_->node()->serve_optimizer("");
    schedule_.count_step();
    turns_ = 0;
    if (alone_) {
      tell_why_alone();
      return false;
    }
    samples_ += samples;
    Result<bool> due = in_flight_ ? merge_is_due() : round_is_due();
    if (!due.ok()) return remember(due.status());
    due_ = *due;
    return due;
  }

  Result<StepOutcome> synchronize() override {
    COLLAB_RETURN_IF_ERROR(usable());
    const bool due = std::exchange(due_, false);
    if (alone_) return StepOutcome{};
    Result<StepOutcome> outcome = due ? run_call(options_.config.overlap) : run_round();
    if (!outcome.ok()) return remember(outcome.status());
    return outcome;
  }

  Result<StepOutcome> synchronize_until(RoundId last) override {
    due_ = false;
    Result<StepOutcome> all = synchronize();
    // No site is further ahead than its last fragments, one round in flight and one that is due.
    const std::uint64_t most = std::min(last.value, round_.value + fragments_ + 2);
    while (all.ok() && all->round_ran && round_.value < most && !alone_) {
      COLLAB_RETURN_IF_ERROR(remember(add(run_call(false), *all)));
    }
    return all;
  }

  [[nodiscard]] RoundId settles_at() const override {
    if (alone_ || steps_not_common() == 0) return RoundId(0);
    const bool due = options_.config.overlap && schedule_.due_by_steps();
    return RoundId(round_.value + (in_flight_ ? 1 : 0) + (due ? 1 : 0) + fragments_);
  }

  [[nodiscard]] bool is_ahead() const override {
    return channel_ != nullptr && !alone_ && channel_->is_ahead(schedule_.steps() + 1);
  }

  void note_loss(double loss) override { loss_ = std::bit_cast<std::uint32_t>(static_cast<float>(loss)); }

  void ask_to_leave() override { leaving_ = is_leader(); }

  void keep_out() override { keeps_out_ = true; }

  using Session::finish;
  Status finish(std::uint32_t next_generation) override {
    if (!begun_ || finished_) return {};
    finished_ = true;
    if (leader_ && leader_->node() != nullptr) leader_->node()->serve_optimizer("its training has ended");
    Status last;
    if (alone_) return last;
    if (broken_.ok()) last = run_last_rounds();
    if (!leader_) return last;
    leave(leaving_               ? asked_to_end()
          : next_generation != 0 ? "it goes on to generation " + std::to_string(next_generation)
                                 : std::string("the training script has ended"),
          next_generation);
    return last;
  }

  [[nodiscard]] bool optimizer_wanted() const override {
    return leader_ && leader_->node() != nullptr && leader_->node()->optimizer_wanted();
  }

  void give_optimizer(Result<OptimizerCopy> copy) override {
    if (leader_ && leader_->node() != nullptr) leader_->node()->give_optimizer(std::move(copy));
  }

  Result<OptimizerOffer> ask_optimizer() override {
    COLLAB_RETURN_IF_ERROR(leads());
    return leader_->node()->ask_optimizer();
  }

  Result<BufferPtr> take_optimizer() override {
    COLLAB_RETURN_IF_ERROR(leads());
    return leader_->node()->take_optimizer();
  }

  void end_optimizer(const std::string& cold) override {
    if (leads().ok()) leader_->node()->end_optimizer(cold);
  }

  Status broadcast(std::span<std::byte> bytes) override {
    COLLAB_RETURN_IF_ERROR(usable());
    return options_.site_size == 1 ? Status() : group_->broadcast(bytes);
  }

  [[nodiscard]] SessionStatus status() const override {
    SessionStatus status{.site = options_.site,
                         .generation = options_.generation,
                         .round = round_,
                         .steps = schedule_.steps(),
                         .steps_since_round = steps_not_common(),
                         .egress_spent = egress_spent_,
                         .state = state_};
    if (leader_ && leader_->node() != nullptr) {
      status.bytes_sent = leader_->node()->bytes_sent();
      status.bytes_received = leader_->node()->bytes_received();
      status.egress_spent = leader_->node()->egress_spent();
    }
    return status;
  }

 private:
  // In a fragment that was averaged earlier than the others is at least one.
  [[nodiscard]] std::uint64_t steps_not_common() const {
    const std::uint64_t since = carried_steps_ + schedule_.steps_since_round() + steps_in_flight_;
    const bool waits_for_turns = fragments_ > 1 && turns_ < fragments_ && schedule_.steps() > 0;
    return std::max<std::uint64_t>(since, waits_for_turns ? 1 : 0);
  }

  [[nodiscard]] bool is_leader() const { return options_.site_rank == 0; }

  [[nodiscard]] Status usable() const {
    if (!begun_) return invalid_argument("the session has not begun [round.not-begun]");
    if (finished_) return invalid_argument("the session has finished [round.finished]");
    return broken_;
  }

  [[nodiscard]] Status leads() const {
    COLLAB_RETURN_IF_ERROR(usable());
    if (alone_) return unavailable(why_alone_);
    return is_leader() ? Status()
                       : invalid_argument("only the leader of a site talks to other sites [optimizer.not-leader]");
  }

  Status remember(Status status) {
    if (!status.ok() && broken_.ok()) broken_ = status;
    return status;
  }

  [[nodiscard]] milliseconds patience() const { return patience_of(options_.config); }

  Status begin_once() {
    if (is_leader()) {
      leader_.emplace(options_, *parameters_);
      COLLAB_RETURN_IF_ERROR(leader_->prepare());
    }
    const Result<Digest> own = digest_of_parameters(*parameters_, options_.compared_elements);
    if (!own.ok()) return own.status();
    COLLAB_RETURN_IF_ERROR(open_channel());
    const Result<std::vector<RankReport>> reports = channel_->report({.call = ++call_, .digest = *own});
    if (!reports.ok()) return reports.status();
    Outcome mine;
    if (is_leader()) {
      Status same = one_model_.check(*reports);
      if (same.ok()) {
        Result<SealedAnchor> joined = leader_->join();
        if (joined.ok()) {
          mine.change = options_.config.overlap ? ParameterChange::kTakeCopy : ParameterChange::kToAnchor;
          mine.round = joined->round;
          mine.period = leader_->node()->period();
          mine.alone = leader_->node()->budget_over();
          state_ = joined->digest;
        } else if (joined.status().code() == StatusCode::kOutdated) {
          mine.alone = true;
          why_alone_ = joined.status().message();
        } else {
          same = joined.status();
        }
      }
      fail_outcome(mine, same);
    }
    const Result<Outcome> outcome = take(mine);
    if (!outcome.ok()) return outcome.status();
    if (alone_) return {};
    pace_.triggered(clock_.now(), 0);
    log_info("round " + std::to_string(round_.value) + ": the anchor is in place; training starts");
    return {};
  }

  Status open_channel() {
    if (options_.site_size == 1) {
      channel_ = make_solo_channel();
    } else if (!options_.one_host) {
      if (!group_) return invalid_argument("a site on several hosts needs its process group [join.no-site-group]");
      channel_ = make_group_channel(*group_, is_leader(), *parameters_);
    } else if (is_leader()) {
      channel_ = make_arena_leader_channel(leader_->arena(), options_.site_size, options_.config.round_timeout);
    } else {
      Result<std::unique_ptr<ArenaReader>> arena =
          open_arena(arena_spec(options_, parameters_->size()), options_.config.join_timeout);
      if (!arena.ok()) return arena.status();
      channel_ = make_arena_follower_channel(std::move(*arena), options_.site_rank, *parameters_,
                                             merge_settings(options_), patience());
    }
    return {};
  }

  Result<bool> round_is_due() {
    if (schedule_.due_by_steps()) return true;
    // Looking for the leader's word costs nothing on one host; on several it takes a collective.
    const bool one_machine = options_.one_host || options_.site_size == 1;
    if (one_machine || schedule_.by_time()) COLLAB_RETURN_IF_ERROR(listen());
    return schedule_.due_by_announcement(announced_);
  }

  // Every rank at the same step: the leader has seen that the round behind the training is over, or waits for it
  // because the site is to leave.
  Result<bool> merge_is_due() {
    const bool over = leader_ && (leaving_ || leader_->round_is_over());
    if (leader_ && !over) tell_of_delay();
    if (options_.site_size == 1) return over;
    COLLAB_RETURN_IF_ERROR(announce(over ? schedule_.step_to_announce_early() : 0));
    return schedule_.due_by_announcement(announced_);
  }

  void tell_of_delay() {
    const TimePoint now = clock_.now();
    if (!schedule_.overdue(now) || !tells_of_delay_.allow(now)) return;
    leader_->node()->warn_of_late_round("rounds take longer than COLLAB_SYNC_EVERY" +
                                        std::string(fragments_ > 1 ? " and COLLAB_FRAGMENTS leave" : "") + ", " +
                                        schedule_.period_text());
  }

  Status listen() {
    std::uint64_t mine = 0;
    if (is_leader()) {
      mine = leaving_ ? schedule_.step_to_announce_early() : schedule_.step_to_announce(clock_.now());
    }
    return announce(mine);
  }

  Status announce(std::uint64_t mine) {
    const Result<std::uint64_t> announced = channel_->announcement(mine, schedule_.steps());
    if (!announced.ok()) return announced.status();
    announced_ = *announced;
    return {};
  }

  // What comes before a round that is waited for. The sites that wait at the same step are to make as many, also where
  // one of them would have begun the one that is due with its next step, and another is in the midst of it: else the
  // last ones would not be common to all. True: such a one was due here.
  Result<bool> drain(StepOutcome& all) {
    if (in_flight_) COLLAB_RETURN_IF_ERROR(add(run_call(true), all));
    const bool due = options_.config.overlap && schedule_.due_by_steps() && !alone_;
    if (due) COLLAB_RETURN_IF_ERROR(add(run_call(false), all));
    return due;
  }

  // A round ends the run, on every rank of the site alike.
  [[nodiscard]] bool last_round_is_due() const {
    if (alone_ || schedule_.steps() == 0) return false;
    if (in_flight_ || (options_.config.overlap && schedule_.due_by_steps())) return true;
    if (left_) return false;
    return fragments_ > 1 ? turns_ < fragments_ : schedule_.steps_since_round() > 0 || skipped_ || merged_;
  }

  // Ranks may differ in what the script has put in the parameters' place, so they ask each other first.
  Result<bool> site_keeps_out() {
    const RankReport own{.call = ++call_, .digest = {}, .samples = keeps_out_ ? RankReport::kKeepsOut : 0};
    const Result<std::vector<RankReport>> reports = channel_->report(own);
    if (!reports.ok()) return reports.status();
    Outcome mine;
    mine.round = round_;
    std::vector<std::string> ranks;
    for (std::size_t rank = 0; rank < reports->size(); ++rank) {
      if ((*reports)[rank].samples == RankReport::kKeepsOut) ranks.push_back(std::to_string(rank));
    }
    mine.skipped = !ranks.empty();
    if (leader_ && mine.skipped) {
      log_warning("site " + options_.site + " leaves without a last round: since the last step other values were put " +
                  "in the parameters' place (a state was loaded, or an average of weights copied in; its rank " +
                  protocol::join_words(ranks) +
                  "). They stay as they are, and no other site gets them; the steps since round " +
                  std::to_string(round_.value) + " are in no average. To have those averaged, call " +
                  "torch_collab.synchronize() on every rank before loading [round.values-replaced]");
    }
    const Result<Outcome> outcome = channel_->share(call_, mine);
    if (!outcome.ok()) return outcome.status();
    if (!outcome->ok()) return Status(failure_, outcome->error);
    return outcome->skipped;
  }

  Status run_last_rounds() {
    if (!last_round_is_due()) return {};
    const Result<bool> out = site_keeps_out();
    if (!out.ok() || *out) return out.status();
    StepOutcome all;
    const Result<bool> drained = drain(all);
    if (!drained.ok()) return drained.status();
    if (alone_ || left_ || schedule_.steps() == 0) return {};
    if (fragments_ > 1) return run_turns(turns_ < fragments_ ? fragments_ : 0).status();
    const bool trained = schedule_.steps_since_round() > 0 || skipped_ || merged_ || *drained;
    const RoundId before = round_;
    COLLAB_RETURN_IF_ERROR(run_turns(trained ? 1 : 0).status());
    if (!skipped_ || round_ == before) return {};
    return run_turns(1).status();  // the one before averaged nothing: what was trained waited for it
  }

  // What is waited for averages all of the model.
  Result<StepOutcome> run_round() {
    StepOutcome all{.round = round_};
    const Result<bool> drained = drain(all);
    if (!drained.ok()) return drained.status();
    if (alone_) return all;
    COLLAB_RETURN_IF_ERROR(add(run_turns(fragments_), all));
    return all;
  }

  static Status add(const Result<StepOutcome>& one, StepOutcome& all) {
    if (!one.ok()) return one.status();
    all.round_ran = one->round_ran;
    all.round = one->round;
    all.took_anchor = all.took_anchor || one->took_anchor;
    all.seconds += one->seconds;
    all.leaving = all.leaving || one->leaving;
    return {};
  }

  // A round of each of so many fragments, one after the other; of the model, once it is all.
  Result<StepOutcome> run_turns(std::uint32_t turns) {
    StepOutcome all{.round_ran = turns > 0, .round = round_};
    while (turns-- > 0 && all.round_ran && !alone_) {
      COLLAB_RETURN_IF_ERROR(add(run_call(false), all));
    }
    return all;
  }

  // One call of all ranks of the site: a whole round; with `behind` its begin, or the merge of the one in flight.
  Result<StepOutcome> run_call(bool behind) {
    const TimePoint start = clock_.now();
    if (!in_flight_) pace_.triggered(start, schedule_.steps());
    RankReport own{.call = ++call_, .digest = {}, .samples = samples_};
    if (options_.site_size > 1 && !in_flight_) {
      const Result<Digest> digest = digest_of_parameters(*parameters_, options_.compared_elements);
      if (!digest.ok()) return digest.status();
      own.digest = *digest;
    }
    const Result<std::vector<RankReport>> reports = channel_->report(own);
    if (!reports.ok()) return reports.status();
    const Outcome mine = is_leader() ? lead_call(*reports, behind, start) : Outcome{};
    const Result<Outcome> outcome = take(mine);
    if (!outcome.ok()) return outcome.status();
    samples_ = 0;
    pace_.stood_still(clock_.now() - start);
    if (in_flight_) return StepOutcome{};
    pace_.round_over(clock_.now(), !skipped_);
    return StepOutcome{.round_ran = !skipped_,
                       .round = outcome->round,
                       .took_anchor = outcome->took_anchor,
                       .seconds = std::chrono::duration<double>(clock_.now() - start).count(),
                       .leaving = outcome->leaving};
  }

  // Never fails past the caller: the other ranks wait for the outcome, whatever it is.
  Outcome lead_call(const std::vector<RankReport>& reports, bool behind, TimePoint called) {
    Outcome mine;
    one_model_.warn(reports);
    const std::uint64_t before = site_samples_;
    for (const RankReport& report : reports) site_samples_ += report.samples;
    if (in_flight_) {
      mine = outcome_of(leader_->end_round(called), false);
      if (mine.took_anchor) {  // what was trained since the trigger is dropped with what was unfit
        site_samples_ = before;
        dropped_steps_ += schedule_.steps_since_round();
      }
      return mine;
    }
    if (leader_->node()->budget_over()) {  // by what was given to joiners since the last round
      mine.alone = !leaving_ && !finished_;
      mine.leaving = leaving_;
      mine.round = round_;
      return mine;
    }
    if (!behind || leaving_) {
      const TimePoint start = clock_.now();
      const Result<RoundReport> report = leader_->round(trigger());
      leaving_ = leaving_ || termination_requested();  // meanwhile: this was the last one
      mine = outcome_of(report, leaving_);
      mine.stays_due = stays_due(mine, clock_.now() - start);
      return mine;
    }
    mine.round = round_;
    fail_outcome(mine, leader_->start_round(trigger(), called));
    mine.in_flight = mine.ok();
    return mine;
  }

  // Sites that are a step apart, as after one that GradScaler has skipped, meet once this one asks again: the others
  // may stand in a collective whenever a period is over here. A few times only, until a round comes about: each is a
  // wait, if not one of a grace.
  bool stays_due(const Outcome& mine, Duration waited) {
    constexpr std::uint32_t kMost = 4;
    const Duration limit = std::min<Duration>(options_.config.link_grace, options_.config.round_timeout);
    if (!mine.skipped) asked_again_ = 0;
    return mine.skipped && !mine.leaving && waited < limit && asked_again_++ < kMost;
  }

  [[nodiscard]] protocol::Trigger trigger() const {
    return {.samples = site_samples_,
            .steps = schedule_.steps() - dropped_steps_,
            .step_us = pace_.step_us(),
            .round_us = pace_.round_us(),
            .loss = loss_};
  }

  Outcome outcome_of(const Result<RoundReport>& report, bool leaving) {
    Outcome mine;
    if (report.status().code() == StatusCode::kOutdated) {
      mine.alone = true;
      mine.round = round_;
      why_alone_ = report.status().message();
      return mine;
    }
    if (!report.ok()) {
      fail_outcome(mine, report.status());
      return mine;
    }
    mine.change = report->change;
    mine.range = report->range;
    mine.took_anchor = !report->unfit.empty();
    mine.round = report->round;
    mine.skipped = !report->skipped.empty();
    if (report->contributors.empty() && !mine.skipped) mine.skipped = nothing_was_averaged(report->round);
    mine.leaving = leaving;
    mine.period = report->period;
    mine.alone = leader_->node()->budget_over() && !leaving_ && !finished_;
    state_ = report->state;
    return mine;
  }

  // Although something was trained here, which counts later.
  [[nodiscard]] bool nothing_was_averaged(RoundId round) const {
    const std::uint64_t steps = carried_steps_ + (in_flight_ ? steps_in_flight_ : schedule_.steps_since_round());
    if (steps == 0) return false;
    log_warning(
        "round " + std::to_string(round.value) + " averaged nothing, although this site has trained " +
        std::to_string(steps) + (steps == 1 ? " step" : " steps") +
        " since the one before: no site contributed. After a round that was skipped in mid-exchange they count in the "
        "next one; else look at what the script passes to torch_collab.count_samples(), without samples a step weighs "
        "nothing [round.no-samples]");
    return true;
  }

  void fail_outcome(Outcome& outcome, const Status& status) {
    if (status.ok()) return;
    outcome.error = status.message();
    failure_ = status.code();
  }

  // Every rank ends a call here, with the leader's outcome.
  Result<Outcome> take(const Outcome& mine) {
    Result<Outcome> outcome = channel_->share(call_, mine);
    if (!outcome.ok()) return outcome;
    if (!outcome->ok()) return Status(failure_, outcome->error);
    if (outcome->in_flight) {
      in_flight_ = true;
      steps_in_flight_ = schedule_.steps_since_round();
      schedule_.round_started(clock_.now());
      return outcome;
    }
    const bool merged = std::exchange(in_flight_, false);
    const std::uint64_t steps = merged ? std::exchange(steps_in_flight_, 0) : schedule_.steps_since_round();
    // No round came about, or this site is alone: what was trained counts later.
    skipped_ = call_ > 1 && (outcome->skipped || outcome->round == round_);
    const bool stays_due = skipped_ && outcome->stays_due && !merged;
    if (!stays_due) carried_steps_ = skipped_ ? carried_steps_ + steps : 0;
    turns_ = skipped_ || merged ? 0 : std::min(turns_ + 1, fragments_);
    left_ = left_ || (outcome->leaving && !skipped_);
    merged_ = merged || (merged_ && skipped_);
    round_ = outcome->round;
    if (merged) {
      schedule_.round_merged(round_, outcome->period);
    } else if (stays_due) {
      schedule_.round_put_off();
    } else {
      schedule_.round_ended(clock_.now(), round_, outcome->period);
    }
    if (std::exchange(alone_, outcome->alone) != outcome->alone && leader_) {
      if (why_alone_.empty()) why_alone_ = kBudgetOver;
      log_warning(why_alone_ + ": this site leaves the swarm and trains on alone [join.alone]");
      leave(why_alone_, 0);
    }
    return outcome;
  }

  // The leader's node is gone afterwards, and what it has counted is kept.
  void leave(const std::string& reason, std::uint32_t next_generation) {
    if (leader_->node() != nullptr) egress_spent_ = std::max(egress_spent_, leader_->node()->egress_spent());
    leader_->leave(reason, next_generation);
  }

  // A site that has spent its budget said so once; one that is behind may not look healthy.
  void tell_why_alone() {
    if (!leader_ || why_alone_ == kBudgetOver || !schedule_.would_be_due(clock_.now())) return;
    log_warning("a round is due, but " + why_alone_ + ": nothing is averaged, this site trains alone [round.alone]");
    schedule_.round_ended(clock_.now(), round_, 0);
  }

  const SessionOptions options_;
  const std::shared_ptr<ParameterVector> parameters_;
  const std::shared_ptr<SiteGroup> group_;
  const std::uint32_t fragments_;  // that take turns: each is averaged once in a period
  OneModel one_model_;
  SteadyClock clock_;
  SyncSchedule schedule_;
  StepPace pace_;
  std::optional<Leader> leader_;
  std::unique_ptr<SiteChannel> channel_;
  std::uint64_t call_ = 0;           // of report() and share()
  std::uint64_t samples_ = 0;        // of this rank since the last round
  std::uint64_t site_samples_ = 0;   // leader: of all ranks, in all, but what was dropped
  std::uint64_t dropped_steps_ = 0;  // leader: likewise
  std::uint32_t asked_again_ = 0;    // leader: rounds that stayed due since the last one that came about
  std::uint32_t loss_ = wire::kNoLoss;
  std::uint64_t announced_ = 0;      // by the leader: the step of the next round
  std::uint64_t carried_steps_ = 0;  // past the triggers that were answered without a round
  bool skipped_ = false;             // the last trigger was answered without a round
  std::uint32_t turns_ = 0;          // rounds that were waited for since the last step, at most one of each fragment
  bool left_ = false;                // the last round of a site that was asked to leave has come about
  // ---- of rounds behind the training, alike at all ranks of the site
  bool in_flight_ = false;             // one has begun and is not merged
  std::uint64_t steps_in_flight_ = 0;  // that it may come to count
  bool merged_ = false;                // the parameters are not the anchor since, as after other rounds
  bool due_ = false;                   // as count_step() said
  RateLimit tells_of_delay_{std::chrono::minutes(1)};
  RoundId round_;
  Digest state_;
  bool begun_ = false;
  bool finished_ = false;
  bool leaving_ = false;  // the leader was asked to
  bool keeps_out_ = false;
  bool alone_ = false;  // no more rounds
  std::string why_alone_;
  std::uint64_t egress_spent_ = 0;  // once it has left
  Status broken_;
  StatusCode failure_ = StatusCode::kRefused;  // of the leader's error on the other ranks
};

}  // namespace

Result<std::unique_ptr<Session>> make_session(SessionOptions options, std::shared_ptr<ParameterVector> parameters,
                                              std::shared_ptr<SiteGroup> group) {
  if (!parameters || parameters->size() == 0) {
    return invalid_argument("the model has no trained floating-point parameters [capture.no-parameters]");
  }
  if (options.site_rank >= options.site_size) {
    return invalid_argument("rank " + std::to_string(options.site_rank) + " does not fit a site of " +
                            std::to_string(options.site_size) + " [join.site-rank]");
  }
  if (options.site_rank == 0 && options.coordinators.empty()) {
    return invalid_argument("no coordinator to join: set COLLAB_COORDINATOR=HOST:PORT [join.no-coordinator]");
  }
  const Result<LogLevel> level = log_level_from_name(options.config.log_level);
  if (!level.ok()) return level.status();
  suggest_log(*level, options.site);
  return std::unique_ptr<Session>(
      std::make_unique<RankSession>(std::move(options), std::move(parameters), std::move(group)));
}

}  // namespace collab
