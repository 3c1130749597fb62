// Frames from bytes that come in pieces of any size, and what is refused.
#include "transport/tcp/wire/tcp_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace collab::tcp {
namespace {

class Sink final : public FrameSink {
 public:
  Result<std::optional<std::span<std::byte>>> on_segment_begin(const SegmentHeader& header) override {
    data.emplace_back(header.length);
    if (pass_over) return std::optional<std::span<std::byte>>();
    return std::optional<std::span<std::byte>>(data.back());
  }
  Status on_segment_end(const SegmentHeader& header, bool placed) override {
    ended.emplace_back(header, placed);
    return {};
  }
  Status on_frame(FrameType type, std::span<const std::byte> body) override {
    frames.emplace_back(type, Bytes(body.begin(), body.end()));
    return {};
  }
  bool pass_over = false;
  std::vector<Bytes> data;
  std::vector<std::pair<SegmentHeader, bool>> ended;
  std::vector<std::pair<FrameType, Bytes>> frames;
};

const SegmentHeader kSegment{Lane::kData, 5, 2, 100, 70'000, 100, 60'000};

Bytes conversation() {
  Bytes all = encode_preface();
  const auto add = [&](std::span<const std::byte> bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); };
  add(encode(Hello{{1}, {2}, 3, false}));
  add(encode(kSegment));
  for (std::size_t i = 0; i < kSegment.length; ++i) all.push_back(static_cast<std::byte>(i * 7));
  add(encode(Arrivals{LaneArrivals{4, {1, 2}}, LaneArrivals{9, {}}}));
  add(encode(SegmentHeader{Lane::kControl, 0, 0, 0, 0, 0, 0}));
  add(encode_abort(""));
  return all;
}

TEST(TcpDecoder, CountsWhatCostsTime) {
  const Bytes all = conversation();
  FrameDecoder decoder;
  Sink sink;
  ASSERT_TRUE(decoder.feed(all, sink).ok());
  EXPECT_EQ(decoder.take_count(), 5U) << "a segment of no bytes as well";
  EXPECT_EQ(decoder.take_count(), 0U);
}

TEST(TcpDecoder, TakesPiecesOfAnySize) {
  const Bytes all = conversation();
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, all.size()}) {
    for (const bool direct : {false, true}) {
      FrameDecoder decoder;
      Sink sink;
      for (std::size_t at = 0; at < all.size();) {
        const std::span<std::byte> room = decoder.room();
        std::size_t taken = std::min(step, all.size() - at);
        if (direct && !room.empty()) {
          taken = std::min(taken, room.size());
          std::memcpy(room.data(), all.data() + at, taken);
          ASSERT_TRUE(decoder.filled(taken, sink).ok());
        } else {
          ASSERT_TRUE(decoder.feed(std::span(all).subspan(at, taken), sink).ok());
        }
        at += taken;
      }
      ASSERT_EQ(sink.frames.size(), 3U);
      EXPECT_EQ(*decode_hello(sink.frames[0].second), (Hello{{1}, {2}, 3, false}));
      EXPECT_EQ(decode_ack(sink.frames[1].second)->at(0), (LaneArrivals{4, {1, 2}}));
      ASSERT_EQ(sink.ended.size(), 2U);
      EXPECT_EQ(sink.ended[0].first, kSegment);
      EXPECT_TRUE(sink.ended[0].second);
      for (std::size_t i = 0; i < kSegment.length; ++i) ASSERT_EQ(sink.data[0][i], static_cast<std::byte>(i * 7));
    }
  }
}

TEST(TcpDecoder, APlaceCanBeTakenBack) {
  const Bytes all = conversation();
  FrameDecoder decoder;
  Sink sink;
  ASSERT_TRUE(decoder.feed(std::span(all).first(200), sink).ok());
  ASSERT_FALSE(decoder.room().empty());
  decoder.forget_place();
  EXPECT_TRUE(decoder.room().empty());
  sink.data.clear();
  ASSERT_TRUE(decoder.feed(std::span(all).subspan(200), sink).ok());
  ASSERT_EQ(sink.ended.size(), 2U);
  EXPECT_FALSE(sink.ended[0].second);
  EXPECT_EQ(sink.frames.size(), 3U);
}

TEST(TcpDecoder, RefusesMalformedFrames) {
  const auto status_of = [](Bytes bytes) {
    FrameDecoder decoder;
    Sink sink;
    return decoder.feed(bytes, sink);
  };
  const auto with = [](std::size_t at, std::uint8_t value, Bytes frame) {
    Bytes all = encode_preface();
    all.insert(all.end(), frame.begin(), frame.end());
    all[at] = std::byte{value};
    return all;
  };
  const auto header = encode(kSegment);
  const Bytes segment(header.begin(), header.end());
  EXPECT_TRUE(status_of(with(0, 'C', segment)).ok());
  const std::vector<std::pair<const char*, Bytes>> broken{
      {"magic", with(0, 'X', segment)},
      {"version", with(4, 2, segment)},
      {"preface's reserve", with(6, 1, segment)},
      {"type 0", with(8, 0, segment)},
      {"type 12", with(8, 12, segment)},
      {"lane", with(9, 2, segment)},
      {"lane of a ping", with(9, 1, encode_ping(1))},
      {"reserve", with(10, 1, segment)},
      {"segment too long", with(14, 2, segment)},
      {"ping too long", with(14, 1, encode_ping(1))},
      {"head too long", with(8 + 8 + 19, 1, segment)},
      {"segment past the payload's end", with(8 + 8 + 24 + 1, 0xFF, segment)},
      {"segment's reserve", with(8 + 8 + 28, 1, segment)}};
  for (const auto& [what, bytes] : broken) {
    EXPECT_EQ(status_of(bytes).code(), StatusCode::kCorrupt) << what;
  }
  EXPECT_NE(status_of(with(4, 2, segment)).message().find("version 2"), std::string::npos);
}

TEST(TcpDecoder, BodiesAreBounded) {
  const auto body = [](const Bytes& frame) { return std::span(frame).subspan(kPrefixBytes); };
  EXPECT_EQ(*decode_refuse(body(encode(Refuse{Refusal::kEnded, "over"}))), (Refuse{Refusal::kEnded, "over"}));
  EXPECT_EQ(*decode_bye(body(encode(Bye{{3, 4}}))), (Bye{{3, 4}}));
  EXPECT_EQ(*decode_want(body(encode_want(64))), 64);
  EXPECT_FALSE(decode_want(body(encode_want(65))).ok());
  EXPECT_FALSE(decode_want(body(encode_want(0))).ok());
  EXPECT_EQ(*decode_allow(body(encode_allow(1'250'000))), 1'250'000U);
  EXPECT_FALSE(decode_allow(body(encode_want(1))).ok());
  EXPECT_EQ(*decode_ping(body(encode_ping(77))), 77U);
  EXPECT_EQ(*decode_pong(body(encode(Pong{77, 78}))), (Pong{77, 78}));
  const std::string long_sentence = std::string(kMaxSentenceBytes - 1, 'a') + "\xC3\xBC";
  EXPECT_EQ(decode_abort(body(encode_abort(long_sentence)))->size(), kMaxSentenceBytes - 1) << "cut between characters";
  Bytes ack = encode(Arrivals{});
  ack[kPrefixBytes + 8] = std::byte{65};
  EXPECT_FALSE(decode_ack(body(ack)).ok());
  Bytes hello = encode(Hello{{1}, {2}, 3, true});
  EXPECT_FALSE(decode_hello(body(hello)).ok()) << "only connection 0 opens a link";
}

}  // namespace
}  // namespace collab::tcp
