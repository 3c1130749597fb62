// The header of every message between two gloo transports: which link the message belongs to and how long it is.
//
// Threads and ownership: plain values.
#pragma once

#include <bit>
#include <cstdint>

#include "collab/transport.h"

namespace collab {

inline constexpr std::uint32_t kGlooMagic = 0x31474C43;  // "CLG1", the last byte is the version

struct GlooFrame {
  enum class Kind : std::uint8_t {
    kHello = 1,    // `from` wants a link; `to` is 0
    kWelcome = 2,  // the link `to` is open; `from` is the other end
    kRefuse = 3,   // no transport listens here
    kMessage = 4,  // head and payload follow
    kBye = 5,      // the last frame on this lane of the link; sent on both lanes
    kGone = 6,     // the sender's transport has ended, and all links to it with it
  };

  std::uint32_t magic = kGlooMagic;
  Kind kind = Kind::kMessage;
  std::uint8_t has_payload = 0;  // tells an empty payload from none
  std::uint16_t reserved = 0;
  std::uint64_t to = 0;    // the receiver's id of the link
  std::uint64_t from = 0;  // the sender's id of the link
  std::uint32_t head_bytes = 0;
  std::uint32_t payload_bytes = 0;

  [[nodiscard]] bool sound() const {
    const auto k = static_cast<std::uint8_t>(kind);
    return magic == kGlooMagic && k >= 1 && k <= 6 && has_payload <= 1 && reserved == 0 &&
           head_bytes <= kMaxHeadBytes && payload_bytes <= kMaxPayloadBytes && (has_payload == 1 || payload_bytes == 0);
  }
};
static_assert(sizeof(GlooFrame) == 32, "no padding: it is sent as it lies in memory");
static_assert(std::endian::native == std::endian::little, "frames travel in little-endian order");

}  // namespace collab
