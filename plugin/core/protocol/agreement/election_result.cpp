#include "core/protocol/agreement/election_result.h"

#include <algorithm>

namespace collab::protocol {

bool ElectionResult::disproves(const Applicant& applicant) const {
  const wire::Offer& claimed = applicant.join.report.record.anchor;
  return applicant.early && !founded && new_run.empty() && claimed.run == anchor.run && claimed.round > round();
}

bool ElectionResult::is_of_a_voter(const Applicant& applicant) const {
  const auto is_its = [&](const wire::Voter& voter) { return voter.acceptor == applicant.join.report.record.acceptor; };
  return std::ranges::any_of(voters, is_its) || std::ranges::any_of(next_voters, is_its);
}

}  // namespace collab::protocol
