#include "core/runtime/rank_rounds.h"

#include <algorithm>
#include <utility>

namespace collab {

RankRounds::RankRounds(const Config& config, std::uint32_t fragments)
    : overlap_(config.overlap),
      fragments_(fragments),
      schedule_(between_rounds(config.sync_every, fragments), config.sync_warmup, config.sync_anneal) {}

void RankRounds::begin(const Decision& joined, TimePoint now) {
  round_ = joined.round;
  schedule_.round_ended(now, round_, joined.period);
}

void RankRounds::count_step() {
  schedule_.count_step();
  turns_ = 0;
}

void RankRounds::end_call(const Decision& decided, TimePoint now) {
  if (decided.in_flight) {
    in_flight_ = true;
    steps_in_flight_ = schedule_.steps_since_round();
    schedule_.round_started(now);
    return;
  }
  const bool merged = std::exchange(in_flight_, false);
  const std::uint64_t steps = merged ? std::exchange(steps_in_flight_, 0) : schedule_.steps_since_round();
  skipped_ = decided.skipped || decided.round == round_;
  const bool stays_due = skipped_ && decided.stays_due && !merged;
  if (!stays_due) carried_steps_ = skipped_ ? carried_steps_ + steps : 0;
  turns_ = skipped_ || merged ? 0 : std::min(turns_ + 1, fragments_);
  left_ = left_ || (decided.leaving && !skipped_);
  merged_ = merged || (merged_ && skipped_);
  round_ = decided.round;
  if (merged) {
    schedule_.round_merged(round_, decided.period);
  } else if (stays_due) {
    schedule_.round_put_off();
  } else {
    schedule_.round_ended(now, round_, decided.period);
  }
}

std::uint64_t RankRounds::steps_to_count() const {
  return carried_steps_ + (in_flight_ ? steps_in_flight_ : schedule_.steps_since_round());
}

std::uint64_t RankRounds::steps_not_common() const {
  const std::uint64_t since = carried_steps_ + schedule_.steps_since_round() + steps_in_flight_;
  const bool waits_for_turns = fragments_ > 1 && turns_ < fragments_ && steps() > 0;
  return std::max<std::uint64_t>(since, waits_for_turns ? 1 : 0);
}

RoundId RankRounds::settles_at() const {
  if (steps_not_common() == 0) return RoundId(0);
  return RoundId(round_.value + (in_flight_ ? 1 : 0) + (is_due_behind() ? 1 : 0) + fragments_);
}

bool RankRounds::ends_with_round() const {
  return steps() > 0 && (in_flight_ || is_due_behind() || last_turns(false) > 0);
}

std::uint32_t RankRounds::last_turns(bool drained) const {
  if (left_ || steps() == 0) return 0;
  if (fragments_ > 1) return turns_ < fragments_ ? fragments_ : 0;
  return schedule_.steps_since_round() > 0 || skipped_ || merged_ || drained ? 1 : 0;
}

}  // namespace collab
