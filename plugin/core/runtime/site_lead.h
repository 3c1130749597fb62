// The decisions of a site's leader for all its ranks: the result of a call, which it makes with the swarm, and when the
// next call is due. A failed call returns its failure as the result, because the other ranks wait for a result.
//
// Threads: the session's caller. Ownership: the Leader, with its arena and node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/rate_limit.h"
#include "core/runtime/leader.h"
#include "core/runtime/rank_rounds.h"
#include "core/runtime/same_model_check.h"
#include "core/runtime/site_channel.h"
#include "core/runtime/step_pace.h"
#include "core/runtime/trained_work.h"

namespace collab {

class SiteLead {
 public:
  // `rounds`: this rank's; they follow what is decided here.
  SiteLead(const SessionOptions& options, ParameterVector& parameters, RankRounds& rounds)
      : options_(options), rounds_(rounds), leader_(options_, parameters), same_model_check_(options_.site) {}

  Status prepare() { return leader_.prepare(); }

  // ---- the calls of all ranks, with what each reports
  CallResult join(const std::vector<RankReport>& reports);
  void training_begins() { pace_.begin(clock_.now(), 0); }
  // A whole round, or with `behind` its begin. While a round is in flight: its merge.
  CallResult call(const std::vector<RankReport>& reports, bool behind, TimePoint called);
  CallResult keeps_out(const std::vector<RankReport>& reports) const;
  // The call is over, at this rank as at the others; the script stood still since `called`.
  void call_over(TimePoint called);

  // ---- between calls: the step that is to be announced to the other ranks, 0: none
  std::uint64_t step_of_round();
  std::uint64_t step_of_merge();
  [[nodiscard]] bool round_is_over();  // merging the round in flight would not wait, or the site is to leave

  // ---- the end
  void ask_to_leave() { leaving_ = true; }
  void ends() { ends_ = true; }  // the next rounds are the site's last
  void leave(std::uint32_t next_generation);
  // The site has left the swarm, or was never let in: this rank trains on alone.
  void continue_alone();
  void log_training_alone();  // when a round would be due

  void note_loss(float loss) { work_.note_loss(loss); }
  void add_to(SessionStatus& status) const;
  // Why the site is alone, or a call has failed.
  [[nodiscard]] const std::string& why_alone() const { return why_alone_; }
  [[nodiscard]] StatusCode failure() const { return failure_; }
  [[nodiscard]] ArenaWriter& arena() { return leader_.arena(); }
  [[nodiscard]] Node* node() { return leader_.node(); }  // null once it has left
  [[nodiscard]] const Node* node() const { return leader_.node(); }

 private:
  [[nodiscard]] protocol::Trigger trigger() const;
  [[nodiscard]] bool budget_is_over() const;
  [[nodiscard]] bool asks_again(const CallResult& result, Duration waited);
  [[nodiscard]] bool nothing_was_averaged(const RoundReport& report) const;
  CallResult result_of(const Result<RoundReport>& report, bool leaving);
  CallResult failed(CallResult result, const Status& status);
  void log_delay();
  void part(const std::string& reason, std::uint32_t next_generation);

  const SessionOptions& options_;
  RankRounds& rounds_;
  SteadyClock clock_;
  Leader leader_;
  SameModelCheck same_model_check_;
  StepPace pace_;
  RateLimit delay_log_limit_{std::chrono::minutes(1)};
  TrainedWork work_;
  std::uint32_t asked_again_ = 0;  // rounds that stayed due since the last one that came about
  Digest state_;
  std::uint64_t egress_spent_ = 0;  // once it has left
  bool leaving_ = false;            // the site was asked to leave
  bool ends_ = false;
  std::string why_alone_;
  StatusCode failure_ = StatusCode::kRefused;
};

}  // namespace collab
