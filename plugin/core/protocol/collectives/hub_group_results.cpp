// How a step of a group ends: decided by the hub, held by its members, standing once all that are not gone hold it.
#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_group.h"
#include "core/protocol/collectives/hub_parts.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMaxSteps = 64;  // failed ones that a member has not taken, of the only hub

}  // namespace

void HubGroup::settle(std::uint64_t number) {
  const auto found = steps_.find(number);
  if (found == steps_.end()) return;
  if (found->second.result()) return conclude(number);
  switch (phase_of(number)) {
    case Phase::kOpen: return try_to_decide(number);
    case Phase::kUnknown: return;
    case Phase::kHeld: return stand(number);
    case Phase::kStands: return pass_on(number);
  }
}

// Who is here has promised our ballot: what it does not hold now it will hold under no older one, and without it
// nothing stands.
HubGroup::Phase HubGroup::phase_of(std::uint64_t number) const {
  if (number <= world_.memory.newest_standing(id())) return Phase::kStands;
  std::optional<wire::Ballot> under;
  bool all_here = true;
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (is_away(i)) continue;
    if (!world_.ranks[members()[i]].in) {
      all_here = false;
      continue;
    }
    const std::optional<wire::Ballot> held = world_.memory.held(members()[i], id(), number);
    if (!held || (under && *under != *held)) return Phase::kOpen;
    under = held;
  }
  return all_here && under ? Phase::kHeld : Phase::kUnknown;
}

void HubGroup::try_to_decide(std::uint64_t number) {
  const HubStep& step = steps_.at(number);
  if (step.parts().empty()) return;
  if (!given_up_.empty()) return fail(number, given_up_);
  const auto& [first_member, first] = *step.parts().begin();
  if (const auto stray = step.stray()) {
    return fail(number, calls_differ(in_call_text(first_member, first.contribute),
                                     in_call_text(*stray, step.parts().at(*stray).contribute)));
  }
  wire::StepResult result;
  for (std::uint32_t i = 0; i < size(); ++i) {
    const auto part = step.parts().find(i);
    if (part == step.parts().end() && !is_away(i)) return time_out(number);
    if (part == step.parts().end() || part->second.contribute.absent) result.absent.push_back(i);
  }
  std::string why = why_failed(first.contribute, result.absent);
  why.empty() ? decide(number, std::move(result)) : fail(number, std::move(why));
}

// Why a step fails without these; empty: it goes on.
std::string HubGroup::why_failed(const wire::Contribute& call, const std::vector<std::uint32_t>& absent) const {
  const bool root_only = call.absence == wire::Absence::kNeedsRoot;
  const bool root_away = std::ranges::binary_search(absent, call.root);
  if (absent.empty() || (call.absence != wire::Absence::kFails && !(root_only && root_away))) return "";
  const std::uint32_t who = root_only ? call.root : absent.front();
  const HubRank& rank = world_.ranks[members()[who]];
  std::string why = call.operation + " needs every part of it, and " + world_.ranks.text(members()[who]);
  if (!is_away(who)) {
    why += " cannot give its own: its site has lost a rank";
  } else {
    why += !rank.gone.empty() ? " is gone: " + rank.gone : rank.left ? " has left" : " has closed this group";
  }
  return why + " [hub.part-missing]";
}

void HubGroup::time_out(std::uint64_t number) {
  const HubStep& step = steps_.at(number);
  const HubPart* const first = step.overdue(world_.hub.now);
  if (first == nullptr) return;
  std::vector<RankId> missing;
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (!step.has(i)) missing.push_back(members()[i]);
  }
  fail(number, call_text(first->contribute) + " was given up after " + in_seconds(world_.hub.now - first->since) +
                   ", the group's time-out: " + world_.ranks.texts(missing) +
                   " did not come to it in time [hub.ranks-late]");
}

void HubGroup::fail(std::uint64_t number, std::string error) {
  wire::StepResult result;
  result.error = std::move(error);
  decide(number, std::move(result));
}

void HubGroup::decide(std::uint64_t number, wire::StepResult result) {
  HubStep& step = steps_.at(number);
  result.group = id();
  result.step = number;
  result.ballot = world_.membership.ballot();
  result.stands = world_.only_hub;
  step.decide(std::move(result));
  newest_decided_ = std::max(newest_decided_, number);
  for (std::uint32_t i = 0; i < size(); ++i) {
    // An error is also for those who have not come to the step: it does not stand without them.
    if (step.has_failed() || step.has(i)) answer(number, i);
  }
  conclude(number);
}

void HubGroup::answer(std::uint64_t number, std::uint32_t member) {
  const RankId rank = members()[member];
  if (!world_.ranks[rank].in || is_away(member)) return;
  const HubStep& step = steps_.at(number);
  for (auto& [from, payload] : step.parts_for(member)) {
    world_.send(rank, wire::Part{id(), number, from}, std::move(payload));
  }
  world_.send(rank, *step.result());
}

// Of a step that was decided here: whether all hold it.
void HubGroup::conclude(std::uint64_t number) {
  const wire::Ballot& ballot = world_.membership.ballot();
  for (std::uint32_t i = 0; i < size(); ++i) {
    const RankId rank = members()[i];
    const bool holds = world_.only_hub ? completed_by(i) >= number
                                       : world_.ranks[rank].in && world_.memory.held(rank, id(), number) == ballot;
    if (holds || is_away(i)) continue;
    while (world_.only_hub && steps_.size() > kMaxSteps) steps_.erase(steps_.begin());
    return;
  }
  stand(number);
}

void HubGroup::stand(std::uint64_t number) {
  world_.memory.note_standing(opener_, id(), number);
  pass_on(number);
}

// It stands: who holds it may give it to its caller.
void HubGroup::pass_on(std::uint64_t number) {
  const HubStep step = std::move(steps_.at(number));
  steps_.erase(number);
  for (std::uint32_t i = 0; i < size(); ++i) {
    const RankId rank = members()[i];
    if (!world_.ranks[rank].in || is_away(i) || completed_by(i) >= number) continue;
    if (world_.memory.held(rank, id(), number)) {
      world_.memory.complete(rank, id(), number);
      world_.send(rank, wire::Stands{id(), number});
    } else if (step.has(i)) {
      // Only where the only hub has forgotten it: it has died, or this rank came too late.
      world_.send(rank, wire::StepResult{id(),
                                         number,
                                         world_.membership.ballot(),
                                         true,
                                         {},
                                         "another rank has completed this step of the group with an earlier "
                                         "coordinator, or long ago; this rank fell too far behind [hub.too-late]"});
    }
  }
}

}  // namespace collab::protocol
