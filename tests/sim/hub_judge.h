// What the ranks of a simulated world ask of their collective hubs, and what must hold of the answers, whatever happens
// to both. Each rank is given the same for a step, memberships form one chain, and a rank that is gone does not come
// back. An exception: two sites that have each gone on alone.
//
// Threads: one. Ownership: its own records; the script outlives the judge.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/collectives/hub_actions.h"

namespace collab::sim {

// The same at all ranks.
struct HubScript {
  std::vector<std::vector<RankId>> groups;

  [[nodiscard]] static GroupId id_of(std::size_t group) { return GroupId(10 + 2 * group); }
  // What a rank brings to a step.
  [[nodiscard]] static std::string part_of(std::size_t group, std::uint32_t rank, std::uint64_t step);
  // Without its part.
  [[nodiscard]] protocol::HubRequest request(std::size_t group, std::uint64_t step) const;
  // The group of a request.
  [[nodiscard]] static std::size_t group_of(std::uint64_t id) { return id / kMostSteps; }
  [[nodiscard]] static std::uint64_t step_of(std::uint64_t id) { return id % kMostSteps; }

 private:
  static constexpr std::uint64_t kMostSteps = 1000;
};

class HubJudge {
 public:
  using Broke = std::function<void(const std::string& what)>;
  // `forgets`: the only hub dies, and what it has decided alone is decided anew.
  HubJudge(const HubScript& script, std::vector<std::string> sites, bool forgets, Broke broke)
      : script_(script), sites_(std::move(sites)), forgets_(forgets), broke_(std::move(broke)) {}

  // Before the rank hears it.
  void told(std::uint32_t rank, const wire::Message& message);
  // Given by a hub, not by the rank's own time-out or end.
  void given(std::uint32_t rank, const protocol::HubExchanged& exchanged);

  [[nodiscard]] bool parted() const { return parted_at_ != UINT64_MAX; }
  [[nodiscard]] std::uint64_t answers() const { return answers_; }

 private:
  using Step = std::pair<std::size_t, std::uint64_t>;  // of a group
  struct Given {
    std::uint32_t rank;
    std::uint64_t hub;  // whose word it is, where that is another's to forget
    std::string error;
    std::vector<std::uint32_t> absent;
  };
  void told_membership(std::uint32_t rank, const wire::Epoch& epoch);
  void check_parts(std::uint32_t rank, const Step& at, const protocol::HubExchanged& exchanged);
  [[nodiscard]] bool leaves_out(std::uint32_t rank, std::uint32_t other) const;
  [[nodiscard]] std::size_t sites_before(std::uint64_t membership) const;

  const HubScript& script_;
  std::vector<std::string> sites_;  // of each rank
  bool forgets_;
  Broke broke_;
  std::map<std::uint64_t, std::vector<RankId>> chain_;
  std::map<std::uint32_t, std::vector<RankId>> gone_as_told_;
  std::map<std::pair<std::uint32_t, Step>, std::uint64_t> hubs_;  // that told a rank a step's result last
  std::uint64_t parted_at_ = UINT64_MAX;                          // the membership of which there are two
  std::map<Step, std::vector<Given>> given_;
  std::uint64_t answers_ = 0;
};

}  // namespace collab::sim
