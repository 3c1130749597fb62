#include "core/runtime/data/round_step.h"

#include <algorithm>
#include <utility>

namespace collab {

RoundStep::RoundStep(const DataSettings& settings, ElementRange range, std::size_t participants,
                     std::vector<float> shares)
    : settings_(settings),
      range_(range),
      sole_(participants == 1),
      outer_(for_contributors(settings.outer, shares.size())) {
  if (outer_.id == OuterId::kRda) norms_.emplace(settings.radial, range, std::move(shares));
}

bool RoundStep::averages_itself() const {
  return sole_ && outer_.id == OuterId::kAverage && settings_.outer.lr == 1.0F;
}

bool RoundStep::is_taken_at_once() const {
  if (settings_.outer.clip > 0 || norms_) return false;  // they need the norms of the whole vector
  const bool mean_is_lost = outer_.id != OuterId::kAverage || settings_.outer.lr != 1.0F;
  return !has_outer_state(settings_.outer.id) && !averages_itself() && !(settings_.keeps_mean && mean_is_lost);
}

void RoundStep::close() {
  if (norms_) factors_ = norms_->factors();
}

double RoundStep::clip(std::span<const float> mean) {
  if (!(settings_.outer.clip > 0)) return 0;
  const ElementRange trained = common(range_, {0, settings_.outer_elements});
  const std::span<const float> of_trained = mean.subspan(trained.begin, trained.size());
  const double norm = norms_ ? norm_with(factors_, trained.begin, of_trained) : norm_of(of_trained);
  shrink_ = clip_factor(settings_.outer.clip, norm);
  return shrink_ == 1.0F ? 0 : norm;
}

void RoundStep::take(std::uint64_t begin, std::span<const float> anchor, std::span<float> mean,
                     std::span<float> state) const {
  const std::size_t trained =
      begin >= settings_.outer_elements ? 0 : std::min<std::uint64_t>(mean.size(), settings_.outer_elements - begin);
  multiply(factors_, begin, mean.first(trained));
  if (shrink_ != 1.0F) multiply(mean.first(trained), shrink_);
  outer_step(outer_, anchor.first(trained), mean.first(trained), state.empty() ? state : state.first(trained));
  outer_step({.id = OuterId::kAverage, .lr = 1.0F}, anchor.subspan(trained), mean.subspan(trained), {});
}

}  // namespace collab
