#include "collab/session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/log.h"
#include "core/protocol/fragments.h"
#include "core/runtime/rank_rounds.h"
#include "core/runtime/site_channel.h"
#include "core/runtime/site_lead.h"

namespace collab {
namespace {

// A rank's calls, in step with the other ranks of its site: each rank reports, the leader decides (SiteLead), and all
// take its decision (RankRounds).
class RankSession final : public Session {
 public:
  RankSession(SessionOptions options, std::shared_ptr<ParameterVector> parameters, std::shared_ptr<SiteGroup> group)
      : options_(std::move(options)),
        parameters_(std::move(parameters)),
        group_(std::move(group)),
        rounds_(options_.config, protocol::fragments_for(options_.config.fragments, parameters_->size()).count) {
    if (options_.layout.rank == 0) lead_.emplace(options_, *parameters_, rounds_);
  }

  Status begin() override {
    if (begun_) return invalid_argument("the session has begun already [round.begun-twice]");
    begun_ = true;
    return remember(begin_once());
  }

  Result<bool> count_step(std::uint64_t samples) override {
    COLLAB_RETURN_IF_ERROR(usable());
    if (lead_ && !alone_ && rounds_.steps() == 0) lead_->node()->serve_optimizer("");
    rounds_.count_step();
    if (alone_) {
      if (lead_) lead_->log_training_alone();
      return false;
    }
    samples_ += samples;
    Result<bool> due = rounds_.in_flight() ? merge_is_due() : round_is_due();
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
    const std::uint64_t most = std::min(last.value, rounds_.round().value + rounds_.fragments() + 2);
    while (all.ok() && all->round_ran && rounds_.round().value < most && !alone_) {
      COLLAB_RETURN_IF_ERROR(remember(add(run_call(false), *all)));
    }
    return all;
  }

  [[nodiscard]] RoundId settles_at() const override { return alone_ ? RoundId(0) : rounds_.settles_at(); }

  [[nodiscard]] bool is_ahead() const override {
    return channel_ != nullptr && !alone_ && channel_->is_ahead(rounds_.steps() + 1);
  }

  void note_loss(double loss) override {
    if (lead_) lead_->note_loss(static_cast<float>(loss));
  }

  void ask_to_leave() override {
    if (lead_) lead_->ask_to_leave();
  }

  void keep_out() override { keeps_out_ = true; }

  using Session::finish;
  Status finish(std::uint32_t next_generation) override {
    if (!begun_ || finished_) return {};
    finished_ = true;
    if (lead_) {
      lead_->ends();
      if (lead_->node() != nullptr) lead_->node()->serve_optimizer("its training has ended");
    }
    Status last;
    if (alone_) return last;
    if (broken_.ok()) last = run_last_rounds();
    if (lead_) lead_->leave(next_generation);
    return last;
  }

  [[nodiscard]] bool optimizer_wanted() const override {
    return lead_ && lead_->node() != nullptr && lead_->node()->optimizer_wanted();
  }

  void give_optimizer(Result<OptimizerCopy> copy) override {
    if (lead_ && lead_->node() != nullptr) lead_->node()->give_optimizer(std::move(copy));
  }

  Result<OptimizerOffer> ask_optimizer() override {
    COLLAB_RETURN_IF_ERROR(leads());
    return lead_->node()->ask_optimizer();
  }

  Result<BufferPtr> take_optimizer() override {
    COLLAB_RETURN_IF_ERROR(leads());
    return lead_->node()->take_optimizer();
  }

  void end_optimizer(const std::string& cold) override {
    if (leads().ok()) lead_->node()->end_optimizer(cold);
  }

  Status broadcast(std::span<std::byte> bytes) override {
    COLLAB_RETURN_IF_ERROR(usable());
    return options_.layout.size == 1 ? Status() : group_->broadcast(bytes);
  }

  [[nodiscard]] SessionStatus status() const override {
    SessionStatus status;
    status.site = options_.site;
    status.generation = options_.generation;
    status.round = rounds_.round();
    status.steps = rounds_.steps();
    status.steps_since_round = rounds_.steps_not_common();
    if (lead_) lead_->add_to(status);
    return status;
  }

 private:
  [[nodiscard]] Status usable() const {
    if (!begun_) return invalid_argument("the session has not begun [round.not-begun]");
    if (finished_) return invalid_argument("the session has finished [round.finished]");
    return broken_;
  }

  [[nodiscard]] Status leads() const {
    COLLAB_RETURN_IF_ERROR(usable());
    if (!lead_) return invalid_argument("only the leader of a site talks to other sites [optimizer.not-leader]");
    return alone_ ? unavailable(lead_->why_alone()) : Status();
  }

  Status remember(Status status) {
    if (!status.ok() && broken_.ok()) broken_ = status;
    return status;
  }

  // ---- the beginning

  Status begin_once() {
    if (lead_) COLLAB_RETURN_IF_ERROR(lead_->prepare());
    const Result<Digest> own = digest_of_parameters(*parameters_, options_.compared_elements);
    if (!own.ok()) return own.status();
    COLLAB_RETURN_IF_ERROR(open_channel());
    const Result<std::vector<RankReport>> reports = channel_->report({.call = ++call_, .digest = *own});
    if (!reports.ok()) return reports.status();
    const Result<CallResult> joined = share(lead_ ? lead_->join(*reports) : CallResult{});
    if (!joined.ok()) return joined.status();
    rounds_.begin(*joined, clock_.now());
    follow(*joined);
    if (alone_) return {};
    if (lead_) lead_->training_begins();
    log_info("round " + std::to_string(rounds_.round().value) + ": the anchor is in place; training starts");
    return {};
  }

  Status open_channel() {
    if (options_.layout.size == 1) {
      channel_ = make_solo_channel();
    } else if (!options_.layout.one_host) {
      if (!group_) return invalid_argument("a site on several hosts needs its process group [join.no-site-group]");
      channel_ = make_group_channel(*group_, lead_.has_value(), *parameters_);
    } else if (lead_) {
      channel_ = make_arena_leader_channel(lead_->arena(), options_.layout.size, options_.config.round_timeout);
    } else {
      Result<std::unique_ptr<ArenaReader>> arena =
          open_arena(arena_spec(options_, parameters_->size()), options_.config.join_timeout);
      if (!arena.ok()) return arena.status();
      channel_ = make_arena_follower_channel(std::move(*arena), options_.layout.rank, *parameters_,
                                             merge_settings(options_), leader_wait_limit(options_.config));
    }
    return {};
  }

  // ---- is a call due? The answer is the same at every rank of the site, at the same step

  Result<bool> round_is_due() {
    if (rounds_.schedule().due_by_steps()) return true;
    // On one host, reading the leader's announcement costs nothing. On several it takes a collective.
    const bool one_machine = options_.layout.one_host || options_.layout.size == 1;
    if (one_machine || rounds_.schedule().by_time()) {
      COLLAB_RETURN_IF_ERROR(listen(lead_ ? lead_->step_of_round() : 0));
    }
    return rounds_.schedule().due_by_announcement(announced_);
  }

  Result<bool> merge_is_due() {
    if (options_.layout.size == 1) return lead_->round_is_over();
    COLLAB_RETURN_IF_ERROR(listen(lead_ ? lead_->step_of_merge() : 0));
    return rounds_.schedule().due_by_announcement(announced_);
  }

  Status listen(std::uint64_t mine) {
    const Result<std::uint64_t> announced = channel_->announcement(mine, rounds_.steps());
    if (!announced.ok()) return announced.status();
    announced_ = *announced;
    return {};
  }

  // ---- calls of all ranks

  // A whole round. With `behind`, the begin of a round, or the merge of the one in flight.
  Result<StepOutcome> run_call(bool behind) {
    const TimePoint start = clock_.now();
    RankReport own{.call = ++call_, .digest = {}, .samples = samples_};
    if (options_.layout.size > 1 && !rounds_.in_flight()) {
      const Result<Digest> digest = digest_of_parameters(*parameters_, options_.compared_elements);
      if (!digest.ok()) return digest.status();
      own.digest = *digest;
    }
    const Result<std::vector<RankReport>> reports = channel_->report(own);
    if (!reports.ok()) return reports.status();
    const Result<CallResult> result = share(lead_ ? lead_->call(*reports, behind, start) : CallResult{});
    if (!result.ok()) return result.status();
    rounds_.end_call(*result, clock_.now());
    follow(*result);
    samples_ = 0;
    if (lead_) lead_->call_over(start);
    if (rounds_.in_flight()) return StepOutcome{};
    return StepOutcome{.round_ran = !rounds_.skipped(),
                       .round = result->round,
                       .took_anchor = result->took_anchor,
                       .leaving = result->leaving};
  }

  // Whether the site stays out of its last round.
  Result<bool> keeps_out() {
    const RankReport own{.call = ++call_, .digest = {}, .samples = keeps_out_ ? RankReport::kKeepsOut : 0};
    const Result<std::vector<RankReport>> reports = channel_->report(own);
    if (!reports.ok()) return reports.status();
    const Result<CallResult> result = share(lead_ ? lead_->keeps_out(*reports) : CallResult{});
    if (!result.ok()) return result.status();
    return result->skipped;
  }

  // Every rank ends a call here, with the leader's result.
  Result<CallResult> share(const CallResult& mine) {
    Result<CallResult> result = channel_->share(call_, mine);
    if (!result.ok() || result->ok()) return result;
    return Status(lead_ ? lead_->failure() : StatusCode::kRefused, result->error);
  }

  void follow(const Decision& decided) {
    if (decided.in_flight) return;
    if (std::exchange(alone_, decided.alone) != decided.alone && lead_) lead_->continue_alone();
  }

  // ---- calls that are waited for

  // Runs the rounds before a round that the training waits for. Sites that wait at the same step must run equally many,
  // or the last rounds would not be common to all: one site may begin the due round only with its next step, while
  // another is in the middle of it. True: one was due here.
  Result<bool> drain(StepOutcome& all) {
    if (rounds_.in_flight()) COLLAB_RETURN_IF_ERROR(add(run_call(true), all));
    const bool due = rounds_.is_due_behind() && !alone_;
    if (due) COLLAB_RETURN_IF_ERROR(add(run_call(false), all));
    return due;
  }

  // A round that the training waits for averages all of the model.
  Result<StepOutcome> run_round() {
    StepOutcome all{.round = rounds_.round()};
    const Result<bool> drained = drain(all);
    if (!drained.ok()) return drained.status();
    if (alone_) return all;
    COLLAB_RETURN_IF_ERROR(add(run_turns(rounds_.fragments()), all));
    return all;
  }

  // Runs one round for each of `turns` fragments, one after the other. If these are all fragments, the whole model is
  // averaged.
  Result<StepOutcome> run_turns(std::uint32_t turns) {
    StepOutcome all{.round_ran = turns > 0, .round = rounds_.round()};
    while (turns-- > 0 && all.round_ran && !alone_) {
      COLLAB_RETURN_IF_ERROR(add(run_call(false), all));
    }
    return all;
  }

  Status run_last_rounds() {
    if (!rounds_.ends_with_round()) return {};
    const Result<bool> out = keeps_out();
    if (!out.ok() || *out) return out.status();
    StepOutcome all;
    const Result<bool> drained = drain(all);
    if (!drained.ok()) return drained.status();
    const RoundId before = rounds_.round();
    COLLAB_RETURN_IF_ERROR(run_turns(rounds_.last_turns(*drained)).status());
    if (rounds_.fragments() > 1 || !rounds_.skipped() || rounds_.round() == before) return {};
    return run_turns(1).status();  // the round before averaged nothing, so the steps are still to be averaged
  }

  static Status add(const Result<StepOutcome>& one, StepOutcome& all) {
    if (!one.ok()) return one.status();
    all.round_ran = one->round_ran;
    all.round = one->round;
    all.took_anchor = all.took_anchor || one->took_anchor;
    all.leaving = all.leaving || one->leaving;
    return {};
  }

  const SessionOptions options_;
  const std::shared_ptr<ParameterVector> parameters_;
  const std::shared_ptr<SiteGroup> group_;
  SteadyClock clock_;
  RankRounds rounds_;
  std::optional<SiteLead> lead_;  // at the site's rank 0
  std::unique_ptr<SiteChannel> channel_;
  std::uint64_t call_ = 0;       // of report() and share()
  std::uint64_t samples_ = 0;    // of this rank since the last call
  std::uint64_t announced_ = 0;  // announced by the leader: the step of the next call
  bool due_ = false;             // the result of count_step()
  bool begun_ = false;
  bool finished_ = false;
  bool keeps_out_ = false;
  bool alone_ = false;  // there are no more rounds
  Status broken_;
};

}  // namespace

Result<std::unique_ptr<Session>> make_session(SessionOptions options, std::shared_ptr<ParameterVector> parameters,
                                              std::shared_ptr<SiteGroup> group) {
  if (!parameters || parameters->size() == 0) {
    return invalid_argument("the model has no trained floating-point parameters [capture.no-parameters]");
  }
  if (options.layout.rank >= options.layout.size) {
    return invalid_argument("rank " + std::to_string(options.layout.rank) + " does not fit a site of " +
                            std::to_string(options.layout.size) + " [join.site-rank]");
  }
  if (options.layout.rank == 0 && options.coordinators.empty()) {
    return invalid_argument("no coordinator to join: set COLLAB_COORDINATOR=HOST:PORT [join.no-coordinator]");
  }
  const Result<LogLevel> level = log_level_from_name(options.config.log_level);
  if (!level.ok()) return level.status();
  suggest_log(*level, options.site);
  return std::unique_ptr<Session>(
      std::make_unique<RankSession>(std::move(options), std::move(parameters), std::move(group)));
}

}  // namespace collab
