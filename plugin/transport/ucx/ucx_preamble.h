// The header of every active message of the ucx transport: its kind, and its place in its lane.
//
// Only ucx transports use it. It is not part of the framed messages, which it carries whole. Threads and ownership:
// plain values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "collab/transport.h"

namespace collab {

inline constexpr std::uint32_t kPreambleMagic = 0x31584C43;  // "CLX1", the last byte is the version
inline constexpr std::uint32_t kMaxConnections = 16;
inline constexpr unsigned kActiveMessage = 1;  // UCX's id of the message handler

struct Preamble {
  enum class Kind : std::uint8_t {
    kHello = 1,     // first on every connection: token (first, second), connection i of n
    kWelcome = 2,   // the listener has all n connections
    kMessage = 3,   // `first` is the message's number in its lane; head and payload follow
    kTaken = 4,     // messages taken so far on the control (`first`) and data (`second`) lane
    kBye = 5,       // nothing follows; total messages sent on the control (`first`) and data (`second`) lane
    kByeTaken = 6,  // all messages before the bye were taken
  };

  std::uint32_t magic = kPreambleMagic;
  Kind kind = Kind::kMessage;
  Lane lane = Lane::kControl;
  std::uint8_t connection = 0;
  std::uint8_t connections = 0;
  std::uint32_t head_bytes = 0;
  std::uint32_t payload_bytes = 0;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};
static_assert(sizeof(Preamble) == 32, "no padding: it is copied to the wire as it lies in memory");
static_assert(std::endian::native == std::endian::little, "the preamble travels in little-endian order");

// Nothing if the bytes are no preamble of this version or exceed a limit.
[[nodiscard]] inline std::optional<Preamble> read_preamble(std::span<const std::byte> bytes) {
  Preamble preamble;
  if (bytes.size() < sizeof(preamble)) return std::nullopt;
  std::memcpy(&preamble, bytes.data(), sizeof(preamble));
  const auto kind = static_cast<std::uint8_t>(preamble.kind);
  const bool sound = preamble.magic == kPreambleMagic && kind >= 1 && kind <= 6 &&
                     static_cast<std::uint8_t>(preamble.lane) <= 1 && preamble.connections <= kMaxConnections &&
                     preamble.head_bytes <= kMaxHeadBytes && preamble.payload_bytes <= kMaxPayloadBytes;
  return sound ? std::optional(preamble) : std::nullopt;
}

}  // namespace collab
