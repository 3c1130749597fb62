// The tensors of a simulated site: what the production data plane works on, and what is known of them from outside:
// which steps were trained and are not counted yet, by another way than parameters minus anchor.
//
// Threads: one. Ownership: owns arena and parameters; borrows the checkers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/prng.h"
#include "core/protocol/fragments.h"
#include "core/protocol/site/egress_budget.h"
#include "core/runtime/data/data_plane.h"
#include "core/runtime/tensors/host_vector.h"
#include "tests/sim/checkers.h"

namespace collab::sim {

enum class Mutation : std::uint8_t { kNone, kForgeDone, kCountTwice, kFlipBit, kLoseSteps, kCarryStale, kKeepWords };

// An anchor with all that belongs to it, as a state file holds it.
struct StoredAnchor {
  SealedAnchor sealed;
  std::vector<float> anchor;
  std::vector<float> outer;
  std::optional<StoredResidual> residual;
  protocol::Egress egress{};
};

class SimData {
 public:
  struct Options {
    std::string process;
    std::uint64_t elements = 5'000;
    protocol::Fragments fragments{};
    DataPlane::Settings settings = small();
    Mutation mutation = Mutation::kNone;
    std::uint64_t seed = 0;
    std::optional<MergeSettings> overlap{};  // rounds run behind the training
  };
  // Several tiles, chunks and windows for a few thousand elements.
  [[nodiscard]] static DataPlane::Settings small();

  SimData(const Options& options, Checkers& checkers);

  [[nodiscard]] ArenaWriter& arena() { return *arena_; }
  // What the site's node works on: the copy, where rounds run behind the training.
  [[nodiscard]] ParameterVector& parameters();
  [[nodiscard]] TrainingCopy* copy() { return copy_ ? &*copy_ : nullptr; }
  // The digest of the parameters as they are, as the first anchor.
  [[nodiscard]] Digest digest();

  // ---- what outlives the process
  void restore(const StoredAnchor& stored);
  // Nothing where no whole anchor is held.
  [[nodiscard]] std::optional<StoredAnchor> stored(const Residual& residual);

  // ---- training
  // Parameters take a step; buffers follow what the site sees, as batch statistics do.
  void train(Prng& prng);
  void add_samples(std::uint64_t samples) { now_.trained += samples; }
  void poison(Prng& prng);  // NaN in the parameters
  [[nodiscard]] std::uint64_t trained() const { return now_.trained; }
  [[nodiscard]] bool all_counted() const;
  [[nodiscard]] std::uint64_t counted() const;  // samples, on average over the fragments
  // By fragment: the first sample that is not counted yet.
  [[nodiscard]] const std::vector<std::uint64_t>& uncounted_from() const { return uncounted_from_; }

  // ---- rounds behind the training
  // A trigger: the round is to count what was trained so far.
  void trigger(bool merges);
  // The round's result is there; merge() puts it into what was trained meanwhile.
  void end_round();
  void merge();
  // The node's parameters into the script's.
  void take_back();

  // ---- around what the data plane does
  void before(const protocol::StartExchange& start, const Residual& residual);
  void before(const protocol::ApplyCommit& apply);
  // `seen`: any fault planted in this site's mean could have been seen.
  void after(const protocol::ApplyCommit& apply, bool seen);
  void before(const protocol::Rebase& rebase);
  void after(const protocol::Rebase& rebase);
  void take_snapshot();

  // Flips a bit of the anchor. Its digest becomes that of the changed anchor.
  Digest flip_anchor(std::uint64_t index);
  // From here on the model is not what was trained and agreed on, so that does not judge it.
  void excuse() { sound_ = false; }
  [[nodiscard]] bool is_sound() const { return sound_; }

 private:
  // What was trained and is not counted yet: parameters - anchor, by another way.
  struct Progress {
    std::vector<double> moves;
    std::uint64_t trained = 0;  // samples
  };

  [[nodiscard]] std::span<float> worked_on() {
    return copy_ ? std::span<float>(arena_->training_copy()) : parameters_.values();
  }
  [[nodiscard]] std::uint32_t fragment() const { return options_.fragments.in_turn(start_.round); }
  // In the fragment of the attempt that started last. For a model that was given up, in all fragments.
  void count(const Progress& counted, bool all = false);
  // What the site keeps of its difference from the mean is contributed again.
  void keep_difference(std::span<const float> snapshot, const OuterConfig& outer);
  [[nodiscard]] Digest digest_of(std::span<const float> anchor, std::span<const float> outer) const;
  [[nodiscard]] bool fit();
  // What each site's buffers were between at first, and all that it saw of its data, their means are between.
  void expect_buffers_in_range();
  void expect_lossless();
  void lose_steps(std::span<const float> anchor);
  void moved(protocol::Base base, ElementRange range);

  Options options_;
  Checkers& checkers_;
  std::unique_ptr<ArenaWriter> arena_;
  HostVector parameters_;  // the script's
  std::optional<TrainingCopy> copy_;
  TrainingCopy::End change_{};  // that a merge is to make
  Progress now_;
  Progress triggered_;                         // of the round under way
  std::vector<std::uint64_t> uncounted_from_;  // by fragment
  std::optional<Progress> snapshot_;
  std::vector<float> outer_before_;      // a commit
  std::vector<float> worked_on_before_;  // likewise
  wire::StartAttempt start_;             // of the attempt started last
  bool sound_ = true;                    // no bit of the model was flipped
};

}  // namespace collab::sim
