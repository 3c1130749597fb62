#include "tests/sim/claim.h"

#include <string>
#include <variant>

#include "core/wire/encoding.h"

namespace collab::sim {

Claim Claim::draw(Prng& prng, const std::string& claimant, const wire::Record& newest) {
  Claim claim;
  claim.claimant = claimant;
  const bool same_run = newest.anchor.run.value != 0 && prng.chance(0.6);
  const RunId run = same_run ? newest.anchor.run : RunId{newest.anchor.run.value + (prng.next() >> 40) - (1U << 23)};
  const RoundId round{newest.anchor.round.value + 1 + prng.below(same_run ? 20 : 1'000)};
  claim.anchor = {run, round, {prng.next(), prng.next()}};
  switch (prng.below(3)) {
    case 0: break;
    case 1: claim.voters = newest.voters; break;
    default:
      for (std::uint32_t i = 0; i < 3; ++i) {
        claim.voters.push_back({SiteId{i}, "ghost" + std::to_string(i), AcceptorId{prng.next() | 1}});
      }
  }
  claim.offers = prng.chance(0.5);
  claim.promises = prng.chance(0.5);
  return claim;
}

bool Claim::tell(TransportMessage& message) const {
  if (message.lane != Lane::kControl) return true;
  Result<wire::Message> decoded = wire::decode(message.head);
  if (!decoded.ok()) return true;
  wire::Report* report = nullptr;
  wire::Offer* offer = nullptr;
  if (auto* join = std::get_if<wire::Join>(&*decoded)) {
    report = &join->report;
    offer = &join->offer;
  } else if (auto* promise = std::get_if<wire::Promise>(&*decoded)) {
    if (!promises) return false;
    report = &promise->report;
    offer = &promise->offer;
  } else {
    return true;
  }
  wire::Record& record = report->record;
  record.anchor = anchor;
  record.voters = voters;
  if (voters.empty()) record.voters.push_back({SiteId{0}, claimant, record.acceptor});
  record.proposals.clear();
  record.recent.clear();
  if (offers) *offer = anchor;
  message.head = wire::encode(*decoded);
  return true;
}

}  // namespace collab::sim
