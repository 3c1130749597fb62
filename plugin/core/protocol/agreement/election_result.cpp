#include "core/protocol/agreement/mandate.h"

#include <algorithm>

namespace collab::protocol {

bool Mandate::disproves(const Comer& comer) const {
  const wire::Offer& claimed = comer.join.report.record.anchor;
  return comer.early && !founded && new_run.empty() && claimed.run == anchor.run && claimed.round > round();
}

bool Mandate::is_of_a_voter(const Comer& comer) const {
  const auto is_its = [&](const wire::Voter& voter) { return voter.acceptor == comer.join.report.record.acceptor; };
  return std::ranges::any_of(voters, is_its) || std::ranges::any_of(next_voters, is_its);
}

}  // namespace collab::protocol
