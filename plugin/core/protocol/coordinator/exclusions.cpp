#include "core/protocol/coordinator/exclusions.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_parts.h"

namespace collab::protocol {

bool Exclusions::is_excluded(SiteId site) const {
  return faults_.is_excluded(site, all_->agreed.is_voter(site), all_->now);
}

void Exclusions::begin_round() { faults_.begin_round(all_->members()); }

void Exclusions::exclude(SiteId site, const std::string& why) {
  faults_.set_aside(site);
  report_exclusion(all_->membership.name_of(site), why);
}

void Exclusions::report_exclusion(const std::string& name, const std::string& why) {
  const std::string round = std::to_string(all_->round.number().value);
  all_->note(Note::Level::kWarning, "straggler",
             "round " + round + " goes on without " + name + why +
                 "; what it trains counts in a later round [round.straggler]",
             {{"who", json_quote(name)}, {"round", round}});
}

// Counts failures that no other rule limits. A voter's failures count against the voter itself. A newcomer's count
// against all newcomers, as it may come again under another name.
void Exclusions::count_failure_of(SiteId site) {
  const std::string name = all_->membership.name_of(site);
  if (!all_->agreed.is_voter(site)) {
    if (faults_.newcomer_failed(all_->now - all_->round.attempt_started(), all_->config.standstill()))
      exclude_newcomers({{site, name}});
  } else if (faults_.count_failure(site)) {
    report_exclusion(name, ", which made an attempt fail " + times_text(kMaxFailures + 1) + " in this round");
  }
}

// The newcomers rest for as long as they have taken, as after a wait without success (round_gate.h).
void Exclusions::exclude_newcomers(const std::map<SiteId, std::string>& failed) {
  if (failed.empty()) return;
  const Member* first = nullptr;
  std::set<SiteId> because;
  std::vector<std::string> names;
  for (const auto& [id, name] : failed) {
    because.insert(id);
    names.push_back(name);
  }
  for (const auto& [id, member] : all_->members()) {
    if (member.helper || all_->agreed.is_voter(id) || because.contains(id) || member.phase() != MemberPhase::kActive)
      continue;
    if (first == nullptr || member.ticket < first->ticket) first = &member;
  }
  const Duration taken = std::max(all_->now - all_->round.attempt_started(), faults_.newcomers_cost());
  const Duration rest = std::min(taken, all_->config.standstill());
  const auto kept = first == nullptr ? std::nullopt : std::optional(first->id);
  if (!faults_.exclude_newcomers(because, kept, later(all_->now, rest))) return;
  const bool keeps = first != nullptr && !is_excluded(first->id);
  const std::string round = std::to_string(all_->round.number().value);
  all_->note(Note::Level::kWarning, "straggler",
             "round " + round + " goes on without the sites that have not been in any round yet" +
                 (keeps ? " (but with " + first->name + ", which came first)" : "") +
                 ": attempts at it failed because of " + join_words(names) + " [round.newcomers-out]",
             {{"who", json_list(names)}, {"round", round}});
}

// True if no round can be agreed on without this site. To leave it out would end all rounds without an error.
bool Exclusions::is_needed(SiteId site) const {
  std::set<SiteId> others = all_->membership.ids();
  others.erase(site);
  return !all_->membership.quorum_among(others).can_accept();
}

// Expels the site if it is no voter, or if no round can be agreed on without it. Otherwise it is only left out of the
// round: what other sites say of it may be a lie, and must not end its training.
void Exclusions::expel_or_exclude(SiteId id, const std::string& why, const std::string& code) {
  all_->changed = true;
  if (!all_->agreed.is_voter(id) || is_needed(id)) return all_->membership.expel(id, why + " " + code);
  exclude(id, ": " + why);
}

void Exclusions::lost(const Member& gone) {
  if (!all_->agreed.is_voter(gone.id)) {
    exclude_newcomers({{gone.id, gone.name}});
  } else if (faults_.count_failure(gone.id)) {
    report_exclusion(gone.name, ", which was lost " + times_text(kMaxFailures + 1));
  }
}

}  // namespace collab::protocol
