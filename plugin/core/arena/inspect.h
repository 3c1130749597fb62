// Looking at an arena's file without mapping it, and waiting on its words: shared by writer, reader and clean-up.
//
// Threads: pure functions on files and shared words. Ownership: none.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "collab/status.h"
#include "core/arena/layout.h"
#include "core/arena/mapping.h"

namespace collab::arena {

// The start of a file, to judge it before its size is trusted.
struct FileStart {
  Description about;
  Phase phase = Phase::kBeingMade;
  std::uint32_t unused = 0;
};
static_assert(offsetof(Control, phase) == offsetof(FileStart, phase));

// Nothing if the file is no arena, or no arena yet.
[[nodiscard]] std::optional<FileStart> read_file_start(const BackingFile& file);
// According to the kernel; also works for a process in another container.
[[nodiscard]] Liveness liveness_of_owner(const BackingFile& file, const FileStart& start);
[[nodiscard]] inline bool same_layout(const FileStart& start) { return start.about.layout_version == kLayoutVersion; }
[[nodiscard]] Geometry geometry_of(const Description& about);

// The content of a sealed slot's header, read consistently.
struct Seal {
  std::uint64_t sequence = 0;
  std::uint64_t run = 0;
  std::uint64_t round = 0;
  Digest digest;
};
[[nodiscard]] std::optional<Seal> read_seal(const SlotHeader& slot);
// For the leader: a slot's attachment, if header and attachment match their seal.
[[nodiscard]] std::span<const std::byte> attached_to(const Control& control, std::uint32_t slot);
[[nodiscard]] std::uint64_t hash_of_slot(const Control& control, std::uint32_t slot);

[[nodiscard]] std::string seconds_text(std::chrono::milliseconds time);  // "1.5 s"

enum class WaitEnd : std::uint8_t { kReady, kGone, kTimeout };

// Waits until ready() holds. gone() is asked several times a second, so a dead partner is noticed well within one.
template <typename Ready, typename Gone>
[[nodiscard]] WaitEnd wait_until(const WakeWord& word, std::chrono::milliseconds limit, Ready ready, Gone gone) {
  using Steady = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kLook = std::chrono::milliseconds(250);
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);  // keeps the sum below from overflowing
  const Steady::time_point deadline = Steady::now() + std::min(limit, kLongest);
  while (true) {
    const std::uint32_t seen = word.load(std::memory_order_acquire);
    if (ready()) return WaitEnd::kReady;
    // A partner may have answered and ended between the two looks.
    if (gone()) return ready() ? WaitEnd::kReady : WaitEnd::kGone;
    const std::chrono::nanoseconds left = deadline - Steady::now();
    if (left <= std::chrono::nanoseconds::zero()) return WaitEnd::kTimeout;
    wait_for_change(word, seen, std::min(left, kLook));
  }
}

}  // namespace collab::arena
