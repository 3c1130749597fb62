// The anchor, the outer state and error feedback's residual on disk (COLLAB_STATE_DIR): written atomically (new file,
// fsync, rename), read back with its digest checked. The format is described in docs/protocol/beside.md ("State file").
//
// Threads: plain functions on paths. Ownership: none.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collab/session.h"
#include "collab/status.h"
#include "collab/types.h"
#include "core/protocol/site/egress_budget.h"
#include "core/runtime/storage/disk.h"
#include "core/runtime/tensors/residual.h"
#include "core/wire/messages.h"

namespace collab {

struct ResidualRecord {
  Digest digest;  // of its vector
  ResidualUnits units;
};

struct StateHeader {
  std::string swarm;
  std::string site;
  RunId run;
  RoundId round;
  Digest digest;       // of anchor and outer state
  Digest fingerprint;  // of the model's description
  std::uint64_t elements = 0;
  bool outer_state = false;
  wire::Record record{};                   // with the membership as of that anchor
  std::vector<ResidualRecord> residual{};  // at most one; none: no residual was kept
  std::vector<TensorInfo> model;           // so that `collab export` can name the tensors
  protocol::Egress egress{};               // spent of COLLAB_EGRESS_BUDGET_GB
  bool ended = false;                      // in good order: nobody waits for its membership. See mark_ended()
};

// <dir>/<site>.collab
[[nodiscard]] std::string state_path(const std::string& dir, const std::string& site, std::uint32_t generation = 1);
// Reports at once what would otherwise show only when the first round is saved: no folder, no right to write there.
Status check_state_writable(const std::string& path);

// A state is written piece by piece, out of memory that may be wanted for something else meanwhile.
enum class StatePart : std::uint8_t { kAnchor, kOuter, kResidual };
// Copies the elements from `offset` on; false: they are no longer available.
using StatePieces = std::function<bool(StatePart part, std::uint64_t offset, std::span<float> out)>;
// Asks for each piece once: the residual's, then the outer state's, then the anchor's, which stays available longest.
// The residual's digest is computed on the way. kCancelled: a piece was not available, and no new file is left.
Status write_state(Disk& disk, const std::string& path, StateHeader header, const StatePieces& pieces);
// Marks that the site has ended in good order with that state, or goes on: in place and durably. No file: ok.
Status mark_ended(Disk& disk, const std::string& path, bool ended);
// No file: an empty optional. A damaged file is kCorrupt and says what is wrong with it.
[[nodiscard]] Result<std::optional<StateHeader>> read_state_header(const std::string& path);
// Fills the spans (sized by the header); checks the digest.
Status read_state_into(const std::string& path, const StateHeader& header, std::span<float> anchor,
                       std::span<float> outer);
// The residual of a header that has one, its digest checked.
[[nodiscard]] Result<StoredResidual> read_residual(const std::string& path, const StateHeader& header);

}  // namespace collab
