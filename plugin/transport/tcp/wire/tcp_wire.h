// The bytes that two tcp transports exchange on each connection of a link: a preface, then frames.
//
// docs/protocol/tcp.md has the tables; the golden bytes are in tests/golden/tcp. All numbers
// are little-endian. Everything from the wire is bounded here before anything is allocated.
// Threads and ownership: plain values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collab/status.h"
#include "collab/transport.h"

namespace collab::tcp {

inline constexpr std::array<char, 4> kMagic{'C', 'L', 'T', '1'};
inline constexpr std::uint16_t kWireVersion = 1;
inline constexpr std::size_t kPrefaceBytes = 8;
inline constexpr std::size_t kPrefixBytes = 8;
inline constexpr std::size_t kSegmentFieldBytes = 32;
inline constexpr std::size_t kSegmentHeaderBytes = kPrefixBytes + kSegmentFieldBytes;
inline constexpr std::size_t kMaxSegmentBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxBodyBytes = 2048;        // of any frame except a segment
inline constexpr std::size_t kMaxSentenceBytes = 1024;    // of a reason in words
inline constexpr std::uint64_t kWindowSegments = 4096;    // per lane, from the first segment that has not arrived
inline constexpr std::uint16_t kMaxDataConnections = 64;  // per link, besides the control connection

using Id = std::array<std::uint8_t, 16>;

enum class FrameType : std::uint8_t {
  kHello = 1,    // the dialler's first: which link, which connection of it
  kWelcome = 2,  // the listener's answer
  kRefuse = 3,   // the listener's other answer
  kSegment = 4,  // a piece of a message
  kAck = 5,      // the segments of both lanes that have arrived
  kPing = 6,
  kPong = 7,
  kWant = 8,    // how many data connections the listener would like
  kBye = 9,     // every message was sent and has arrived; nothing follows
  kAbort = 10,  // the link ends now, for the reason given
  kAllow = 11   // how fast data may come over this link
};

struct Hello {
  Id link{};
  Id process{};                  // drawn by each transport when it starts
  std::uint16_t connection = 0;  // 0: the control connection
  bool opens = false;            // the link is new; otherwise the listener knows it
  bool operator==(const Hello&) const = default;
};

enum class Refusal : std::uint8_t {
  kUnknownLink = 1,  // unknown link, given up, or the process was restarted
  kEnded = 2,        // the link ended in good order
  kNotAllowed = 3,   // encryption is needed, or the address is not accepted
  kVersion = 4,
};

struct Refuse {
  Refusal why = Refusal::kUnknownLink;
  std::string reason;
  bool operator==(const Refuse&) const = default;
};

struct SegmentHeader {
  Lane lane = Lane::kControl;
  std::uint64_t number = 0;   // of the segment in its lane, from 0
  std::uint64_t message = 0;  // of the message in its lane, from 0
  std::uint32_t head_bytes = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t offset = 0;  // counted through head, then payload; a segment lies within one of them
  std::uint32_t length = 0;  // of the segment's data
  bool operator==(const SegmentHeader&) const = default;
};

// What has arrived on one lane: all segments below `below`, and segment `below` + i for each bit i of `beyond`.
struct LaneArrivals {
  std::uint64_t below = 0;
  std::vector<std::uint64_t> beyond;
  [[nodiscard]] bool has(std::uint64_t number) const {
    if (number < below) return true;
    const std::uint64_t bit = number - below;
    return bit / 64 < beyond.size() && ((beyond[bit / 64] >> (bit % 64)) & 1U) != 0;
  }
  bool operator==(const LaneArrivals&) const = default;
};
using Arrivals = std::array<LaneArrivals, 2>;  // by lane

struct Pong {
  std::uint64_t stamp = 0;  // of the ping
  std::uint64_t clock = 0;  // microseconds, on the answering side's clock, when the ping arrived
  bool operator==(const Pong&) const = default;
};

struct Bye {
  std::array<std::uint64_t, 2> segments{};  // total sent, by lane
  bool operator==(const Bye&) const = default;
};

using Bytes = std::vector<std::byte>;

[[nodiscard]] Bytes encode_preface();
[[nodiscard]] Bytes encode(const Hello& hello);
[[nodiscard]] Bytes encode_welcome(const Id& process);
[[nodiscard]] Bytes encode(const Refuse& refuse);
[[nodiscard]] std::array<std::byte, kSegmentHeaderBytes> encode(const SegmentHeader& header);
[[nodiscard]] Bytes encode(const Arrivals& arrivals);
[[nodiscard]] Bytes encode_ping(std::uint64_t stamp);
[[nodiscard]] Bytes encode(const Pong& pong);
[[nodiscard]] Bytes encode_want(std::uint16_t connections);
[[nodiscard]] Bytes encode(const Bye& bye);
[[nodiscard]] Bytes encode_abort(std::string_view reason);
[[nodiscard]] Bytes encode_allow(std::uint64_t bytes_per_second);

struct Prefix {
  FrameType type = FrameType::kPing;
  Lane lane = Lane::kControl;
  std::uint32_t body_bytes = 0;
};

// kCorrupt says what breaks the format. Callers pass complete bodies.
[[nodiscard]] Status check_preface(std::span<const std::byte, kPrefaceBytes> bytes);
[[nodiscard]] Result<Prefix> decode_prefix(std::span<const std::byte, kPrefixBytes> bytes);
[[nodiscard]] Result<SegmentHeader> decode_segment(const Prefix& prefix,
                                                   std::span<const std::byte, kSegmentFieldBytes> fields);
[[nodiscard]] Result<Hello> decode_hello(std::span<const std::byte> body);
[[nodiscard]] Result<Id> decode_welcome(std::span<const std::byte> body);
[[nodiscard]] Result<Refuse> decode_refuse(std::span<const std::byte> body);
[[nodiscard]] Result<Arrivals> decode_ack(std::span<const std::byte> body);
[[nodiscard]] Result<std::uint64_t> decode_ping(std::span<const std::byte> body);
[[nodiscard]] Result<Pong> decode_pong(std::span<const std::byte> body);
[[nodiscard]] Result<std::uint16_t> decode_want(std::span<const std::byte> body);
[[nodiscard]] Result<std::uint64_t> decode_allow(std::span<const std::byte> body);
[[nodiscard]] Result<Bye> decode_bye(std::span<const std::byte> body);
[[nodiscard]] Result<std::string> decode_abort(std::span<const std::byte> body);

}  // namespace collab::tcp
