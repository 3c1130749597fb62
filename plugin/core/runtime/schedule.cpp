#include "core/runtime/schedule.h"

#include <algorithm>
#include <string>

#include "core/protocol/formatting.h"

namespace collab {

SyncEvery between_rounds(SyncEvery every, std::uint32_t fragments) {
  if (every.automatic) return every;
  if (every.steps > 0) every.steps = std::max<std::uint64_t>(1, every.steps / fragments);
  every.time /= fragments;
  return every;
}

std::string SyncSchedule::period_text() const {
  return by_time() ? protocol::in_seconds(every_.time)
                   : std::to_string(every_.steps) + (every_.steps == 1 ? " step" : " steps");
}

Result<bool> SyncSchedule::due_by_announcement(std::uint64_t announced) const {
  if (!stands(announced)) return false;
  if (announced < steps_) {
    return invalid_argument("the site's leader announced a round at step " + std::to_string(announced) +
                            ", but this rank is already at step " + std::to_string(steps_) +
                            ": the ranks of a site must take their optimizer steps together "
                            "(does each step reduce gradients over the site?) [round.steps-differ]");
  }
  return announced == steps_;
}

std::uint64_t SyncSchedule::annealed(std::uint64_t rounds) {
  if (rounds < walked_) walked_ = trained_ = 0;  // another run
  for (; walked_ < rounds && trained_ < anneal_.steps; ++walked_) trained_ += period_at(walked_, trained_);
  return period_at(rounds, trained_);
}

std::uint64_t SyncSchedule::period_at(std::uint64_t round, std::uint64_t trained) const {
  constexpr double kLeast = 0.125;  // of the period: a site that trains on afterwards is not held up at each step
  const double left = static_cast<double>(anneal_.steps - std::min(trained, anneal_.steps));
  const double part = std::clamp(left / (static_cast<double>(anneal_.steps) * anneal_.share), kLeast, 1.0);
  const auto steps = static_cast<std::uint64_t>(static_cast<double>(every_.steps) * part);
  return std::min(warm(round), std::max<std::uint64_t>(steps, 1));
}

}  // namespace collab
