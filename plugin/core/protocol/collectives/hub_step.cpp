#include "core/protocol/collectives/hub_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace collab::protocol {
namespace {

[[nodiscard]] bool alike(const wire::Contribute& a, const wire::Contribute& b) {
  return a.operation == b.operation && a.absence == b.absence && a.root == b.root;
}

}  // namespace

std::string call_text(const wire::Contribute& contribute) {
  return contribute.shape.empty() ? contribute.operation : contribute.operation + " " + contribute.shape;
}

std::optional<std::uint32_t> HubStep::find_call(std::uint64_t call) const {
  const auto found = first_in_call_.find(call);
  if (found == first_in_call_.end()) return std::nullopt;
  if (parts_.at(found->second).contribute.call == call) return found->second;
  for (const auto& [member, part] : parts_) {
    if (part.contribute.call == call) return member;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> HubStep::stray() const {
  if (!mixed_) return std::nullopt;
  for (const auto& [member, part] : parts_) {
    if (!alike(parts_.begin()->second.contribute, part.contribute)) return member;
  }
  return std::nullopt;
}

const HubPart* HubStep::overdue(TimePoint now) const {
  if (now < deadline_) return nullptr;
  const HubPart* first = nullptr;
  for (const auto& [member, part] : parts_) {
    if (now >= part.deadline && (first == nullptr || part.since < first->since)) first = &part;
  }
  return first;
}

std::vector<std::pair<std::uint32_t, Payload>> HubStep::parts_for(std::uint32_t member) const {
  const auto mine = parts_.find(member);
  if (has_failed() || mine == parts_.end() || !mine->second.contribute.wants) return {};
  std::vector<std::pair<std::uint32_t, Payload>> given;
  for (const std::uint32_t from : givers_) {
    if (from == member || std::ranges::binary_search(result_->absent, from)) continue;
    const HubPart& part = parts_.at(from);
    Payload payload = part.payload;
    if (const std::vector<std::uint64_t>& ends = part.contribute.splits; !ends.empty()) {
      const std::uint64_t begin = member == 0 ? 0 : ends[member - 1];
      payload.offset += begin;
      payload.bytes = ends[member] - begin;
    }
    if (payload.bytes > 0) given.emplace_back(from, std::move(payload));
  }
  return given;
}

void HubStep::add(std::uint32_t member, HubPart part) {
  if (const auto before = parts_.find(member); before != parts_.end()) {  // its link was lost since; its time runs on
    part.since = before->second.since;
    part.deadline = std::min(part.deadline, before->second.deadline);
    bytes_ -= before->second.payload.bytes;
    givers_.erase(member);
  }
  const wire::Contribute& call = part.contribute;
  mixed_ = mixed_ || (!parts_.empty() && !alike(parts_.begin()->second.contribute, call));
  std::uint32_t& first = first_in_call_.try_emplace(call.call, member).first->second;
  first = std::min(first, member);
  bytes_ += part.payload.bytes;
  if (part.payload.bytes > 0) givers_.insert(member);
  std::vector<std::uint64_t>& splits = part.contribute.splits;
  std::partial_sum(splits.begin(), splits.end(), splits.begin());
  deadline_ = std::min(deadline_, part.deadline);
  if (!late_) watch_.set_deadline(deadline_);
  parts_.insert_or_assign(member, std::move(part));
}

void HubStep::pass_charges(const HubBudget& from, HubBudget& to) {
  for (auto& [member, part] : parts_) {
    if (part.charge.is_of(from)) part.charge = HubCharge(to, part.charge.bytes());
  }
}

void HubStep::decide(wire::StepResult result, TimePoint now) {
  result_ = std::move(result);
  decided_at_ = now;
  watch_.end();
  if (!has_failed()) return;
  for (auto& [member, part] : parts_) {
    part.charge.set(part.charge.bytes() - part.payload.bytes);
    part.payload = {};
  }
  givers_.clear();
  bytes_ = 0;
}

// A late step cannot be ended while absent members may hold a result. It ends once they have come.
void HubStep::note_late(TimePoint now) {
  late_ = now >= deadline_;
  if (late_) watch_.set_deadline(kNever);
}

}  // namespace collab::protocol
