#include "tests/sim/explorer/ledger.h"

#include <algorithm>

#include "core/base/digest.h"

namespace collab::sim {

void Ledger::begin(const wire::Offer& anchor, std::vector<wire::Voter> voters) {
  newest_ = {anchor.run, anchor.round};
  voters_ = std::move(voters);
}

void Ledger::contributes(const wire::StartAttempt& start, const std::string& site, const Part& part) {
  parts_[{start.run, start.round, start.attempt}][site] = part;
}

// What an owner holds of an earlier attempt may be all that it has of a site.
const Ledger::Part* Ledger::part_of(const wire::StartAttempt& start, const wire::Participant& participant) const {
  const Part* newest = nullptr;
  for (const auto& [attempt, parts] : parts_) {
    const auto& [run, round, number] = attempt;
    if (run != start.run || round != start.round || number < participant.since || number > start.attempt) continue;
    if (const auto found = parts.find(participant.name); found != parts.end()) newest = &found->second;
  }
  return newest;
}

std::vector<Digest> Ledger::mean_of(const wire::StartAttempt& start) const {
  Canon canon(TimePoint{}, {});
  canon.all(start.run, start.round);
  for (const wire::Participant& participant : start.participants) {
    const Part* part = participant.weight > 0 ? part_of(start, participant) : nullptr;
    if (part != nullptr) canon.all(part->process, part->from, part->to);
  }
  std::vector<Digest> slices;
  for (const wire::Slice& slice : start.slices) {
    canon.put(slice.range.begin);
    slices.push_back(hash128(canon.bytes()));
  }
  return slices;
}

void Ledger::committed(const wire::Commit& commit) {
  if (!commits_.try_emplace({commit.run, commit.round}, commit).second) return;  // whether alike: invariants.h
  const auto start = starts_.find({commit.run, commit.round, commit.attempt});
  if (start == starts_.end()) return fail("round " + std::to_string(commit.round.value) + " was never formed");
  is_newest({commit.run, commit.round}, start->second.voters);
  for (const wire::Participant& participant : start->second.participants) {
    if (std::ranges::find(commit.contributors, participant.site) == commit.contributors.end()) continue;
    const Part* part = part_of(start->second, participant);
    if (part == nullptr) {
      fail("round " + std::to_string(commit.round.value) + " counts " + participant.name +
           ", which never began that exchange");
      continue;
    }
    if (participant.weight != static_cast<double>(part->to - part->from)) {
      fail(part->process + " weighs " + std::to_string(participant.weight) + " in round " +
           std::to_string(commit.round.value) + " for samples " + std::to_string(part->from) + " to " +
           std::to_string(part->to));
    }
    auto& counted = counted_[{part->process, fragments_.in_turn(commit.round)}];
    for (const auto& [from, to] : counted) {
      if (from < part->to && part->from < to) {
        fail(part->process + ": samples " + std::to_string(part->from) + " to " + std::to_string(part->to) +
             " count in round " + std::to_string(commit.round.value) + ", and some of them before");
      }
    }
    counted[part->from] = part->to;
  }
}

void Ledger::installed(const wire::InstallAnchor& install) { is_newest({install.run, install.round}, install.voters); }

void Ledger::is_newest(const Round& round, const std::vector<wire::Voter>& voters) {
  const auto order = [](const Round& r) { return std::pair(r.second, r.first); };
  if (voters.empty() || order(round) <= order(newest_)) return;
  newest_ = round;
  voters_ = voters;
}

// For attempts, only what they are: the machines record which sites were told of them.
void Ledger::write(Canon& canon) const {
  canon.all(commits_, counted_, newest_, voters_, parts_.size());
  for (const auto& [attempt, parts] : parts_) {
    canon.put(attempt);
    for (const auto& [site, part] : parts) canon.all(site, part.process, part.from, part.to);
  }
}

}  // namespace collab::sim
