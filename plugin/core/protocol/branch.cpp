#include "core/protocol/branch.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace collab::protocol {

std::optional<bool> trunk_first(const wire::Offer& a, const wire::Offer& b) {
  const auto trunk_of = [](const wire::Offer& offer) {
    return offer.branch.empty() ? std::nullopt : std::optional(offer.branch[0].trunk);
  };
  if (trunk_of(b) == a.run) return true;
  if (trunk_of(a) == b.run) return false;
  const bool siblings = trunk_of(a) && trunk_of(a) == trunk_of(b) && a.branch[0].run != b.branch[0].run;
  if (!siblings) return std::nullopt;
  return std::tuple(a.branch[0].samples, a.run) > std::tuple(b.branch[0].samples, b.run);
}

std::uint64_t weight_of(const wire::Form& form) {
  double sum = 0;
  for (const wire::Participant& participant : form.participants) sum += participant.weight;
  return static_cast<std::uint64_t>(std::llround(std::min(sum, 9e18)));
}

}  // namespace collab::protocol
