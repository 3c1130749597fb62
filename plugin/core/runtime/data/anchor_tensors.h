// A site's parameters and its anchor in the arena: the end of a round on real memory (the outer step, the new
// parameters, the seal), and what becomes of both between rounds.
//
// Threads: the node's loop thread only. Ownership: copies of kept values; borrows all else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/digest.h"
#include "core/runtime/data/anchor_streams.h"
#include "core/runtime/data/data_settings.h"
#include "core/runtime/data/exchange_data.h"
#include "core/runtime/data/parameter_reader.h"
#include "core/runtime/storage/anchor_record.h"
#include "core/runtime/tensors/parameter_change.h"
#include "core/runtime/tensors/residual.h"

namespace collab {

struct AppliedCommit {
  ParameterChange change = ParameterChange::kUnchanged;
  ElementRange range = kWholeVector;  // the elements that changed
  Digest state;
  float outer_lr = 0;       // of the step; 0: none was taken
  double clipped_norm = 0;  // norm of the mean delta, if it was clipped; else 0
};

class AnchorTensors {
 public:
  AnchorTensors(const DataSettings& settings, const DataParts& parts, ExchangeData& exchange, AnchorStreams& streams,
                ParameterReader& reader, Residual& residual);

  // The attempt stays under way, so that an error loses nothing: the caller ends it.
  Result<AppliedCommit> apply(const protocol::ApplyCommit& action);

  // ---- parameters that have moved on alone
  // The anchor that was received last is sealed; the one before lies in the other slot.
  Status rebase(protocol::Base base);
  // Copies the parameters and the mean that is complete but not committed. Both slots and the parameters may then
  // change until the next rebase() or apply().
  Status take_snapshot();
  // Writes the parameters into the arena's other slot, for the site's other ranks.
  Status publish_parameters();
  void forget_mean() { kept_mean_ = {}; }  // its attempt is given up

  // Some elements of anchor - parameters (protocol::sample_of); none before there is an anchor.
  [[nodiscard]] std::vector<float> sample_delta() const;
  // Are the parameters bit for bit the anchor's? Stops at the first difference; false before there is an anchor.
  [[nodiscard]] bool is_unchanged() const;

  // Seals our own parameters as the anchor of (run, round) unless the arena holds that already.
  Result<SealedAnchor> keep_anchor(const protocol::KeepAnchor& action);
  void seal(const SealedAnchor& anchor);

 private:
  // Values of one fragment; empty: none.
  struct Snapshot {
    ElementRange range{};
    std::vector<float> values{};
    [[nodiscard]] Residual::Reader reader() const;
  };
  // Digests of the anchor in place, so that a round need not read what it leaves alone. Empty unless rounds move
  // fragments.
  struct TileDigests {
    Digest state{};
    std::vector<Digest> anchor{};
    std::vector<Digest> outer{};
  };
  // How a commit ends for the fragment's elements: the mean becomes the anchor, and the parameters change so.
  struct End {
    const ExchangeData::Complete& round;
    ParameterChange change = ParameterChange::kUnchanged;
    bool sole = false;            // the mean is the parameters
    bool displaces = false;       // the copy is displaced
    std::span<const float> base;  // of the fragment, where the change needs it
  };

  Result<AppliedCommit> apply_nothing(const protocol::ApplyCommit& action, const SealedAnchor& sealed);
  // Returns the digest of the new state; `before`: that of the old one.
  Result<Digest> step_anchor(const Digest& before, const End& end);
  void end_tile(std::uint64_t begin, std::span<float> tile, std::span<float> outer, const End& end);
  // Changes the parameters, once `stretch` holds the next anchor.
  Status follow(ElementRange stretch, const End& end);
  void displace_tile(std::uint64_t begin, std::span<float> tile, std::span<float> outer, const RoundStep& step);
  // Replaces the mean of the elements from `begin` on with the new anchor.
  void step_from(std::uint64_t begin, std::span<float> mean, std::span<float> outer, const RoundStep& step);
  // How much of (contribution - mean) a commit takes out of the parameters: see Residual::commit().
  [[nodiscard]] float taken_of_difference(protocol::Base base) const;
  // Updates the residual for the commit of the attempt under way.
  Status keep_left_out(protocol::Base base, const Snapshot& snapshot);
  void keep_mean();
  // Called before an ordinary write to the parameters.
  void before_change(protocol::Base base, ElementRange range = kWholeVector);
  // True: the copy is moved by what the round changed, not written to.
  [[nodiscard]] bool displaces_copy(protocol::Base base) const;
  [[nodiscard]] Residual::Reader parameters() const;
  // Passes over the elements of `range`, or over all, which report progress on the way.
  void passing() const {
    if (parts_.passing) parts_.passing();
  }
  void copy_passing(std::span<const float> from, std::span<float> to) const;
  Status read_passing(std::uint64_t offset, std::span<float> out);
  Status change_passing(ParameterChange change, std::span<const float> anchor, Previous previous,
                        ElementRange range = kWholeVector);

  const DataSettings& settings_;
  const DataParts& parts_;
  ExchangeData& exchange_;
  AnchorStreams& streams_;
  ParameterReader& reader_;
  Residual& residual_;
  Snapshot snapshot_;             // of the parameters as they were contributed
  std::vector<float> kept_mean_;  // of a complete attempt, while the site trains on; empty: it is in the arena
  TileDigests tiles_;
};

}  // namespace collab
