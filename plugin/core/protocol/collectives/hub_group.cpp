// What comes to a group, and what it may hold.
#include "core/protocol/collectives/hub_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/protocol/collectives/hub_parts.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {
namespace {

[[nodiscard]] std::size_t cost_of(const wire::Contribute& contribute, std::size_t bytes) {
  return kPartCost + sizeof(std::uint64_t) * contribute.splits.size() + bytes;
}

}  // namespace

std::string calls_differ(const std::string& one, const std::string& other) {
  return "the ranks are not in the same call: " + one + ", " + other + " [hub.calls-differ]";
}

HubGroup::HubGroup(HubWorld& world, const wire::Assemble& message, RankId opener, HubCharge charge)
    : world_(world), open_(message), opener_(opener), charge_(std::move(charge)), assembled_(message.members.size()) {}

std::optional<std::uint32_t> HubGroup::member_of(RankId rank) const {
  const auto found = std::ranges::find(members(), rank);
  if (found == members().end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - members().begin());
}

bool HubGroup::is_away(std::uint32_t member) const {
  const RankId rank = members()[member];
  return world_.ranks[rank].away() || world_.memory.has_closed(rank, id());
}

std::uint64_t HubGroup::completed_by(std::uint32_t member) const {
  return world_.memory.completed(members()[member], id());
}

bool HubGroup::is_deserted() const {
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (!is_away(i)) return false;
  }
  return true;
}

bool HubGroup::waits_to_send() const {
  return std::ranges::any_of(steps_, [](const auto& step) { return !step.second.result() && step.second.has(0); });
}

std::size_t HubGroup::bytes_held() const {
  std::size_t bytes = 0;
  for (const auto& [number, step] : steps_) bytes += step.bytes();
  return bytes;
}

TimePoint HubGroup::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [number, step] : steps_) next = std::min(next, step.next_deadline());
  return next;
}

std::string HubGroup::in_call_text(std::uint32_t member, const wire::Contribute& in) const {
  return world_.ranks.text(members()[member]) + " is in " + call_text(in);
}

std::string HubGroup::who_is_in(std::uint64_t call) const {
  for (const auto& [number, step] : steps_) {
    if (step.result()) continue;
    for (const auto& [member, part] : step.parts()) {
      if (part.contribute.call == call) return in_call_text(member, part.contribute);
    }
  }
  return "";
}

void HubGroup::tell_calls(CallsUnderWay& calls) const {
  for (const auto& [number, step] : steps_) {
    if (step.result()) continue;
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
}

bool HubGroup::contribute(std::uint32_t member, const wire::Contribute& message, const Payload& payload) {
  if (const std::string why = why_bad(member, message, payload.bytes); !why.empty()) {
    world_.refuse(members()[member], why);
    return false;
  }
  if (message.step <= completed_by(member)) return false;  // its error was on the way to it
  const auto begun = steps_.find(message.step);
  if (begun != steps_.end() && begun->second.result()) {
    if (!begun->second.has_failed()) answer(message.step, member);  // else it was told before it came
    return false;
  }
  if (const std::string why = why_not_held(member, message, payload.bytes); !why.empty()) {
    world_.refuse(members()[member], why);
    return false;
  }
  const TimePoint now = world_.hub.now;
  const TimePoint deadline =
      message.timeout_ms == 0 ? kNever : later(now, std::chrono::milliseconds(message.timeout_ms));
  HubCharge charge(world_.memory.parts(members()[member]), cost_of(message, payload.bytes));
  steps_[message.step].add(member, {message, payload, now, deadline, std::move(charge)});
  return true;
}

std::string HubGroup::why_bad(std::uint32_t member, const wire::Contribute& message, std::size_t bytes) const {
  std::uint64_t total = 0;
  for (const std::uint64_t split : message.splits) total += split;
  if (!message.splits.empty() && (message.splits.size() != size() || total != bytes)) {
    return message.operation + " was split for " + std::to_string(message.splits.size()) + " members into " +
           std::to_string(total) + " bytes, the group has " + std::to_string(size()) + " and came " +
           std::to_string(bytes) + " [hub.bad-split]";
  }
  const std::uint64_t completed = completed_by(member);
  if (message.step <= completed + 1) return "";
  return "step " + std::to_string(message.step) + " follows " + std::to_string(completed) + " [hub.step-order]";
}

std::string HubGroup::why_not_held(std::uint32_t member, const wire::Contribute& message, std::size_t bytes) const {
  const std::string what =
      world_.ranks.text(members()[member]) + " brings " + in_bytes(bytes) + " to " + call_text(message);
  if (bytes > kMaxHubPart) {
    return what + ": a part is at most " + in_bytes(kMaxHubPart) +
           "; bring longer ones in several steps [hub.part-long]";
  }
  std::size_t others = 0;
  std::size_t mine = 0;
  if (const auto step = steps_.find(message.step); step != steps_.end()) {
    for (const auto& [from, part] : step->second.parts()) {
      (from == member ? mine : others) += from == member ? part.charge.bytes() : part.payload.bytes;
    }
  }
  const std::size_t even = kMaxHubStep / size();
  if (bytes > even && others + bytes > kMaxHubStep) {
    return what + ", to which others have brought " + in_bytes(others) + ": a step carries at most " +
           in_bytes(kMaxHubStep) + ", " + in_bytes(even) + " for each of " + std::to_string(size()) +
           " members; bring longer ones in several steps [hub.step-long]";
  }
  const HubBudget& budget = world_.memory.parts(members()[member]);
  const HubTotal& all = budget.all();
  const std::size_t more = cost_of(message, bytes);
  if (more <= mine || budget.fits(more - mine)) return "";
  const std::string held =
      what + ", and " + in_bytes(budget.held() - mine) + " of its parts are held until others take them: ";
  if (budget.held() + more - mine > all.each()) {
    return held + "at most " + in_bytes(all.each()) + " of a rank are; start fewer calls at once [hub.parts-held]";
  }
  return held + "this coordinator holds " + in_bytes(all.held()) + " of at most " + in_bytes(all.most()) +
         ", and a rank's share is then " + in_bytes(budget.share()) + "; start fewer calls at once [hub.parts-held]";
}

void HubGroup::on_result_ack(std::uint32_t member, const wire::ResultAck& message) {
  const RankId rank = members()[member];
  const std::uint64_t step = message.step;
  if (step <= world_.memory.newest_standing(id()) || (world_.only_hub && step <= newest_decided_)) {
    world_.memory.complete(rank, id(), step);
  } else if (!world_.only_hub && steps_.contains(step)) {
    world_.memory.hold(rank, id(), step, message.ballot);
  }
  settle(step);
}

void HubGroup::give_up(const std::string& why) {
  given_up_ = why;
  settle();
}

void HubGroup::tell_errors(std::uint32_t member) {
  for (const auto& [number, step] : steps_) {
    if (step.has_failed() && number > completed_by(member)) answer(number, member);
  }
}

void HubGroup::catch_up() {
  for (const RankId member : members()) {
    if (!world_.ranks[member].in) continue;
    for (const auto& [number, ballot] : world_.memory.held(member, id())) steps_.try_emplace(number);
  }
  settle();
}

void HubGroup::settle() {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, step] : steps_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) settle(number);
}

void HubGroup::note_late() {
  for (auto& [number, step] : steps_) step.note_late(world_.hub.now);
}

}  // namespace collab::protocol
