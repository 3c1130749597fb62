#include "core/arena/inspect.h"

#include <array>
#include <cstdio>

#include "core/base/digest.h"

namespace collab::arena {

std::optional<FileStart> read_file_start(const BackingFile& file) {
  FileStart start;
  if (!file.read_start(&start, sizeof(start)) || start.about.magic != kMagic) return std::nullopt;
  return start;
}

Liveness liveness_of_owner(const BackingFile& file, const FileStart& start) {
  const ProcessIdentity& owner = start.about.owner;
  const Liveness life = liveness_of(owner);
  return life == Liveness::kCannotTell && owner.holds_file != 0 && !file.held() ? Liveness::kGone : life;
}

Geometry geometry_of(const Description& about) {
  return {about.elements, about.outer_state != 0, about.training_copy != 0, about.rank_capacity};
}

std::optional<Seal> read_seal(const SlotHeader& slot) {
  Seal seal;
  seal.sequence = slot.sequence.load(std::memory_order_acquire);
  seal.run = slot.run.load(std::memory_order_acquire);
  seal.round = slot.round.load(std::memory_order_acquire);
  seal.digest = {slot.digest_lo.load(std::memory_order_acquire), slot.digest_hi.load(std::memory_order_acquire)};
  // The slot was sealed again during the read: discard the values.
  if (seal.sequence == 0 || slot.sequence.load(std::memory_order_acquire) != seal.sequence) return std::nullopt;
  return seal;
}

std::span<const std::byte> attached_to(const Control& control, std::uint32_t slot) {
  const std::uint64_t bytes = control.slots[slot].attached_bytes.load();
  return std::span(control.attached[slot].bytes).first(std::min<std::uint64_t>(bytes, kMaxAttachedBytes));
}

std::uint64_t hash_of_slot(const Control& control, std::uint32_t slot) {
  const SlotHeader& header = control.slots[slot];
  const std::array<std::uint64_t, 6> words{
      header.run.load(),       header.round.load(),          header.digest_lo.load(),
      header.digest_hi.load(), header.attached_bytes.load(), hash64(attached_to(control, slot))};
  return hash64(std::as_bytes(std::span(words)));
}

std::string seconds_text(std::chrono::milliseconds time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", static_cast<double>(time.count()) / 1000.0);
  return text.data();
}

}  // namespace collab::arena
