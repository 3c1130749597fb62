// Fetches an anchor from several members at once: which member to ask for which part, and whether parts are right.
//
// The digest agreed on is the digest of a list of digests, one for each tile. The list comes first, and must match that
// digest. Then every part is checked against the list as it arrives, so a member that sends other bytes is known at
// once. Tiles that this site already holds are not fetched.
// Pure. Threads: one caller at a time. Ownership: its own state; never a byte of tensors.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/base/digest.h"
#include "core/wire/messages.h"

namespace collab::protocol {

struct AnchorFetchPlan {
  RunId run;
  RoundId round;
  Digest digest;  // digest_of_state of the two chains of tiles
  std::uint64_t elements = 0;
  bool outer_state = false;
  // Digests of the tiles held here, of the anchor and of the outer state. Each list is complete or empty.
  std::vector<Digest> held_anchor{};
  std::vector<Digest> held_outer{};
  std::uint64_t tile_elements = kDigestChunkElements;
  std::uint64_t part_elements = 4 * kDigestChunkElements;   // of one request; a multiple of tile_elements
  std::uint64_t list_elements = 64 * kDigestChunkElements;  // likewise, of a request for digests
  std::uint32_t window = 32;                                // the most open requests to one source
};

struct SourceAdded {
  SiteId site;
};
struct SourceLost {  // its link is gone, or it holds another anchor by now
  SiteId site;
};
// `tiles`: the digests of the bytes that came, or the list that came. Empty if it does not fit the range.
struct PartArrived {
  SiteId from;
  wire::ChunkKind kind = wire::ChunkKind::kAnchor;
  ElementRange range;
  std::vector<Digest> tiles;
};
using AnchorFetchEvent = std::variant<SourceAdded, SourceLost, PartArrived>;

struct AskPart {
  SiteId of;
  wire::FetchAnchor message;
};
struct TakePart {  // what has just arrived is right: put it in its place
  wire::ChunkKind kind = wire::ChunkKind::kAnchor;
  ElementRange range;
};
struct TakeHeld {  // what is held here is right already
  wire::ChunkKind kind = wire::ChunkKind::kAnchor;
  ElementRange range;
};
struct SourceWrong {  // it sent bytes other than those agreed on; it is not asked until it is added again
  SiteId site;
  std::string reason;
};
struct AnchorWhole {};
using AnchorFetchAction = std::variant<AskPart, TakePart, TakeHeld, SourceWrong, AnchorWhole>;

class AnchorFetch {
 public:
  explicit AnchorFetch(AnchorFetchPlan plan);
  ~AnchorFetch();
  AnchorFetch(AnchorFetch&&) noexcept;
  AnchorFetch& operator=(AnchorFetch&&) noexcept;

  [[nodiscard]] std::vector<AnchorFetchAction> step(const AnchorFetchEvent& event);

  struct Progress {
    std::uint64_t elements = 0;  // of anchor and outer state
    std::uint64_t here = 0;
    std::uint64_t held = 0;  // of those, held before the fetch
  };
  [[nodiscard]] Progress progress() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace collab::protocol
