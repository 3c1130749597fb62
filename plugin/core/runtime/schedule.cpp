#include "core/runtime/schedule.h"

#include <string>

namespace collab {

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

}  // namespace collab
