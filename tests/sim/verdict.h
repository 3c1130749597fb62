// Whether a simulated swarm comes to a good end once the faults are over: one swarm again, rounds while they are
// possible, and all sites trained to the end or left alone.
//
// Threads: one. Ownership: its own marks; borrows the population and the checkers.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/lie_judge.h"
#include "tests/sim/population.h"

namespace collab::sim {

class Verdict {
 public:
  Verdict(Population& population, Network& network, Checkers& checkers, bool faults)
      : population_(population),
        network_(network),
        checkers_(checkers),
        faults_(faults),
        lies_(population, network, checkers) {}

  // Once a second of the run: gives processes up that have failed, and looks whether what must come does.
  void look();
  // All sites have ended, or wait for what cannot come.
  [[nodiscard]] bool finished() const;
  // At the end of the run.
  void judge();
  [[nodiscard]] std::size_t given_up() const { return given_up_; }

 private:
  [[nodiscard]] bool restarts() const;
  void restart_failed();
  [[nodiscard]] bool left_alone(const SimSite& site) const;
  // What each named site knows.
  struct Known {
    std::string name;
    wire::Record record;
  };
  // `aside`: sites that do not count, nor does what they say.
  struct Electors {
    std::uint32_t generation = 1;
    std::set<std::string> aside{};
    std::set<AcceptorId> left{};  // they count by name for good
  };
  [[nodiscard]] static bool is_newer(const Known& a, const Known& b);
  [[nodiscard]] bool may_elect(std::vector<Known> known, std::uint32_t generation) const;
  [[nodiscard]] static std::size_t witnesses(const std::vector<Known>& known);
  [[nodiscard]] bool can_go_on(const std::vector<Known>& known, Electors electors) const;
  [[nodiscard]] bool can_agree(const std::vector<wire::Voter>& voters, const Electors& electors) const;
  [[nodiscard]] bool has_begun() const;
  [[nodiscard]] bool somebody_trains() const;
  [[nodiscard]] bool waits_in_vain(const SimSite& site) const;
  // Sites that train a model of the lowest generation that is not over.
  [[nodiscard]] std::vector<const SimSite*> unfinished() const;
  [[nodiscard]] std::uint32_t lowest_generation() const;
  [[nodiscard]] TimePoint last_start() const;
  [[nodiscard]] Duration settles() const;
  [[nodiscard]] Duration round_takes() const;
  [[nodiscard]] bool is_fresh(const SimSite& site) const;
  [[nodiscard]] bool is_ahead(const SimSite& site) const;
  [[nodiscard]] bool more_can_go_on();
  [[nodiscard]] bool are_apart() const;
  [[nodiscard]] std::size_t processes_over() const;
  [[nodiscard]] std::uint64_t rounds_done() const;
  void expect_rounds_beside_a_claim();
  [[nodiscard]] bool knows_of_a_round() const;
  void expect_one_swarm();
  void expect_rounds();
  void judge(const SimSite& site);

  Population& population_;
  Network& network_;
  Checkers& checkers_;
  bool faults_;
  std::size_t given_up_ = 0;
  // Since then there was no fault, and no site went. Nor has the swarm begun, been lost, or gone on to another model.
  TimePoint calm_{};
  std::size_t over_ = 0;             // processes, then
  bool begun_ = false;               // a site holds an anchor
  std::uint32_t generation_ = 0;     // that is trained
  std::optional<std::size_t> able_;  // sites that are not left alone, as of the last look
  std::optional<TimePoint> looked_;  // for one swarm, and for rounds since
  std::uint64_t seen_ = 0;           // rounds done, then
  // Beside a claim: values of the last look, the time of the last round or departure, and whether an operator has
  // spoken since.
  std::size_t commits_ = 0, over_then_ = 0;
  TimePoint progressed_{};
  bool told_ = false;
  LieJudge lies_;
};

}  // namespace collab::sim
