// What a simulated run must have kept, checked from outside the machines: the ledger of samples, the mean recomputed in
// double, one anchor for all. The machines' own rules are tests/unit/protocol/invariants.h.
//
// The mean is found again from what the outer step did to the anchor: means are not kept by the data plane. With a
// codec that is not lossless it may differ by what the codec may leave out.
//
// Threads: one. Ownership: its own records.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/runtime/data/data_plane.h"
#include "tests/unit/protocol/invariants.h"

namespace collab::sim {

// What one member brings to one attempt, as it stood when the exchange began.
struct Contribution {
  std::string process;
  double weight = 0;
  std::uint32_t fragment = 0;
  std::uint64_t from = 0;  // samples [from, to) of this process
  std::uint64_t to = 0;
  std::vector<float> delta;
  // What earlier payloads left out, and error feedback adds: to our delta on its way to other owners, to the mean of
  // what we own. Empty: nothing.
  std::vector<float> left_out_of_delta;
  std::vector<float> left_out_of_mean;
};

// What a commit did at one site.
struct OuterStep {
  const DataPlane::Settings& settings;
  std::span<const float> anchor;  // before
  std::span<const float> next;
  std::span<const float> outer;  // before; both empty without
  std::span<const float> next_outer;
};

class Checkers {
 public:
  protocol::Invariants invariants;

  void contributes(const wire::StartAttempt& start, SiteId site, Contribution contribution);
  void formed(const wire::StartAttempt&) { ++attempts_told_; }
  // From a coordinator's Commit: what counts now.
  void committed(const wire::Commit& commit);
  // The anchor in place at a process after its outer step.
  void holds(const std::string& process, const SealedAnchor& anchor);
  // A site took this outer step.
  void applied(const std::string& process, const wire::StartAttempt& start, const wire::Commit& commit,
               const OuterStep& step);
  // Under one leader, all sites that hold one anchor train equally long.
  using Told = std::tuple<TermId, RunId, RoundId>;
  void follows(const std::string& process, const Told& after, std::uint32_t period);
  // Samples [from, to) of this process. It was told that no site knows whether they were counted.
  void perhaps_counted(const std::string& process, std::uint32_t fragment, std::uint64_t from, std::uint64_t to);
  void fail(const std::string& what) { failures_.push_back(what); }

  // Samples [0, trained) are each counted in each fragment, or perhaps, when nothing went wrong for this process.
  void expect_all_counted(const std::string& process, std::uint64_t trained, std::uint32_t fragments);
  [[nodiscard]] std::vector<std::string> failures() const;
  [[nodiscard]] std::size_t commits() const { return commits_; }
  [[nodiscard]] std::size_t attempts() const { return attempts_told_; }  // as coordinators have told of them, to each

 private:
  struct Interval {
    std::uint64_t to = 0;
    RunId run;
    RoundId round;
  };
  using Attempt = std::tuple<RunId, RoundId, AttemptId>;
  // In double, element by element, and what codecs may have left out of it at most.
  struct Factor {
    double factor = 1;
    double uncertain = 0;
  };
  struct Mean {
    std::vector<double> value;
    std::vector<double> left_out;
    std::vector<Factor> factors;  // with `rda`, of each element's tensor
  };
  // What one site contributes, before its weight.
  struct Part {
    double share = 0;
    std::vector<double> value;
    std::vector<double> left_out;
  };
  [[nodiscard]] static Factor clip_of(const Mean& mean, const DataPlane::Settings& settings);
  [[nodiscard]] static Factor radial_of(const std::vector<Part>& parts, ElementRange tensor);
  [[nodiscard]] const Contribution* contribution(const Attempt& attempt, SiteId site) const;
  // Null: a contribution is not known. That was told at the commit.
  [[nodiscard]] const Mean* mean_of(const wire::StartAttempt& start, const wire::Commit& commit,
                                    const DataPlane::Settings& settings);
  [[nodiscard]] Mean weigh(const wire::StartAttempt& start, const wire::Commit& commit,
                           const DataPlane::Settings& settings);

  std::map<Attempt, std::map<SiteId, Contribution>> attempts_;
  std::map<Attempt, wire::StartAttempt> starts_;
  std::map<Attempt, Mean> means_;
  using Counted = std::map<std::uint64_t, Interval>;                  // by first sample
  std::map<std::pair<std::string, std::uint32_t>, Counted> counted_;  // by process and fragment
  // Likewise: from which sample to which.
  std::map<std::pair<std::string, std::uint32_t>, std::map<std::uint64_t, std::uint64_t>> perhaps_;
  // What was agreed on stands for ever: a round of a run has one content. To go on from less takes another run name.
  std::map<std::tuple<RunId, RoundId>, wire::Commit> committed_;
  std::map<std::tuple<RunId, RoundId>, std::pair<Digest, std::string>> anchors_;
  std::map<Told, std::pair<std::uint32_t, std::string>> periods_;  // and which process was the first to follow it
  std::size_t commits_ = 0;
  std::size_t attempts_told_ = 0;
  std::vector<std::string> failures_;
};

}  // namespace collab::sim
