#include "core/protocol/agreement/anchor_order.h"

#include <tuple>

#include "core/protocol/mutants.h"

namespace collab::protocol {

bool is_newer(const wire::Offer& a, std::size_t voters_of_a, const wire::Offer& b, std::size_t voters_of_b) {
  if (!mutant(Mutant::kLaterRunIsNewer) && (a.round != b.round || a.run == b.run)) return a.round > b.round;
  if (a.round.value > 0) return a.run > b.run;
  return std::tuple(voters_of_a, a.run) > std::tuple(voters_of_b, b.run);
}

}  // namespace collab::protocol
