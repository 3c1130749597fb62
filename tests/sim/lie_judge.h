// What a lie may cost those who do not lie: time up to so much, and memory. By the protocol's own rules a liar spoils
// the attempts that it is in, each for no longer than a grace, until the round goes on without it. Two that lie may say
// in turn that something moves: rounds wait for those for COLLAB_ROUND_TIMEOUT, and are not judged here.
//
// Threads: one. Ownership: its own marks; borrows the population, the network and the checkers.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/population.h"

namespace collab::sim {

class LieJudge {
 public:
  LieJudge(const Population& population, const Network& network, Checkers& checkers)
      : population_(population), network_(network), checkers_(checkers) {}

  // Once a second, where sites lie. `unfinished`: sites that train and can have rounds.
  void look(const std::vector<const SimSite*>& unfinished);

 private:
  // What is counted there, as of the last look, and when it was another number.
  struct Mark {
    std::size_t count = 0;
    TimePoint since{};
  };
  [[nodiscard]] bool are_most_honest(const std::vector<const SimSite*>& unfinished) const;
  [[nodiscard]] Duration round_takes() const;
  void expect_rounds(const std::vector<const SimSite*>& unfinished);
  void expect(Mark& mark, std::size_t count, Duration most, const std::string& what);
  void expect_little_memory();
  void expect_little(const std::string& process, std::size_t knows, std::size_t under_way);

  const Population& population_;
  const Network& network_;
  Checkers& checkers_;
  Mark attempts_;  // begun, and rounds
  Mark rounds_;
};

}  // namespace collab::sim
