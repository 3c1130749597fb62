// Strong identifiers and small value types shared by every layer.
//
// Threads and ownership: plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace collab {

// An integer that cannot be mistaken for another kind of integer.
template <typename Tag, typename Rep>
struct StrongId {
  Rep value{};
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
};

// A site's number in its swarm, given by the coordinator. Sums run in ascending SiteId: "site order".
using SiteId = StrongId<struct SiteIdTag, std::uint32_t>;
// Rounds are counted from 1; round 0 is the agreement on the first anchor.
using RoundId = StrongId<struct RoundIdTag, std::uint64_t>;
// One leader's term: the ballot number of the agreement.
using TermId = StrongId<struct TermIdTag, std::uint64_t>;
// One try at a round with fixed participants; counted from 1 within a round.
using AttemptId = StrongId<struct AttemptIdTag, std::uint32_t>;
// One run of training, drawn at random when the swarm is founded; 0 means "none yet".
using RunId = StrongId<struct RunIdTag, std::uint64_t>;
// One memory of what a site has promised and accepted, drawn at random when that memory is created; 0 means "none". A
// site that has lost its record gets a new id.
using AcceptorId = StrongId<struct AcceptorIdTag, std::uint64_t>;
// A rank of a c10d world, and one of that world's process groups.
using RankId = StrongId<struct RankIdTag, std::uint32_t>;
using GroupId = StrongId<struct GroupIdTag, std::uint64_t>;
// One link between this process and a peer; meaningful inside one Transport only.
using LinkId = StrongId<struct LinkIdTag, std::uint64_t>;

// A fast non-cryptographic 128-bit hash.
struct Digest {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;
  constexpr auto operator<=>(const Digest&) const = default;
};
[[nodiscard]] std::string to_hex(const Digest& digest);  // 32 lower-case hex digits, hi first

enum class CodecId : std::uint8_t {
  kFp32 = 0,
  kBf16 = 1,
  kFp16 = 2,
  kInt8 = 3,
  kInt4 = 4,
  kInt4E3m0 = 5,
  kInt2 = 6,
  kTopK64 = 7,
  kTopK128 = 8,
};
inline constexpr CodecId kLastCodec = CodecId::kTopK128;
// How elements are encoded: contributions on the way up to a slice's owner, and the owner's mean on the way down to
// all.
struct Codecs {
  CodecId up = CodecId::kFp16;
  CodecId down = CodecId::kFp16;

  constexpr Codecs() = default;
  constexpr Codecs(CodecId both) : up(both), down(both) {}  // NOLINT(google-explicit-constructor): one for both ways
  constexpr Codecs(CodecId up_codec, CodecId down_codec) : up(up_codec), down(down_codec) {}
  constexpr bool operator==(const Codecs&) const = default;
};
enum class OuterId : std::uint8_t { kAverage = 0, kNesterov = 1, kRda = 2 };

// Elements [begin, end) of the parameter vector.
struct ElementRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] constexpr std::uint64_t size() const { return end - begin; }
  constexpr auto operator<=>(const ElementRange&) const = default;
};
[[nodiscard]] std::string text_of(const ElementRange& range);  // "[0, 8)"
// The intersection; empty if the ranges have no common element.
[[nodiscard]] constexpr ElementRange common(ElementRange a, ElementRange b) {
  const std::uint64_t begin = a.begin > b.begin ? a.begin : b.begin;
  const std::uint64_t end = a.end < b.end ? a.end : b.end;
  return {begin, begin < end ? end : begin};
}

// Slice boundaries and chunks are multiples of this many elements (except the last one), so that every codec's blocks
// lie inside one chunk.
inline constexpr std::uint64_t kBlockElements = 1024;

}  // namespace collab

template <typename Tag, typename Rep>
struct std::hash<collab::StrongId<Tag, Rep>> {
  std::size_t operator()(const collab::StrongId<Tag, Rep>& id) const noexcept { return std::hash<Rep>{}(id.value); }
};
