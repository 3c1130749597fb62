// The layout of an arena's memory. Processes of one build share it; the layout version tells other builds apart.
//
//   Control | slot 0 | slot 1 | outer state | training copy        each part begins on a page; the last two if wanted
//
// A slot is `elements` float32. It is sealed if its sequence is not 0; the larger sequence is the newer anchor.
// A restarted process checks the floats with the digest in the header, and header and attachment with the hash.
// Threads: each field says who writes it. Ownership: plain memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collab/types.h"
#include "core/arena/arena.h"
#include "core/arena/process_identity.h"
#include "core/arena/wake_word.h"

namespace collab::arena {

inline constexpr std::array<char, 8> kMagic{'c', 'o', 'l', 'l', 'a', 'b', 'A', 'R'};
inline constexpr std::uint32_t kLayoutVersion = 6;
inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::uint32_t kNoSlot = 2;
inline constexpr std::uint32_t kRankStep = 64;  // room for ranks is a multiple of this
inline constexpr std::size_t kCallResults = 8;  // how many calls a reader may be behind
inline constexpr std::size_t kReports = 4;      // how many calls a rank may be ahead
inline constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;

enum class Phase : std::uint32_t { kBeingMade = 0, kReady = 1, kClosed = 2 };

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free);

struct SlotHeader {  // written by the leader
  Word sequence{0};
  Word run{0};
  Word round{0};
  Word digest_lo{0};
  Word digest_hi{0};
  Word attached_bytes{0};
  Word hash{0};  // of the fields above from `run` on, and of the attachment
};

struct Attached {  // written by the leader; belongs to the slot of the same number
  std::array<std::byte, kMaxAttachedBytes> bytes{};
};

struct CallResultEntry {  // written by the leader
  Word call{0};           // 0: empty or being written
  std::uint64_t length = 0;
  std::array<char, kCallResultBytes> bytes{};
};

struct ReportEntry {  // written by one rank
  Word call{0};
  Word digest_lo{0};
  Word digest_hi{0};
  Word samples{0};
};

struct RankSlot {  // written by one rank
  WakeWord wake{0};
  std::atomic<std::uint32_t> known{0};  // 1: `process` is filled in
  ProcessIdentity process;
  std::array<ReportEntry, kReports> reports{};
};

// Written while the arena is created, then only read.
struct Description {
  std::array<char, 8> magic{};
  std::uint32_t layout_version = 0;
  std::uint32_t rank_capacity = 0;
  ProcessIdentity owner;  // magic, layout_version and owner keep their place in every layout version
  Digest fingerprint;
  std::uint64_t elements = 0;
  std::uint32_t outer_state = 0;
  std::uint32_t training_copy = 0;
  Digest job;
};
static_assert(std::is_trivially_copyable_v<Description> && sizeof(Description) == 128);

struct Control {  // written by the leader
  Description about;
  std::atomic<Phase> phase{Phase::kBeingMade};
  WakeWord wake{0};                             // changes with every call's result, and at the end
  Word generation{0};                           // raised each time a new leader takes the arena over
  std::atomic<std::uint32_t> current{kNoSlot};  // the sealed slot
  std::atomic<std::uint32_t> outer_changing{0};
  Word announced_step{0};
  Word counted{0};  // steps
  std::array<SlotHeader, 2> slots{};
  std::array<Attached, 2> attached{};
  std::array<CallResultEntry, kCallResults> call_results{};
  // RankSlot[rank_capacity] follows.
};

struct Geometry {
  std::uint64_t elements = 0;
  bool outer_state = false;
  bool training_copy = false;
  std::uint32_t rank_capacity = kRankStep;

  bool operator==(const Geometry&) const = default;
  [[nodiscard]] static constexpr std::size_t pages(std::size_t bytes) {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  [[nodiscard]] std::size_t control_bytes() const { return pages(sizeof(Control) + rank_capacity * sizeof(RankSlot)); }
  [[nodiscard]] std::size_t vector_bytes() const { return pages(elements * sizeof(float)); }
  [[nodiscard]] std::size_t slot_offset(std::uint32_t slot) const { return control_bytes() + slot * vector_bytes(); }
  // Vectors by number: 0 and 1 are the slots, then the outer state, then the training copy, each if wanted.
  [[nodiscard]] std::uint32_t copy_index() const { return outer_state ? 3 : 2; }
  [[nodiscard]] std::uint32_t vectors() const { return copy_index() + (training_copy ? 1 : 0); }
  [[nodiscard]] std::size_t total_bytes() const { return slot_offset(vectors()); }
};
static_assert(sizeof(Control) % alignof(RankSlot) == 0);

[[nodiscard]] inline RankSlot* rank_slots(Control* control) { return reinterpret_cast<RankSlot*>(control + 1); }

}  // namespace collab::arena
