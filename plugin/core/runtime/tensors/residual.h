// What lossy payloads have left out so far, to be added to the next ones: error feedback between rounds.
//
// One vector of float32 for all elements. If another site owned an element in the last committed attempt, the vector
// holds what our contribution left out, in units of our delta. If we owned it, the vector holds what our mean left out,
// in units of the mean. When an element changes its owner, its unit changes by our share of that attempt's mean.
//
//   start --> encode_contribution, encode_mean: payloads; the vector stays as it is --> commit: the next vector
//     ^                                                |
//     +------------ cancelled, formed again -----------+   the same payloads once more
//
// Until the commit, only what our own means leave out is stored, for the elements that we own. What our contributions
// leave out is computed again by encoding them once more. Both ways use feedback if one of the two codecs needs it.
// What goes into a payload is first multiplied by the decay: 1 loses nothing, 0.95 with top-k is SparseLoCo's
// (arXiv:2508.15706). It stays in the vector until it is in a committed payload. Buffers have no residual: a running
// statistic is not a sum of steps, and the next round carries what this one left out anyway.
// Algorithm: Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014; at the owner as well: Tang et al.,
// "DoubleSqueeze", ICML 2019.
// Threads: one caller at a time. Ownership: its vectors.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "collab/codec.h"
#include "collab/status.h"
#include "core/codec/mixed_codec.h"
#include "core/wire/messages.h"

namespace collab {

// What the vector's numbers mean.
struct ResidualUnits {
  float share = 0;                      // our part of the mean in the last attempt we contributed to; 0: none yet
  float equal = 1;                      // an equal part of the mean, in the last attempt
  std::vector<ElementRange> of_mean{};  // ascending, apart: in units of the mean; all else in units of our delta
};

// A residual found on disk. It is of use only in the run it was written in.
struct StoredResidual {
  RunId run;
  ResidualUnits units;
  std::vector<float> values;
};

class Residual {
 public:
  // No vector is kept, and nothing fed back, unless a codec needs it and `feedback` says so. `kept`: see MixedCodec.
  // Elements from `buffers_from` on are buffers. `passing` is called with each chunk of a pass over all.
  Residual(const Codecs& codecs, bool feedback, std::uint64_t elements, std::uint64_t chunk_elements,
           float decay = 1.0F, std::span<const ElementRange> kept = {}, std::uint64_t buffers_from = UINT64_MAX,
           std::function<void()> passing = {});

  [[nodiscard]] bool on() const { return !values_.empty(); }

  // ---- an attempt
  // `share`: our scale in its mean; 0 when we do not contribute.
  void start(const wire::StartAttempt& start, SiteId self, float share);
  // Encodes `range`, a chunk of a slice of others, as Codec::encode_difference. The vector does not change.
  [[nodiscard]] std::optional<std::size_t> encode_contribution(ElementRange range, std::span<const float> anchor,
                                                               std::span<const float> parameters,
                                                               std::span<std::byte> out);
  // Encodes a chunk of a slice of ours, as Codec::encode. The vector does not change.
  [[nodiscard]] std::optional<std::size_t> encode_mean(ElementRange range, std::span<const float> mean,
                                                       std::span<std::byte> out);

  // ---- its end
  // Reads elements of what we contributed.
  using Reader = std::function<Result<std::span<const float>>(ElementRange)>;
  // The attempt started last was committed. `anchor`: whole, the one that contributions are differences from. Null
  // `contributed`: ours is not among them, and what is left out of our delta stays as it was. `taken`: how much of the
  // difference between a contribution and the decoded mean is taken out of the parameters. The rest stays in them, with
  // the same part of what this attempt's payloads left out, so the residual keeps that much less.
  Status commit(std::span<const float> anchor, const Reader& contributed, float taken = 1.0F);
  // Our contribution to the last attempt counts as committed. The leader and the means are unknown.
  Status assume_contributed(std::span<const float> anchor, const Reader& contributed);
  // Sets zeros: what was left out came from parameters that were not fit to be sent.
  void drop();

  // ---- between processes
  // A stored residual of another length is ignored.
  void restore(StoredResidual stored);
  // The anchor in place is of this run: a residual restored from another run is dropped.
  void settle(RunId run);
  [[nodiscard]] const ResidualUnits& units() const { return units_; }
  [[nodiscard]] std::span<const float> values() const { return values_; }

 private:
  struct Own {
    ElementRange range;
    std::size_t at = 0;  // in next_of_mean_
  };
  struct Attempt {
    float share = 0;
    float equal = 1;
    bool alone = false;  // nothing is encoded
    ElementRange range;  // all slices
    std::vector<Own> own;
    std::vector<ElementRange> theirs;
  };
  // Factors between the units: delta = mean / per_delta(), mean = delta * per_mean().
  [[nodiscard]] float per_delta() const;
  [[nodiscard]] float per_mean() const;
  [[nodiscard]] std::span<float> part(ElementRange range);
  // What earlier payloads left out of these elements, in one unit: in place if stored so, else in `converted_`.
  [[nodiscard]] std::span<const float> in_delta(ElementRange range);
  [[nodiscard]] std::span<const float> in_mean(ElementRange range);
  // Is `here` in `converted_`, and so decayed?
  [[nodiscard]] bool decayed(std::span<const float> here);
  [[nodiscard]] std::span<float> next_of_mean(ElementRange range);
  [[nodiscard]] std::vector<ElementRange> of_mean_beside(const Attempt& attempt) const;
  Status keep_left_out(ElementRange range, std::span<const float> anchor, const Reader& contributed, float taken);
  // Keeps the residual of elements whose payload got `before` and left out `after`, in the same unit.
  void keep(ElementRange range, std::span<const float> before, std::span<const float> after, float taken);
  void drop_of_buffers();

  MixedCodec up_;
  MixedCodec down_;
  std::uint64_t chunk_elements_;
  float decay_;
  std::uint64_t buffers_from_;
  std::function<void()> passing_;
  std::vector<float> values_;  // empty: off
  ResidualUnits units_;
  std::optional<RunId> restored_from_;
  std::optional<Attempt> attempt_;
  std::vector<float> next_of_mean_;
  std::vector<float> converted_;    // at most a chunk
  std::vector<float> next_;         // what a contribution leaves out
  std::vector<std::byte> payload_;  // of a chunk that is encoded once more
};

}  // namespace collab
