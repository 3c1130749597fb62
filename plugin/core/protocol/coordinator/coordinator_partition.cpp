// Shares: who owns how much of the vector in the attempts of a round, and what is told of it.
#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

std::string in_percent(double part) { return json_number(std::round(1000 * part) / 10) + " %"; }

double mean_ratio_in(const std::vector<wire::Setting>& settings) {
  const auto codec = std::ranges::find(settings, "codec", &wire::Setting::key);
  return codec == settings.end() ? 1 : mean_ratio_of(codec->value);
}

}  // namespace

std::vector<Line> Coordinator::State::lines_of(const std::set<SiteId>& sites) const {
  const std::set<SiteId> able = reachability.owners(addresses_of(sites), number());
  std::vector<Line> lines;
  for (const SiteId id : sites) {
    const MemberRecord& member = members.at(id);
    const bool contributes = member.ready->weight > 0 && round.declined.count(id) == 0;
    lines.push_back({id, static_cast<double>(member.up_kbit), static_cast<double>(member.down_kbit), contributes,
                     able.count(id) != 0});
  }
  return lines;
}

// Owners that stay keep their slices: what they hold of them need not be sent again.
void Coordinator::State::partition_slices(wire::StartAttempt& start, const std::set<SiteId>& sites) {
  BandwidthPartition::Division by;
  if (config.equal_shares) {
    by.shares = partition.divide_equally(start.run, start.round, lines_of(sites));
  } else {
    by = partition.divide(start.run, start.round, lines_of(sites), mean_ratio_in(reference->settings));
  }
  if (by.takes) tell_partition(by.shares, *by.takes);
  if (!round.slices.empty() && round.slices.back().range.end == reference->elements) {
    start.slices = pass_on(round.slices, by.shares);
  }
  if (start.slices.empty() || start.slices.size() > wire::kMaxSlices || lopsided(start.slices, by.shares)) {
    start.slices = make_slices(reference->elements, by.shares);
  }
}

void Coordinator::State::judge_partition(const wire::StartAttempt& committed, Duration took) {
  const bool comparable =
      partition.sites() == committed.participants.size() && round.attempts == 1 && !committed.slices.empty();
  const auto before = partition.committed(committed.round, took, comparable);
  if (!before) return;
  note(Note::Level::kInfo, "shares",
       "round " + std::to_string(committed.round.value) + " took " + in_seconds(took) + " in place of " +
           in_seconds(*before) + ": the shares of before are taken again",
       {{"round", std::to_string(committed.round.value)}});
}

void Coordinator::State::tell_partition(const std::vector<Share>& shares, double takes) {
  double total = 0;
  for (const Share& share : shares) total += share.share;
  std::vector<std::string> parts;
  std::string json;
  for (const Share& share : shares) {
    const std::string& name = members.at(share.site).name;
    parts.push_back(name + " " + in_percent(share.share / total));
    json += (json.empty() ? "" : ",") + json_quote(name) + ":" + json_number(share.share / total);
  }
  note(Note::Level::kInfo, "shares",
       "round " + std::to_string(number().value) + ": by the rates the sites have measured, owners are " +
           join_words(parts) + "; the exchange should take " + in_percent(takes) + " of the time it would have taken",
       {{"round", std::to_string(number().value)}, {"shares", "{" + json + "}"}});
}

}  // namespace collab::protocol
