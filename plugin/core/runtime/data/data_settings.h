// The objects that the parts of a data plane use, and their settings.
//
// Threads: immutable once made. Ownership: borrows all that DataParts names.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collab/clock.h"
#include "collab/codec.h"
#include "collab/config.h"
#include "collab/session.h"
#include "collab/transport.h"
#include "core/arena/arena.h"
#include "core/base/digest.h"
#include "core/outer/outer.h"
#include "core/protocol/actions.h"
#include "core/runtime/tensors/training_copy.h"

namespace collab {

struct DataParts {
  Transport* transport = nullptr;
  const Clock* clock = nullptr;
  ArenaWriter* arena = nullptr;
  ParameterVector* parameters = nullptr;
  std::function<void(const protocol::Note&)> tell{};  // progress of a transfer
  std::span<const TensorInfo> model{};                // names the vector's tensors
  TrainingCopy* copy = nullptr;                       // the parameters, if rounds run behind the training
  std::function<void()> passing{};                    // called often in a pass over all elements (minutes)
};

struct DataSettings {
  Codecs codec = CodecId::kFp32;
  bool error_feedback = true;          // where a codec needs it
  float feedback_decay = 1.0F;         // see Residual
  std::vector<ElementRange> kept{};    // sent at 16 bits; see MixedCodec
  std::vector<ElementRange> radial{};  // the tensors that `rda` takes one by one; see RadialNorms
  OuterConfig outer;
  bool keeps_mean = false;  // merging a round's result needs the mean beside the new anchor
  // Elements from here on are buffers (batch statistics): their mean is taken as it is, whatever the outer optimizer.
  std::uint64_t outer_elements = UINT64_MAX;
  std::uint64_t chunk_elements = 0;  // must be set
  // The tile of digests of anchors and outer states, the same at all sites; less in tests, whose vectors are short.
  std::uint64_t tile_elements = kDigestChunkElements;
  // The most bytes of contributions, or of means, in flight to all peers; and the least for each: 1 Gbit/s at 100 ms.
  std::size_t window_bytes = std::size_t{24} << 20;
  std::size_t least_window_bytes = std::size_t{12} << 20;
};

}  // namespace collab
