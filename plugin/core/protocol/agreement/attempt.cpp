#include "core/protocol/agreement/attempt.h"

#include <algorithm>

#include "core/base/digest.h"

namespace collab::protocol {
namespace {

template <typename Named>
bool names_are_short(const std::vector<Named>& list) {
  std::size_t bytes = 0;
  for (const Named& each : list) bytes += each.name.size();
  return bytes <= kMaxNamesBytes;
}

}  // namespace

bool is_short(const std::vector<wire::Voter>& list) { return names_are_short(list); }
bool is_short(const wire::StartAttempt& start) { return is_short(start.voters) && names_are_short(start.participants); }

bool takes_part(const wire::StartAttempt& start, SiteId site) {
  const auto found = std::ranges::lower_bound(start.participants, site, {}, &wire::Participant::site);
  return found != start.participants.end() && found->site == site && found->here;
}

bool takes_part(const wire::StartAttempt& start, AcceptorId acceptor) {
  const auto voter = std::ranges::find(start.voters, acceptor, &wire::Voter::acceptor);
  return voter != start.voters.end() && takes_part(start, voter->site);
}

bool has_accepted(const wire::Record& record, const wire::Proposal& proposal) {
  return std::ranges::any_of(record.proposals, [&](const wire::Proposal& p) {
    return p.accepted && p.start == proposal.start && p.slices == proposal.slices;
  });
}

std::vector<SiteId> contributors_of(const wire::StartAttempt& start) {
  std::vector<SiteId> contributors;
  for (const wire::Participant& p : start.participants) {
    if (p.weight > 0) contributors.push_back(p.site);
  }
  return contributors;
}

Digest digest_of_mean(const std::vector<Digest>& slices) {
  if (slices.empty()) return {};
  DigestChain chain;
  for (const Digest& slice : slices) chain.add(slice);
  return chain.finish();
}

wire::Past past_of(const wire::StartAttempt& start, const std::vector<Digest>& slices) {
  wire::Past past{start.run, start.round, start.attempt, {}, digest_of_mean(slices)};
  for (const wire::Participant& p : start.participants) {
    if (p.weight > 0) past.contributors.push_back(p.name);
  }
  return past;
}

void take_membership(wire::Record& known, const wire::Record& with, const wire::Offer& anchor) {
  const bool newer = known.anchor.run == anchor.run && known.anchor.round < anchor.round;
  if (with.voters.empty() || (known.anchor.run.value != 0 && !newer)) return;
  known.promised = std::max(known.promised, with.promised);
  known.anchor = anchor;
  known.voters = with.voters;
  std::erase_if(known.proposals, [&](const wire::Proposal& p) { return p.start.round <= anchor.round; });
}

bool holds_mean(const wire::Report& report, const wire::StartAttempt& start) {
  const auto& proposals = report.record.proposals;
  return report.holds_mean && !proposals.empty() && proposals[0].accepted && proposals[0].start == start;
}

}  // namespace collab::protocol
