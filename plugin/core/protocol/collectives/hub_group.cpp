#include "core/protocol/collectives/hub_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/protocol/collectives/hub_parts.h"
#include "core/protocol/formatting.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kMaxSteps = 64;   // failed steps that an only hub keeps for members that have not taken them
constexpr std::uint64_t kFarAhead = 8;  // steps ahead of the last step that a living member has reached

}  // namespace

std::size_t cost_of(const wire::Contribute& contribute, std::size_t bytes) {
  return kPartCost + sizeof(std::uint64_t) * contribute.splits.size() + bytes;
}

std::string calls_differ(const std::string& one, const std::string& other) {
  return "the ranks are not in the same call: " + one + ", " + other + " [hub.calls-differ]";
}

HubGroup::HubGroup(HubWorld& world, const wire::Assemble& message, HubCharge charge)
    : world_(world), open_(message), charge_(std::move(charge)), assembled_(size()), came_(size()) {
  for (std::uint32_t i = 0; i < size(); ++i) places_.emplace(members()[i], i);
}

std::optional<std::uint32_t> HubGroup::member_of(RankId rank) const {
  const auto found = places_.find(rank);
  return found == places_.end() ? std::nullopt : std::optional(found->second);
}

bool HubGroup::is_away(std::uint32_t member) const {
  const RankId rank = members()[member];
  return world_.ranks[rank].away() || world_.memory.has_closed(rank, id());
}

std::uint64_t HubGroup::completed_by(std::uint32_t member) const {
  return world_.memory.completed(members()[member], id());
}

template <typename F>
bool HubGroup::any_member(std::uint32_t& hint, F is_so) const {
  for (std::uint32_t n = 0; n < size(); ++n) {
    world_.hub.counters.looked_at(1);
    const std::uint32_t i = (hint + n) % size();
    if (!is_so(i)) continue;
    hint = i;
    return true;
  }
  return false;
}

// Looks only at members that have opened the group here. If the hub has restarted, the others are on their way.
bool HubGroup::is_far_ahead(std::uint64_t step) const {
  for (std::uint32_t i = 0; step > kFarAhead && i < size(); ++i) {
    if (came_[i] < step - kFarAhead && assembled_[i] && !is_away(i)) return true;
  }
  return false;
}

void HubGroup::assemble(std::uint32_t member) {
  if (!assembled_[member]) came_[member] = std::max(came_[member], completed_by(member));
  assembled_[member] = true;
}

bool HubGroup::is_abandoned() const {
  return !any_member(here_, [this](std::uint32_t i) { return !is_away(i); });
}

bool HubGroup::waits_to_send() const {
  return std::ranges::any_of(steps_, [](const auto& step) { return !step.second.result() && step.second.has(0); });
}

std::size_t HubGroup::bytes_held() const {
  std::size_t bytes = 0;
  for (const auto& [number, step] : steps_) bytes += step.bytes();
  return bytes;
}

std::string HubGroup::in_call_text(std::uint32_t member, const wire::Contribute& in) const {
  return world_.ranks.text(members()[member]) + " is in " + call_text(in);
}

const wire::Contribute* HubGroup::find_call(std::uint64_t call, std::uint32_t& in) const {
  for (const auto& [number, step] : steps_) {
    const auto member = step.result() ? std::nullopt : step.find_call(call);
    if (!member) continue;
    in = *member;
    return &step.parts().at(in).contribute;
  }
  return nullptr;
}

void HubGroup::collect_calls(std::uint64_t number, CallsUnderWay& calls) const {
  const HubStep& step = steps_.at(number);
  std::set<std::string> awaits;
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (!step.has(i) && !is_away(i)) awaits.insert(world_.ranks.site(members()[i]));
  }
  for (const auto& [member, part] : step.parts()) {
    if (is_away(member)) continue;
    InCall& call = calls.sites[world_.ranks.site(members()[member])];
    call.call = call_text(part.contribute);
    call.awaits.insert(awaits.begin(), awaits.end());
    call.stands_still = call.stands_still || part.contribute.operation.starts_with(kStandsStill);
  }
}

bool HubGroup::contribute(std::uint32_t member, const wire::Contribute& message, const Payload& payload) {
  if (const std::string why = why_bad(member, message, payload.bytes); !why.empty()) {
    world_.refuse(members()[member], why);
    return false;
  }
  if (message.step <= completed_by(member)) {
    // Its error was on the way to the member. Or the member holds the error of a later step, and an only hub has
    // forgotten this one.
    if (world_.only_hub) send_too_late(message.step, member);
    return false;
  }
  const auto begun = steps_.find(message.step);
  if (begun != steps_.end() && begun->second.result()) {
    if (!begun->second.has_failed()) answer(message.step, member);  // an error was sent before the part came
    return false;
  }
  if (const auto slow = find_slow_receiver(member, message, payload.bytes)) {
    fail_for(member, message, unacknowledged_text(*slow, message));
    return false;
  }
  const RankId rank = members()[member];
  std::string lacking = why_not_held(member, message, payload.bytes);
  if (!lacking.empty() && !is_crowded_out(member, message, payload.bytes)) {
    world_.refuse(rank, lacking);
    return false;
  }
  const TimePoint now = world_.hub.now;
  Duration timeout = std::chrono::milliseconds(message.timeout_ms);
  // A rank that is busy computing must not get more failures than it may hold.
  const Duration grace = world_.hub.config.link_grace;
  if (message.timeout_ms != 0 && timeout < grace && is_far_ahead(message.step)) timeout = grace;
  const TimePoint deadline = message.timeout_ms == 0 ? kNever : later(now, timeout);
  const std::size_t cost = cost_of(message, payload.bytes);
  if (lacking.empty()) {
    hold(member, {message, payload, now, deadline, HubCharge(world_.memory.parts(rank), cost)});
    return true;
  }
  std::optional<HubCharge> charge = charge_without_bytes(member, message);
  if (!charge) return false;
  hold(member, {message, {}, now, deadline, *std::move(charge), std::move(lacking)});
  return true;
}

// Charges the rank's memory, not its parts, so that a rank whose parts have no room is not refused for that. Empty: it
// is refused.
std::optional<HubCharge> HubGroup::charge_without_bytes(std::uint32_t member, const wire::Contribute& message) {
  const std::size_t cost = cost_of(message, 0);
  const RankId rank = members()[member];
  if (!world_.memory.require_room(rank, cost, "another step that fails")) return std::nullopt;
  return world_.memory.charge(rank, cost);
}

void HubGroup::hold(std::uint32_t member, HubPart part) {
  const std::uint64_t number = part.contribute.step;
  came_[member] = std::max(came_[member], number);
  HubStep& step = steps_[number];
  world_.hub.counters.calls_changed();
  step.watch(world_.groups.agenda(), {id(), number});
  step.add(member, std::move(part));
}

void HubGroup::fail_for(std::uint32_t member, const wire::Contribute& message, const std::string& why) {
  std::optional<HubCharge> charge = charge_without_bytes(member, message);
  if (!charge) return;
  hold(member, {message, {}, world_.hub.now, kNever, *std::move(charge)});
  fail(message.step, why);
}

std::string HubGroup::why_bad(std::uint32_t member, const wire::Contribute& message, std::size_t bytes) const {
  std::uint64_t total = 0;
  for (const std::uint64_t split : message.splits) total += split;
  if (!message.splits.empty() && (message.splits.size() != size() || total != bytes)) {
    return message.operation + " was split for " + std::to_string(message.splits.size()) + " members into " +
           std::to_string(total) + " bytes; the group has " + std::to_string(size()) + " and came " +
           std::to_string(bytes) + " [hub.bad-split]";
  }
  const std::uint64_t completed = completed_by(member);
  if (message.step <= completed + 1) return "";
  return "step " + std::to_string(message.step) + " follows " + std::to_string(completed) + " [hub.step-order]";
}

bool HubGroup::is_crowded_out(std::uint32_t member, const wire::Contribute& message, std::size_t bytes) const {
  const HubBudget& budget = world_.memory.parts(members()[member]);
  const std::size_t others = budget.held() - held_in_step(member, message.step);
  return lacks_room(member, message, bytes) && others + cost_of(message, bytes) <= budget.all().each();
}

std::size_t HubGroup::held_in_step(std::uint32_t member, std::uint64_t number) const {
  const auto step = steps_.find(number);
  if (step == steps_.end() || !step->second.has(member)) return 0;
  const HubCharge& charge = step->second.parts().at(member).charge;
  return charge.is_of(world_.memory.parts(members()[member])) ? charge.bytes() : 0;
}

bool HubGroup::lacks_room(std::uint32_t member, const wire::Contribute& message, std::size_t bytes) const {
  const auto step = steps_.find(message.step);
  const bool ended = message.step <= completed_by(member) || (step != steps_.end() && step->second.result());
  const std::size_t more = cost_of(message, bytes);
  const std::size_t mine = held_in_step(member, message.step);
  return !ended && more > mine && !world_.memory.parts(members()[member]).fits(more - mine);
}

void HubGroup::pass_charges(std::uint32_t member) {
  const RankId rank = members()[member];
  const HubTotal& all = world_.memory.parts(rank).all();
  if (all.held() >= 2 * all.most()) return;  // a rank that passes charges on has its share free again
  for (auto& [number, step] : steps_) {
    if (!step.result()) continue;
    std::uint32_t other = step.hint();
    const std::uint64_t decided = number;
    const auto is_late = [&](std::uint32_t i) { return i != member && lacks(i, decided); };
    if (!any_member(other, is_late)) continue;
    HubBudget& unacknowledged = world_.memory.unacknowledged(members()[other]);
    step.pass_charges(world_.memory.parts(rank), unacknowledged);
    if (!lacks(member, number)) step.pass_charges(world_.memory.unacknowledged(rank), unacknowledged);
  }
}

// If a member does not take the parts of others, the hub must not fill up with more parts for it.
std::optional<RankId> HubGroup::find_slow_receiver(std::uint32_t member, const wire::Contribute& message,
                                                   std::size_t bytes) const {
  const HubTotal& all = world_.memory.parts(members()[member]).all();
  if (bytes == 0 || 2 * all.held() < all.most() || is_far_ahead(message.step)) return std::nullopt;
  for (std::uint32_t i = 0; i < size(); ++i) {
    const RankId rank = members()[i];
    if (i == member || is_away(i) || !world_.memory.leaves_too_much(rank)) continue;
    return phase_of(message.step) == Phase::kOpen ? std::optional(rank) : std::nullopt;
  }
  return std::nullopt;
}

std::string HubGroup::unacknowledged_text(RankId slow, const wire::Contribute& message) const {
  return call_text(message) + " has " + world_.ranks.text(slow) + " as a member, which has not taken " +
         in_bytes(world_.memory.unacknowledged(slow).held()) +
         " of what others have contributed; look at that rank's process and line [hub.parts-untaken]";
}

bool HubGroup::is_late(std::uint32_t member) const {
  return std::ranges::any_of(steps_, [&](const auto& entry) {
    const auto& [number, step] = entry;
    const bool due = step.result() && world_.hub.now >= later(step.decided_at(), world_.hub.config.link_grace);
    return due && lacks(member, number);
  });
}

std::string HubGroup::why_not_held(std::uint32_t member, const wire::Contribute& message, std::size_t bytes) const {
  const std::string what =
      world_.ranks.text(members()[member]) + " contributes " + in_bytes(bytes) + " to " + call_text(message);
  if (bytes > kMaxHubPart) {
    return what + ": a part is at most " + in_bytes(kMaxHubPart) +
           "; contribute longer ones in several steps [hub.part-long]";
  }
  std::size_t others = 0;
  if (const auto step = steps_.find(message.step); step != steps_.end()) {
    const auto before = step->second.parts().find(member);
    const bool again = before != step->second.parts().end();
    others = step->second.bytes() - (again ? before->second.payload.bytes : 0);
  }
  const std::size_t even = kMaxHubStep / size();
  if (bytes > even && others + bytes > kMaxHubStep) {
    return what + ", to which others have contributed " + in_bytes(others) + ": a step carries at most " +
           in_bytes(kMaxHubStep) + ", " + in_bytes(even) + " for each of " + std::to_string(size()) +
           " members; contribute longer ones in several steps [hub.step-long]";
  }
  const HubBudget& budget = world_.memory.parts(members()[member]);
  const HubTotal& all = budget.all();
  const std::size_t more = cost_of(message, bytes);
  const std::size_t mine = held_in_step(member, message.step);
  if (!lacks_room(member, message, bytes)) return "";
  const std::string held =
      what + ", and " + in_bytes(budget.held() - mine) + " of its parts are held until others take them: ";
  if (budget.held() + more - mine > all.each()) {
    return held + "at most " + in_bytes(all.each()) +
           " are held for one rank; start fewer calls at once [hub.parts-held]";
  }
  return held + "this coordinator holds " + in_bytes(all.held()) + " of at most " + in_bytes(all.most()) +
         ", and a rank's share is then " + in_bytes(budget.share()) + "; start fewer calls at once [hub.parts-held]";
}

void HubGroup::on_result_ack(std::uint32_t member, const wire::ResultAck& message) {
  const RankId rank = members()[member];
  const std::uint64_t step = message.step;
  if (step <= newest_stood_ || (world_.only_hub && step <= newest_decided_)) {
    complete(member, step);
  } else if (!world_.only_hub && steps_.contains(step)) {
    world_.memory.hold(rank, id(), step, message.ballot);
  }
  settle(step);
}

void HubGroup::complete(std::uint32_t member, std::uint64_t step) {
  world_.memory.complete(members()[member], id(), step);
  most_completed_ = std::max(most_completed_, step);
}

void HubGroup::give_up(const std::string& why) {
  given_up_ = why;
  settle();
}

void HubGroup::send_errors(std::uint32_t member) {
  for (const auto& [number, step] : steps_) {
    if (step.has_failed() && number > completed_by(member)) answer(number, member);
  }
}

void HubGroup::catch_up() {
  world_.hub.counters.looked_at(size());
  std::set<std::uint64_t> held;
  for (const RankId member : members()) {
    if (!world_.ranks[member].in) continue;
    for (const auto& [number, ballot] : world_.memory.held(member, id())) held.insert(number);
  }
  // A member may name other steps each time it enters.
  std::erase_if(steps_, [&](const auto& step) {
    return step.second.parts().empty() && !step.second.result() && !held.contains(step.first);
  });
  for (const std::uint64_t number : held) steps_.try_emplace(number);
  settle();
}

void HubGroup::settle() {
  world_.hub.counters.looked_at(1);
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, step] : steps_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) settle(number);
}

void HubGroup::on_due(std::uint64_t number) {
  settle(number);
  if (const auto found = steps_.find(number); found != steps_.end()) found->second.note_late(world_.hub.now);
}

// ---- how a step ends

void HubGroup::settle(std::uint64_t number) {
  world_.hub.counters.looked_at(1);
  const auto found = steps_.find(number);
  if (found == steps_.end()) return;
  if (found->second.result()) return conclude(number);
  switch (phase_of(number)) {
    case Phase::kOpen: return try_to_decide(number);
    case Phase::kUnknown: return;
    case Phase::kHeld:
    case Phase::kStands: return stand(number);
  }
}

// Steps that members have completed stand, with earlier hubs or with this one. A member is not believed if it names
// steps that no other member can have reached.
bool HubGroup::has_stood(std::uint64_t number) const {
  if (number <= newest_stood_) return true;
  if (recalls_ != world_.memory.recalls()) {
    recalls_ = world_.memory.recalls();
    world_.hub.counters.looked_at(size());
    for (std::uint32_t i = 0; i < size(); ++i) most_completed_ = std::max(most_completed_, completed_by(i));
  }
  if (number > most_completed_) return false;
  world_.hub.counters.looked_at(size());
  std::vector<std::uint64_t> completed;
  for (std::uint32_t i = 0; i < size(); ++i) {
    const RankId rank = members()[i];
    const bool known = world_.ranks[rank].acceptor.value != 0 && !world_.memory.has_closed(rank, id());
    if (known) completed.push_back(completed_by(i));
  }
  std::ranges::sort(completed);
  while (completed.size() > 1 && completed.back() - completed[completed.size() - 2] > kMaxHeldOfGroup + 1) {
    completed.pop_back();
  }
  return !completed.empty() && number <= completed.back();
}

// A member that is here has promised our ballot. A result that it does not hold now, it will never hold under an older
// ballot. No result stands unless that member holds it.
HubGroup::Phase HubGroup::phase_of(std::uint64_t number) const {
  if (has_stood(number)) return Phase::kStands;
  const auto holds = [&](std::uint32_t i) { return world_.memory.held(members()[i], id(), number); };
  const auto is_open_for = [&](std::uint32_t i) { return !is_away(i) && world_.ranks[members()[i]].in && !holds(i); };
  if (any_member(holds_nothing_, is_open_for)) return Phase::kOpen;
  std::optional<wire::Ballot> under;
  bool all_here = true;
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (is_away(i)) continue;
    if (!world_.ranks[members()[i]].in) {
      all_here = false;
      continue;
    }
    const std::optional<wire::Ballot> held = holds(i);
    if (!held || (under && *under != *held)) return Phase::kOpen;
    under = held;
  }
  if (mutant(Mutant::kHeldIsDecidedAfresh)) return Phase::kOpen;
  return all_here && under ? Phase::kHeld : Phase::kUnknown;
}

void HubGroup::try_to_decide(std::uint64_t number) {
  HubStep& step = steps_.at(number);
  if (step.parts().empty()) return;
  if (!given_up_.empty()) return fail(number, given_up_);
  const auto& [first_member, first] = *step.parts().begin();
  if (const auto stray = step.stray()) {
    return fail(number, calls_differ(in_call_text(first_member, first.contribute),
                                     in_call_text(*stray, step.parts().at(*stray).contribute)));
  }
  if (any_member(step.hint(), [&](std::uint32_t i) { return !step.has(i) && !is_away(i); })) return time_out(number);
  wire::StepResult result;
  for (std::uint32_t i = 0; i < size(); ++i) {
    const auto part = step.parts().find(i);
    if (part == step.parts().end() || part->second.contribute.absent) {
      result.absent.push_back(i);
    } else if (!part->second.lacking.empty()) {
      return fail(number, part->second.lacking);
    }
  }
  std::string why = why_failed(first.contribute, result.absent);
  why.empty() ? decide(number, std::move(result)) : fail(number, std::move(why));
}

// Why a step fails without these members. Empty: it goes on.
std::string HubGroup::why_failed(const wire::Contribute& call, const std::vector<std::uint32_t>& absent) const {
  const bool root_only = call.absence == wire::Absence::kNeedsRoot;
  const bool root_away = std::ranges::binary_search(absent, call.root);
  if (absent.empty() || (call.absence != wire::Absence::kFails && !(root_only && root_away))) return "";
  const std::uint32_t who = root_only ? call.root : absent.front();
  const HubRank& rank = world_.ranks[members()[who]];
  std::string why = call.operation + " needs the parts of all its members, and " + world_.ranks.text(members()[who]);
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
                   " did not reach it in time [hub.ranks-late]");
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
  result.stands = world_.only_hub || mutant(Mutant::kResultStandsAtOnce);
  step.decide(std::move(result), world_.hub.now);
  world_.hub.counters.calls_changed();
  newest_decided_ = std::max(newest_decided_, number);
  for (std::uint32_t i = 0; i < size(); ++i) {
    // An error also goes to members that have not come to the step: it does not stand without them.
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

bool HubGroup::lacks(std::uint32_t member, std::uint64_t number) const {
  const RankId rank = members()[member];
  const bool holds =
      world_.only_hub ? completed_by(member) >= number
                      : world_.ranks[rank].in && world_.memory.held(rank, id(), number) == world_.membership.ballot();
  return !holds && !is_away(member);
}

// Ends a step that was decided here, once all members hold its result.
void HubGroup::conclude(std::uint64_t number) {
  const auto lacks_it = [&](std::uint32_t i) { return lacks(i, number); };
  if (!any_member(steps_.at(number).hint(), lacks_it)) return stand(number);
  while (world_.only_hub && steps_.size() > kMaxSteps) steps_.erase(steps_.begin());
}

// The step's result is final: members that hold it may return it to their callers.
void HubGroup::stand(std::uint64_t number) {
  newest_stood_ = std::max(newest_stood_, number);
  const HubStep step = std::move(steps_.at(number));
  world_.hub.counters.calls_changed();
  steps_.erase(number);
  for (std::uint32_t i = 0; i < size(); ++i) {
    const RankId rank = members()[i];
    if (!world_.ranks[rank].in || is_away(i) || completed_by(i) >= number) continue;
    if (world_.memory.held(rank, id(), number)) {
      complete(i, number);
      world_.send(rank, wire::Stands{id(), number});
    } else if (step.has(i)) {
      send_too_late(number, i);
    }
  }
}

// Tells a rank that others have completed this step without it: with an earlier hub, or long ago.
void HubGroup::send_too_late(std::uint64_t number, std::uint32_t member) {
  world_.send(members()[member],
              wire::StepResult{id(),
                               number,
                               world_.membership.ballot(),
                               true,
                               {},
                               "another rank has completed this step of the group with an earlier coordinator, or "
                               "long ago; this rank fell too far behind [hub.too-late]"});
}

}  // namespace collab::protocol
