#include "core/wire/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/digest.h"
#include "core/wire/limits.h"
#include "tests/unit/wire/random_messages.h"

namespace collab::wire {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kTypes = std::variant_size_v<Message>;
using Bytes = std::vector<std::byte>;

// Recomputes the checksum, so that a change to a frame reaches the checks behind it.
Bytes resealed(Bytes frame) {
  const std::uint64_t sum = hash64(std::span(frame).subspan(16));
  for (std::size_t i = 0; i < 8; ++i) frame[8 + i] = static_cast<std::byte>(sum >> (8 * i));
  return frame;
}

Bytes with_body(const Bytes& frame, std::span<const std::byte> body) {
  Bytes changed(frame.begin(), frame.begin() + kFrameHeaderBytes);
  changed.insert(changed.end(), body.begin(), body.end());
  for (std::size_t i = 0; i < 4; ++i) changed[20 + i] = static_cast<std::byte>(body.size() >> (8 * i));
  return resealed(std::move(changed));
}

std::string corruption_of(const Bytes& frame) {
  const auto decoded = decode(frame);
  EXPECT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().code(), StatusCode::kCorrupt) << decoded.status().to_string();
  return decoded.status().message();
}

// ---- every message -----------------------------------------------------------------------------------

class EveryMessage : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Wire, EveryMessage, ::testing::Range<std::size_t>(1, kTypes + 1), [](const auto& param) {
  Prng prng(0);
  return std::string(name_of(random_message(param.param, prng)));
});

TEST_P(EveryMessage, ComesBackAsItWasSent) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Prng prng(seed);
    const Message message = random_message(GetParam(), prng);
    ASSERT_EQ(message.index() + 1, GetParam());
    const Bytes frame = encode(message);
    const auto decoded = decode(frame);
    ASSERT_TRUE(decoded.ok()) << "seed " << seed << ": " << decoded.status().message();
    EXPECT_EQ(*decoded, message) << "seed " << seed;
    EXPECT_EQ(encode(*decoded), frame) << "one message, one encoding; seed " << seed;
  }
}

TEST_P(EveryMessage, CutAnywhereIsCorrupt) {
  Prng prng(7);
  const Bytes frame = encode(random_message(GetParam(), prng));
  for (std::size_t size = 0; size < std::min<std::size_t>(frame.size(), 4000); ++size) {
    corruption_of(Bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size)));
  }
}

TEST_P(EveryMessage, ABodyCutWithAGoodHeaderIsCorrupt) {
  Prng prng(8);
  const Bytes frame = encode(random_message(GetParam(), prng));
  const auto body = std::span<const std::byte>(frame).subspan(kFrameHeaderBytes);
  for (std::size_t size = 0; size < std::min<std::size_t>(body.size(), 4000); ++size) {
    EXPECT_THAT(corruption_of(with_body(frame, body.first(size))), HasSubstr("expected")) << size;
  }
}

TEST_P(EveryMessage, TrailingBytesAreCorrupt) {
  Prng prng(9);
  const Bytes frame = encode(random_message(GetParam(), prng));
  Bytes longer = frame;
  longer.push_back(std::byte{0});
  EXPECT_THAT(corruption_of(longer), HasSubstr("body length"));
  EXPECT_THAT(corruption_of(with_body(frame, std::span<const std::byte>(longer).subspan(kFrameHeaderBytes))),
              HasSubstr("1 more bytes"));
}

// No single changed byte passes; the version alone is told apart.
TEST_P(EveryMessage, AChangedByteIsNoticed) {
  Prng prng(10);
  const Bytes frame = encode(random_message(GetParam(), prng));
  for (std::size_t at = 0; at < std::min<std::size_t>(frame.size(), 4000); ++at) {
    Bytes changed = frame;
    changed[at] ^= static_cast<std::byte>(1 + prng.below(255));
    const auto decoded = decode(changed);
    ASSERT_FALSE(decoded.ok()) << "byte " << at;
    const bool is_version = at == 4 || at == 5;
    EXPECT_EQ(decoded.status().code(), is_version ? StatusCode::kRefused : StatusCode::kCorrupt) << "byte " << at;
  }
}

// Changed bodies under a right checksum: whatever is accepted must encode again, to the same bytes.
TEST_P(EveryMessage, AcceptsOnlyWhatItWouldSend) {
  Prng prng(11);
  for (int i = 0; i < 2000; ++i) {
    Bytes frame = encode(random_message(GetParam(), prng));
    if (frame.size() == kFrameHeaderBytes) return;
    for (std::size_t changes = 1 + prng.below(3); changes > 0; --changes) {
      frame[kFrameHeaderBytes + prng.below(frame.size() - kFrameHeaderBytes)] ^=
          static_cast<std::byte>(1 + prng.below(255));
    }
    frame = resealed(std::move(frame));
    const auto decoded = decode(frame);
    if (decoded.ok()) {
      EXPECT_EQ(encode(*decoded), frame);
    } else {
      EXPECT_EQ(decoded.status().code(), StatusCode::kCorrupt);
    }
  }
}

// ---- a record by itself ------------------------------------------------------------------------------

TEST(RecordBytes, ComeBackAsTheyWereWritten) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Prng prng(seed);
    const Record record = random_record(prng);
    const Bytes bytes = encode_record(record);
    const auto decoded = decode_record(bytes);
    ASSERT_TRUE(decoded.ok()) << "seed " << seed << ": " << decoded.status().message();
    EXPECT_EQ(*decoded, record);
  }
}

TEST(RecordBytes, CutOrLongerTheyAreCorrupt) {
  Prng prng(7);
  Bytes bytes = encode_record(random_record(prng));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto decoded = decode_record(std::span(bytes).first(size));
    ASSERT_FALSE(decoded.ok()) << size;
    EXPECT_EQ(decoded.status().code(), StatusCode::kCorrupt);
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_record(bytes).ok());
}

TEST(RecordBytes, RulesThatARecordBreaksAreNamed) {
  Record record;
  record.voters = {{SiteId{0}, "paris"}, {SiteId{1}, "oslo"}};
  Bytes bytes = encode_record(record);
  const std::string name = "oslo";
  const auto at = std::search(bytes.begin(), bytes.end(), std::as_bytes(std::span(name)).begin(),
                              std::as_bytes(std::span(name)).end());
  ASSERT_NE(at, bytes.end());
  *(at - 6) = std::byte{0};  // its number
  const auto decoded = decode_record(bytes);
  ASSERT_FALSE(decoded.ok());
  EXPECT_THAT(decoded.status().message(), HasSubstr("voters[1]: expected a site above site 0"));
}

// In a record's file and in a state file alike.
TEST(RecordBytes, ATermThatNoneReachesIsRefused) {
  Record record;
  record.promised = TermId{kMaxTerm};
  Bytes bytes = encode_record(record);
  EXPECT_TRUE(decode_record(bytes).ok());
  const auto largest = std::as_bytes(std::span(&record.promised.value, 1));
  const auto at = std::search(bytes.begin(), bytes.end(), largest.begin(), largest.end());
  ASSERT_NE(at, bytes.end());
  *at = std::byte{1};
  const auto decoded = decode_record(bytes);
  ASSERT_FALSE(decoded.ok());
  EXPECT_THAT(decoded.status().message(), HasSubstr("promised: expected at most 281474976710656, got 281474976710657"));
}

// ---- the header --------------------------------------------------------------------------------------

TEST(Header, AnotherVersionIsRefusedWithBoth) {
  Bytes frame = encode(Heartbeat{});
  frame[4] = std::byte{9};
  const Status status = decode(frame).status();
  EXPECT_EQ(status.code(), StatusCode::kRefused);
  EXPECT_THAT(status.message(), HasSubstr("the peer speaks protocol version 9, but this site speaks version 1"));
}

TEST(Header, OfAnotherProtocolIsRecognised) {
  const std::string http = "GET / HTTP/1.1\r\nHost: example.org:29500\r\n\r\n";
  const auto bytes = std::as_bytes(std::span(http));
  EXPECT_THAT(corruption_of(Bytes(bytes.begin(), bytes.end())), HasSubstr("does not speak collab's protocol"));
}

TEST(Header, AnUnknownTypeIsCorrupt) {
  for (const std::size_t type : {std::size_t{0}, kTypes + 1}) {
    Bytes frame = encode(LeaveAck{});
    frame[16] = static_cast<std::byte>(type);
    EXPECT_THAT(corruption_of(resealed(frame)),
                HasSubstr("type: expected 1 to " + std::to_string(kTypes) + ", got " + std::to_string(type)));
  }
}

TEST(Header, ReservedBytesAreZero) {
  for (const std::size_t at : {6U, 7U, 18U, 19U, 24U, 31U}) {
    Bytes frame = encode(LeaveAck{});
    frame[at] = std::byte{1};
    EXPECT_THAT(corruption_of(resealed(frame)), HasSubstr("reserved bytes")) << at;
  }
}

TEST(Header, AFrameHasAMaximum) {
  EXPECT_THAT(corruption_of(Bytes(kMaxFrameBytes + 1)), HasSubstr("size: expected 32 to 8388608 bytes, got 8388609"));
}

}  // namespace
}  // namespace collab::wire
