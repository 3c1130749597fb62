// The site's anchor and outer state in shared memory. It has two sealed slots, so a writer killed midway leaves the
// older one valid. The host's other ranks read new parameters from it. A restarted worker takes the last anchor.
//
// Memory: two anchors (the sealed one and the one being written); optionally one vector of outer state, and one for a
// copy of the parameters.
// Space is reserved up front. If shared memory is too small, a file in TMPDIR is used, with a warning. If that is too
// small, too, an error names both sizes. A site of one rank uses private memory with the same interface.
//
// Threads: one writer process (the leader), any number of reader processes; within a process one thread.
// Ownership: the writer removes the name at a clean exit; readers only unmap.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collab/status.h"
#include "collab/types.h"
#include "core/base/memory_limit.h"

namespace collab {

struct ArenaKey {
  std::string run;  // the swarm's name
  std::string site;
  Digest fingerprint;  // of the model's description
};

// A folder that may hold arenas, and the most bytes that one may take there. The free space is a second limit.
struct ArenaPlace {
  std::string folder;
  std::uint64_t limit_bytes = UINT64_MAX;
};
// /dev/shm, then TMPDIR (else /tmp).
[[nodiscard]] std::vector<ArenaPlace> default_arena_places();

struct ArenaSpec {
  ArenaKey key;
  std::uint64_t elements = 0;
  bool outer_state = false;        // one more vector of `elements` float32
  bool training_copy = false;      // one more vector for a copy of the parameters
  std::uint32_t ranks = 1;         // of the site, on this host
  bool shared = true;              // false: private memory
  Digest job;                      // an anchor left by a process of another job is not taken over
  std::vector<ArenaPlace> places;  // tried in order; empty: default_arena_places()
  std::uint64_t private_limit_bytes = memory_limit() + swap_bytes();
};

inline constexpr std::size_t kMaxAttachedBytes = std::size_t{64} << 10;  // limit of an anchor's attachment
inline constexpr std::size_t kCallResultBytes = std::size_t{8} << 10;    // limit of a call's result

struct SealedAnchor {
  RunId run;
  RoundId round;
  Digest digest;  // digest_of_state(digest_of_vector(anchor), outer ? digest_of_vector(outer) : Digest{})
  // The caller's data, which must stay with the anchor. It is sealed with the anchor; readers do not get it.
  std::vector<std::byte> attached{};
  bool operator==(const SealedAnchor&) const = default;
};

class ArenaWriter {
 public:
  virtual ~ArenaWriter() = default;  // removes the name
  // The sealed anchor, if any. After create_arena() it may be one that an earlier process left, if its digest is valid.
  [[nodiscard]] virtual std::optional<SealedAnchor> sealed() const = 0;
  [[nodiscard]] virtual std::span<const float> anchor() const = 0;  // the sealed slot
  [[nodiscard]] virtual std::span<float> scratch() = 0;             // the other slot; unseals nothing
  // The uses of the other slot; each lasts until the next use begins:
  [[nodiscard]] std::span<float> previous_anchor() { return scratch(); }  // the anchor before the last seal
  [[nodiscard]] std::span<float> mean() { return scratch(); }             // an attempt's mean, as it arrives
  [[nodiscard]] std::span<float> next_anchor() { return scratch(); }      // the next anchor, until it is sealed
  [[nodiscard]] std::span<float> published() { return scratch(); }        // parameters, for the host's other ranks
  [[nodiscard]] virtual std::span<float> outer() = 0;                     // empty without outer_state
  // A vector that belongs to no anchor; empty without training_copy.
  [[nodiscard]] virtual std::span<float> training_copy() = 0;
  // Marks outer() as being changed: a writer killed before seal() leaves an outer state known to be invalid.
  virtual void begin_outer_update() = 0;
  // The scratch slot becomes the anchor, and outer() is valid again. An attachment above kMaxAttachedBytes is left out,
  // with a log line.
  virtual void seal(const SealedAnchor& as) = 0;

  // Publishes the result of the ranks' call number `call` (from 1) and wakes readers. `result` is opaque; bytes beyond
  // kCallResultBytes are cut. Results are kept for 8 calls.
  virtual void publish(std::uint64_t call, const std::string& result) = 0;
  // A rank's report of digests and counts, for which the leader waits before it goes on.
  struct RankReport {
    static constexpr std::uint64_t kKeepsOut = UINT64_MAX;
    std::uint64_t call = 0;
    Digest digest;
    std::uint64_t samples = 0;  // before a last round: 0, or kKeepsOut
  };
  // Waits until the rank (1 .. ranks - 1; 0 is the writer) has reported `call`. Fails after `limit`, or if a rank that
  // has reported before is gone.
  virtual Result<RankReport> wait_report(std::uint32_t rank, std::uint64_t call, std::chrono::milliseconds limit) = 0;
  // The leader has counted `steps` steps. `announced`: a round is due at that step; 0: nothing new.
  virtual void count(std::uint64_t steps, std::uint64_t announced) = 0;
  [[nodiscard]] virtual bool in_memory() const = 0;        // not in a file on a disk
  [[nodiscard]] virtual std::string describe() const = 0;  // its place and size, for the log
};

class ArenaReader {
 public:
  virtual ~ArenaReader() = default;
  virtual void report(std::uint32_t rank, const ArenaWriter::RankReport& report) = 0;
  // Waits for publish(call, ...). Fails if the writer's process is gone, or after `limit`.
  virtual Result<std::string> wait_published(std::uint64_t call, std::chrono::milliseconds limit) = 0;
  [[nodiscard]] virtual std::optional<SealedAnchor> sealed() const = 0;  // without the attachment
  [[nodiscard]] virtual std::span<const float> anchor() const = 0;
  // The other slot: the anchor before this one, until the writer begins the next; empty if there was none.
  [[nodiscard]] virtual std::span<const float> previous() const = 0;
  [[nodiscard]] virtual std::span<const float> training_copy() const = 0;  // empty without one
  [[nodiscard]] virtual bool in_memory() const = 0;                        // as the writer's
  [[nodiscard]] virtual std::uint64_t counted() const = 0;                 // steps that the leader has counted
  // Waits like wait_published() until the leader has counted `counted` steps. Gives the last announced step; 0: none.
  [[nodiscard]] virtual Result<std::uint64_t> announced(std::uint64_t counted, std::chrono::milliseconds limit) = 0;
};

[[nodiscard]] Result<std::unique_ptr<ArenaWriter>> create_arena(const ArenaSpec& spec);
// Waits up to `limit` for the writer to create it. A fingerprint that differs is refused with both sides' values.
[[nodiscard]] Result<std::unique_ptr<ArenaReader>> open_arena(const ArenaSpec& spec, std::chrono::milliseconds limit);

struct OrphanArena {
  std::string path;
  std::uint64_t bytes = 0;
  std::string why;  // "owner 1234 is gone", "from an earlier boot"
};
[[nodiscard]] std::vector<OrphanArena> find_orphan_arenas(const std::vector<ArenaPlace>& places = {});
// Checks again before it removes the file: refuses an arena that has an owner by now.
Status remove_orphan_arena(const OrphanArena& orphan);

}  // namespace collab
