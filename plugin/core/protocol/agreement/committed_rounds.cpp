#include "core/protocol/agreement/committed_rounds.h"

#include <algorithm>
#include <tuple>

#include "core/protocol/agreement/attempt.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kRemembered = 64;

}  // namespace

void CommittedRounds::add(const wire::Past& past) {
  // A later attempt at the round was committed after all. Once the round is no longer remembered, that is unknown
  // again.
  const auto& after = given_up_after_;
  if (after && after->run == past.run && after->round.value + 1 == past.round.value) given_up_after_.reset();
  run_ = past.run;
  rounds_[past.round] = Round{past.run, past.attempt, {past.contributors.begin(), past.contributors.end()}, past.mean};
  while (rounds_.size() > kRemembered) {  // rounds of another run go first: their numbers may be higher
    const auto other = std::ranges::find_if(rounds_, [&](const auto& entry) { return entry.second.run != past.run; });
    rounds_.erase(other == rounds_.end() ? rounds_.begin() : other);
  }
}

void CommittedRounds::begin_run(const wire::Offer& anchor, RunId name) {
  RoundId last = anchor.round;
  if (anchor.run != run_) {  // not the run that these rounds led to: keep those up to that run's last one
    last = RoundId{};
    for (const auto& [round, past] : rounds_) {
      if (past.run == anchor.run) last = std::min(round, anchor.round);
    }
  }
  std::erase_if(rounds_, [last](const auto& entry) { return entry.first > last; });
  run_ = name;
}

CommittedRounds::Answer CommittedRounds::counted(const std::string& site, const wire::Offer& held) const {
  const auto past = rounds_.find(RoundId{held.round.value + 1});
  if (past == rounds_.end() || (past->second.run != held.run && !mutant(Mutant::kCountedInOtherRun))) {
    const auto& after = given_up_after_;
    const bool given_up = after && std::tie(held.run, held.round) == std::tie(after->run, after->round);
    return {given_up ? wire::Counted::kNo : wire::Counted::kUnknown};
  }
  if (!past->second.contributors.contains(site)) return {wire::Counted::kNo};
  return {wire::Counted::kYes, past->second.attempt};
}

const wire::Proposal* CommittedRounds::missed_by(const wire::Offer& offer, const wire::Report& report) const {
  if (report.record.proposals.empty()) return nullptr;
  const wire::Proposal& said = report.record.proposals[0];
  const wire::StartAttempt& start = said.start;
  const auto past = rounds_.find(start.round);
  const bool missed = past != rounds_.end() && past->second.run == start.run &&
                      (past->second.attempt == start.attempt || mutant(Mutant::kRepeatedToOtherAttempt)) &&
                      offer.run == start.run && offer.round.value + 1 == start.round.value &&
                      (holds_mean(report, start) || mutant(Mutant::kRepeatedWithoutMean));
  return missed ? &said : nullptr;
}

bool CommittedRounds::has_right_mean(const wire::Proposal& missed) const {
  return rounds_.at(missed.start.round).mean == digest_of_mean(missed.slices) ||
         mutant(Mutant::kRepeatedMeanNotCompared);
}

}  // namespace collab::protocol
