#include "core/wire/rules.h"

#include <algorithm>
#include <functional>
#include <string>

#include "core/wire/limits.h"

namespace collab::wire {
namespace {

std::string text_of(SiteId site) { return "site " + std::to_string(site.value); }
// Checks that the entries' site_of(entry) ascend strictly.
template <typename T, typename SiteOf>
Status check_ascending(const char* list, const std::vector<T>& entries, SiteOf site_of) {
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (site_of(entries[i - 1]) < site_of(entries[i])) continue;
    return corrupt(std::string(list) + "[" + std::to_string(i) + "]: expected a site above " +
                   text_of(site_of(entries[i - 1])) + " (ascending, each once), got " + text_of(site_of(entries[i])));
  }
  return {};
}

template <typename M>
Status rules(const M&) {
  return {};  // the bounds of its fields are enough
}

Status rules(const Roster& m) {
  return check_ascending("members", m.members, [](const Member& member) { return member.site; });
}

Status rules(const Keys& m) {
  return check_ascending("keys", m.keys, [](const Key& key) { return key.site; });
}

Status check_voters(const std::vector<Voter>& voters) {
  return check_ascending("voters", voters, [](const Voter& voter) { return voter.site; });
}

Status check_slices(const StartAttempt& m) {
  std::uint64_t covered = m.slices.empty() ? 0 : m.slices.front().range.begin;
  for (std::size_t i = 0; i < m.slices.size(); ++i) {
    const Slice& slice = m.slices[i];
    const std::string where = "slices[" + std::to_string(i) + "]";
    if (slice.range.begin != covered || slice.range.end <= covered) {
      return corrupt(where + ".range: expected one that begins at " + std::to_string(covered) +
                     " and is not empty, got " + text_of(slice.range));
    }
    const Participant* const owner = participant_of(m, slice.owner);
    if (owner == nullptr || !owner->here) {
      return corrupt(where + ".owner: expected a participant that is here, got " + text_of(slice.owner));
    }
    covered = slice.range.end;
  }
  return {};
}

Status rules(const StartAttempt& m) {
  const auto site_of = [](const Participant& participant) { return participant.site; };
  COLLAB_RETURN_IF_ERROR(check_ascending("participants", m.participants, site_of));
  if (std::none_of(m.participants.begin(), m.participants.end(), [](const auto& p) { return p.here; })) {
    return corrupt("participants: expected at least one that is here, got none");
  }
  const bool weighs =
      std::any_of(m.participants.begin(), m.participants.end(), [](const auto& p) { return p.weight > 0; });
  if (weighs && m.slices.empty())
    return corrupt("slices: expected at least one where a participant has a weight, got none");
  if (!weighs && !m.slices.empty()) {
    return corrupt("slices: expected none where no participant has a weight, got " + std::to_string(m.slices.size()));
  }
  COLLAB_RETURN_IF_ERROR(check_slices(m));
  return check_voters(m.voters);
}

Status rules(const Commit& m) {
  if (m.attempt.value == 0) return corrupt("attempt: expected one above 0, got 0");
  return check_ascending("contributors", m.contributors, [](SiteId site) { return site; });
}

Status rules(const InstallAnchor& m) {
  if (m.sources.empty()) return corrupt("sources: expected at least one, got none");
  COLLAB_RETURN_IF_ERROR(check_ascending("sources", m.sources, [](SiteId site) { return site; }));
  if ((m.counted == Counted::kYes) != (m.attempt.value != 0)) {
    return corrupt("attempt: expected one above 0 where the contribution counted and 0 elsewhere, got " +
                   std::to_string(m.attempt.value));
  }
  return check_voters(m.voters);
}

Status rules(const FetchAnchor& m) {
  if (m.kind < ChunkKind::kAnchor) {
    return corrupt("kind: expected a part of an anchor (2 to 5), got " + std::to_string(static_cast<int>(m.kind)));
  }
  if (m.range.begin >= m.range.end || m.range.size() > kMaxFetchElements) {
    return corrupt("range: expected 1 to " + std::to_string(kMaxFetchElements) + " elements, got " + text_of(m.range));
  }
  return {};
}

Status rules(const FetchOptimizer& m) {
  if (m.range == ElementRange{}) return {};
  const bool fits = m.range.begin < m.range.end && m.range.size() <= kMaxPayloadBytes;
  if (m.snapshot != 0 && fits) return {};
  return corrupt("range: expected none" +
                 (m.snapshot == 0 ? "" : " or 1 to " + std::to_string(kMaxPayloadBytes) + " bytes") + ", got " +
                 text_of(m.range));
}

Status rules(const OptimizerState& m) {
  if ((m.snapshot == 0) == (m.bytes == 0)) return {};
  return corrupt("bytes: expected " + std::string(m.snapshot == 0 ? "0" : "some") + " of snapshot " +
                 std::to_string(m.snapshot) + ", got " + std::to_string(m.bytes));
}

Status rules(const Proposal& m) {
  COLLAB_RETURN_IF_ERROR(rules(m.start));
  const std::size_t expected = m.accepted ? m.start.slices.size() : 0;
  if (m.slices.size() == expected) return {};
  return corrupt("proposal.slices: expected " + std::to_string(expected) + " digests, got " +
                 std::to_string(m.slices.size()));
}

Status rules(const Accept& m) {
  for (const Proposal& proposal : m.proposals) {
    COLLAB_RETURN_IF_ERROR(rules(proposal));
    if (proposal.accepted && proposal.settled == m.term) continue;
    return corrupt("proposals: expected one that is accepted and settled under term " + std::to_string(m.term.value) +
                   ", got term " + std::to_string(proposal.settled.value));
  }
  return {};
}

Status rules(const Past& m) {
  if (m.attempt.value == 0) return corrupt("recent.attempt: expected one above 0, got 0");
  return {};
}

Status rules(const Record& m) {
  COLLAB_RETURN_IF_ERROR(check_voters(m.voters));
  for (const Proposal& proposal : m.proposals) COLLAB_RETURN_IF_ERROR(rules(proposal));
  for (const Past& past : m.recent) COLLAB_RETURN_IF_ERROR(rules(past));
  return {};
}

Status rules(const Join& m) {
  if (m.generation == 0) return corrupt("generation: expected one above 0, got 0");
  if (m.report.record.acceptor.value == 0) {  // two acceptors 0 would look like one memory
    return corrupt("report.record.acceptor: expected the number its site has drawn, got 0");
  }
  return rules(m.report.record);
}
Status rules(const Promise& m) { return rules(m.report.record); }

Status rules(const Chunk& m) {
  if (m.range.begin >= m.range.end || m.range.size() > kMaxChunkElements) {
    return corrupt("range: expected 1 to " + std::to_string(kMaxChunkElements) + " elements, got " + text_of(m.range));
  }
  return {};
}

// Checks that each rank occurs once, in any order.
Status check_distinct(const char* list, const std::vector<RankId>& ranks) {
  std::vector<RankId> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return {};
  return corrupt(std::string(list) + ": expected each rank once, got rank " + std::to_string(twice->value) + " twice");
}

template <typename T>
Status check_rising(const char* list, const std::vector<T>& entries) {
  const auto wrong = std::adjacent_find(entries.begin(), entries.end(), std::greater_equal<>());
  if (wrong == entries.end()) return {};
  return corrupt(std::string(list) + ": expected ascending entries, each once, got others");
}

Status rules(const Epoch& epoch) { return check_rising("gone", epoch.gone); }

Status rules(const Enter& m) {
  if (m.candidates == 0) return corrupt("candidates: expected at least 1, got 0");
  if (m.rank.value >= m.site_of.size()) {
    return corrupt("rank: expected one below " + std::to_string(m.site_of.size()) + ", got " +
                   std::to_string(m.rank.value));
  }
  for (const std::uint32_t index : m.site_of) {
    if (index >= m.sites.size()) {
      return corrupt("site_of: expected an index below " + std::to_string(m.sites.size()) + ", got " +
                     std::to_string(index));
    }
  }
  if (m.acceptor.value == 0) return corrupt("acceptor: expected one above 0, got 0");
  COLLAB_RETURN_IF_ERROR(rules(m.chosen));
  return rules(m.accepted);
}

Status rules(const Entered& m) { return rules(m.chosen); }
Status rules(const AcceptEpoch& m) { return rules(m.epoch); }
Status rules(const ChosenEpoch& m) { return rules(m.epoch); }

Status rules(const Assemble& m) {
  if (m.members.empty()) return corrupt("members: expected at least one, got none");
  if (m.parent.value != 0 && m.members.size() != 2) {
    return corrupt("members: expected 2 of a pair, got " + std::to_string(m.members.size()));
  }
  return check_distinct("members", m.members);
}

Status rules(const Contribute& m) {
  if (m.step == 0) return corrupt("step: expected one above 0, got 0");
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : m.splits) total += bytes;  // kMaxRanks * kMaxPayloadBytes is far below 2^64
  if (total > kMaxPayloadBytes) {
    return corrupt("splits: expected at most " + std::to_string(kMaxPayloadBytes) + " bytes in all, got " +
                   std::to_string(total));
  }
  return {};
}

Status rules(const StepResult& m) { return check_rising("absent", m.absent); }

}  // namespace

namespace {

Status with_code(const Status& broken) {
  return broken.ok() ? broken : Status(broken.code(), broken.message() + " [wire.rule]");
}

}  // namespace

Status check_rules(const Record& record) { return with_code(rules(record)); }

Status check_rules(const Message& message) {
  return with_code(std::visit([](const auto& m) { return rules(m); }, message));
}

ElementRange covered_by(const std::vector<Slice>& slices) {
  return slices.empty() ? ElementRange{} : ElementRange{slices.front().range.begin, slices.back().range.end};
}

const Participant* participant_of(const StartAttempt& start, SiteId site) {
  const auto found = std::ranges::lower_bound(start.participants, site, {}, &Participant::site);
  return found != start.participants.end() && found->site == site ? &*found : nullptr;
}

bool contributes(const StartAttempt& start, SiteId site) {
  const Participant* const part = participant_of(start, site);
  return part != nullptr && part->weight > 0;
}

std::optional<std::string_view> value_of(const std::vector<Setting>& settings, std::string_view key) {
  const auto found = std::ranges::find(settings, key, &Setting::key);
  if (found == settings.end()) return {};
  return found->value;
}

}  // namespace collab::wire
