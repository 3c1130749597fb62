#include "core/protocol/coordinator/period_choice.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kRounds = 3;       // the median of this many rounds counts
constexpr double kWorthAChange = 0.1;    // as a part of the period in force
constexpr double kRoomForARound = 1.05;  // rounds behind the training vary in length
constexpr double kStepsUntilMerged = 1;  // a result is merged between two steps

double median(const std::deque<Pace>& rounds, double Pace::*of) {
  std::vector<double> values;
  for (const Pace& pace : rounds) values.push_back(pace.*of);
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

double steps_needed(const Pace& pace, const PeriodRule& rule) {
  return rule.behind ? pace.round * kRoomForARound / pace.step + kStepsUntilMerged
                     : pace.round / (rule.target * pace.step);
}

bool PeriodChoice::measured(const Pace& slowest, const PeriodRule& rule) {
  rounds_.push_back(slowest);
  if (rounds_.size() > kRounds) rounds_.pop_front();
  pace_ = {median(rounds_, &Pace::step), median(rounds_, &Pace::round)};
  const double needed = std::clamp(steps_needed(pace_, rule), 1.0, double{wire::kMaxPeriod});
  const double whole = std::ceil(needed);
  const bool first = !std::exchange(chosen_, true);
  // The unrounded need decides on going up, the rounded one on going down. Otherwise rounding would move a short period
  // up and down.
  const bool longer = needed > in_force_ * (1 + kWorthAChange);
  const bool shorter = whole < in_force_ * (1 - kWorthAChange);
  if (longer || shorter) in_force_ = static_cast<std::uint32_t>(whole);
  return longer || shorter || first;
}

bool PeriodChoice::counted(double samples_a_step, const PeriodRule& rule) {
  constexpr double kRounding = 0.75;  // steps; otherwise smaller last batches would move the period by one
  const double needed = std::clamp(static_cast<double>(rule.samples) / samples_a_step, 1.0, double{wire::kMaxPeriod});
  const bool first = !std::exchange(chosen_, true);
  const bool other = std::abs(needed - in_force_) > kRounding;
  if (other) in_force_ = static_cast<std::uint32_t>(std::lround(needed));
  return other || first;
}

}  // namespace collab::protocol
