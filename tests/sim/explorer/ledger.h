// What was agreed on in a world, and which samples are in it: each counts at most once in each fragment. The machines'
// own rules are tests/unit/protocol/invariants.h.
//
// Threads: one. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/protocol/actions.h"
#include "core/protocol/fragments.h"
#include "tests/sim/explorer/canon.h"

namespace collab::sim {

class Ledger {
 public:
  struct Part {  // samples [from, to) of a process
    std::string process;
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    bool operator==(const Part&) const = default;
  };

  explicit Ledger(std::uint32_t fragments = 1) : fragments_{fragments} {}

  // A process puts into an exchange what it has trained since its last contribution that counted.
  void contributes(const wire::StartAttempt& start, const std::string& site, const Part& part);
  void started(const wire::StartAttempt& start) { starts_.try_emplace({start.run, start.round, start.attempt}, start); }
  void committed(const wire::Commit& commit);
  // The swarm's anchor, as a leader tells it. Also the anchor of a run that it begins.
  void installed(const wire::InstallAnchor& install);
  // Whether that one has contributed to this attempt, or to an earlier one that counts for it.
  [[nodiscard]] bool has_part(const wire::StartAttempt& start, const wire::Participant& participant) const {
    return part_of(start, participant) != nullptr;
  }
  // Digests of the mean's slices, as each participant that has it computes them.
  [[nodiscard]] std::vector<Digest> mean_of(const wire::StartAttempt& start) const;

  // The voters of the newest anchor that was agreed on.
  [[nodiscard]] const std::vector<wire::Voter>& voters() const { return voters_; }
  void begin(const wire::Offer& anchor, std::vector<wire::Voter> voters);
  [[nodiscard]] std::size_t commits() const { return commits_.size(); }
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }
  void fail(const std::string& what) { broken_.push_back(what); }
  void write(Canon& canon) const;

 private:
  using Round = std::pair<RunId, RoundId>;
  using Attempt = std::tuple<RunId, RoundId, AttemptId>;
  [[nodiscard]] const Part* part_of(const wire::StartAttempt& start, const wire::Participant& participant) const;
  void is_newest(const Round& round, const std::vector<wire::Voter>& voters);

  std::map<Attempt, wire::StartAttempt> starts_;
  std::map<Attempt, std::map<std::string, Part>> parts_;  // by site
  std::map<Round, wire::Commit> commits_;
  protocol::Fragments fragments_;
  // By process and fragment: counted samples.
  std::map<std::pair<std::string, std::uint32_t>, std::map<std::uint64_t, std::uint64_t>> counted_;
  Round newest_{};
  std::vector<wire::Voter> voters_;
  std::vector<std::string> broken_;
};

}  // namespace collab::sim
