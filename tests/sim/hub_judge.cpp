#include "tests/sim/hub_judge.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "core/base/prng.h"
#include "tests/unit/protocol/hub_world.h"

namespace collab::sim {

using namespace protocol;

std::string HubScript::part_of(std::size_t group, std::uint32_t rank, std::uint64_t step) {
  return std::to_string(group) + "/" + std::to_string(rank) + "/" + std::to_string(step);
}

HubRequest HubScript::request(std::size_t group, std::uint64_t step) const {
  SplitMix64 hash(group * kMostSteps + step);
  const std::uint64_t kind = hash.next() % 10;
  HubRequest request;
  request.id = group * kMostSteps + step;
  request.group = id_of(group);
  request.operation = "call " + std::to_string(step);
  request.absence = kind < 6 ? wire::Absence::kProceeds : kind < 8 ? wire::Absence::kFails : wire::Absence::kNeedsRoot;
  request.root = static_cast<std::uint32_t>(hash.next() % groups[group].size());
  request.timeout = std::chrono::seconds(hash.next() % 3 == 0 ? 3 : 20);
  return request;
}

// ---- memberships -----------------------------------------------------------------------------------

void HubJudge::told(std::uint32_t rank, const wire::Message& message) {
  if (const auto* m = std::get_if<wire::ChosenEpoch>(&message)) return told_membership(rank, m->epoch);
  if (const auto* m = std::get_if<wire::StepResult>(&message); m != nullptr && forgets_) {
    const std::uint64_t group = (m->group.value - HubScript::id_of(0).value) / 2;
    hubs_[{rank, {group, m->step}}] = m->ballot.hub;
  }
  const auto* entered = std::get_if<wire::Entered>(&message);
  if (entered == nullptr) return;
  if (std::ranges::binary_search(entered->chosen.gone, RankId(rank))) {
    broke_("rank " + std::to_string(rank) + " is let in, and is gone");
  }
  told_membership(rank, entered->chosen);
}

void HubJudge::told_membership(std::uint32_t rank, const wire::Epoch& epoch) {
  if (epoch.number == 0) return;
  gone_as_told_[rank] = epoch.gone;
  if (epoch.number > parted_at_ || forgets_) return;
  const auto [known, fresh] = chain_.try_emplace(epoch.number, epoch.gone);
  if (!fresh && known->second != epoch.gone) {
    if (sites_before(epoch.number) > 2) {
      return broke_("rank " + std::to_string(rank) + " is told another membership " + std::to_string(epoch.number));
    }
    parted_at_ = epoch.number;
  }
  const auto before = chain_.find(epoch.number - 1);
  if (before != chain_.end() && !std::ranges::includes(epoch.gone, before->second)) {
    broke_("membership " + std::to_string(epoch.number) + " brings back who was gone");
  }
}

// The sites that were not gone then.
std::size_t HubJudge::sites_before(std::uint64_t membership) const {
  const auto before = chain_.find(membership - 1);
  std::set<std::string> sites;
  for (std::uint32_t i = 0; i < sites_.size(); ++i) {
    const bool gone = before != chain_.end() && std::ranges::binary_search(before->second, RankId(i));
    if (!gone) sites.insert(sites_[i]);
  }
  return sites.size();
}

bool HubJudge::leaves_out(std::uint32_t rank, std::uint32_t other) const {
  const auto told = gone_as_told_.find(rank);
  return told != gone_as_told_.end() && std::ranges::binary_search(told->second, RankId(other));
}

// ---- results ---------------------------------------------------------------------------------------

void HubJudge::given(std::uint32_t rank, const HubExchanged& exchanged) {
  const Step at{HubScript::group_of(exchanged.id), HubScript::step_of(exchanged.id)};
  const std::string error = exchanged.status.message();
  ++answers_;
  if (error.ends_with("[hub.too-late]")) {
    if (!forgets_) broke_("a step was lost: " + error);
    return;
  }
  if (exchanged.status.ok()) check_parts(rank, at, exchanged);
  const auto word = hubs_.find({rank, at});
  const Given now{rank, word == hubs_.end() ? 0 : word->second, error, exchanged.absent};
  for (const Given& other : given_[at]) {
    if (other.hub != now.hub || (other.error == error && other.absent == now.absent)) continue;
    if (parted() && (leaves_out(rank, other.rank) || leaves_out(other.rank, rank))) continue;
    return broke_("step " + std::to_string(at.second) + " of group " + std::to_string(at.first) + " is \"" + error +
                  "\" without " + std::to_string(now.absent.size()) + " at rank " + std::to_string(rank) + ", \"" +
                  other.error + "\" without " + std::to_string(other.absent.size()) + " at rank " +
                  std::to_string(other.rank));
  }
  given_[at].push_back(now);
}

void HubJudge::check_parts(std::uint32_t rank, const Step& at, const HubExchanged& exchanged) {
  const std::vector<RankId>& members = script_.groups[at.first];
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    const std::uint32_t from = members[i].value;
    const bool none = from == rank || std::ranges::binary_search(exchanged.absent, i);
    const std::string part = none ? "" : HubScript::part_of(at.first, from, at.second);
    if (testing::HubTestWorld::text_of(exchanged.parts[i]) == part) continue;
    broke_("rank " + std::to_string(rank) + " was given another part of rank " + std::to_string(from));
  }
}

}  // namespace collab::sim
