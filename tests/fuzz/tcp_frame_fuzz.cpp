// The tcp transport's decoder behind its preface: any bytes, in pieces; what it accepts is put where an inbox says, and
// acknowledgements go to an outbox.
#include <algorithm>
#include <memory>

#include "tests/fuzz/fuzz_target.h"
#include "transport/tcp/session/tcp_inbox.h"
#include "transport/tcp/session/tcp_outbox.h"
#include "transport/tcp/wire/tcp_decoder.h"

namespace collab::fuzz {
namespace {

class Session final : public tcp::FrameSink {
 public:
  Session()
      : pool_(make_buffer_pool()),
        in_(Lane::kData, pool_, std::make_shared<tcp::UnfinishedShare>(std::make_shared<tcp::UnfinishedBytes>())) {
    out_.push({Lane::kData, std::vector<std::byte>(300), nullptr}, 1);
    (void)out_.next(1);
  }
  Result<std::optional<std::span<std::byte>>> on_segment_begin(const tcp::SegmentHeader& header) override {
    FUZZ_CHECK(header.length <= tcp::kMaxSegmentBytes);
    // Real limits would let one input take 200 MB: here a message is small, the rest is passed over.
    if (header.payload_bytes > 100'000 || header.head_bytes > 100'000) return std::optional<std::span<std::byte>>();
    const auto place = in_.begin(header, 1);
    if (!place.ok()) return place.status();
    if (!place->has_value()) return std::optional<std::span<std::byte>>();
    return std::optional((*place)->data);
  }
  Status on_segment_end(const tcp::SegmentHeader& header, bool placed) override {
    return placed ? in_.end(header, messages_) : Status();
  }
  Status on_frame(tcp::FrameType type, std::span<const std::byte> body) override {
    switch (type) {
      case tcp::FrameType::kHello: return same(tcp::decode_hello(body), body);
      case tcp::FrameType::kWelcome: return tcp::decode_welcome(body).status();
      case tcp::FrameType::kRefuse: return same(tcp::decode_refuse(body), body);
      case tcp::FrameType::kAck: {
        const auto arrivals = tcp::decode_ack(body);
        if (!arrivals.ok()) return arrivals.status();
        COLLAB_RETURN_IF_ERROR(same(arrivals, body));
        std::vector<std::uint64_t> tokens;
        return out_.acknowledge((*arrivals)[1], tokens);
      }
      case tcp::FrameType::kPing: return tcp::decode_ping(body).status();
      case tcp::FrameType::kPong: return tcp::decode_pong(body).status();
      case tcp::FrameType::kWant: return tcp::decode_want(body).status();
      case tcp::FrameType::kBye: return same(tcp::decode_bye(body), body);
      case tcp::FrameType::kAbort: return tcp::decode_abort(body).status();
      case tcp::FrameType::kAllow: return tcp::decode_allow(body).status();
      case tcp::FrameType::kSegment: break;
    }
    FUZZ_CHECK(type != tcp::FrameType::kSegment);
    return {};
  }

 private:
  // One value, one encoding.
  template <typename T>
  static Status same(const Result<T>& decoded, std::span<const std::byte> body) {
    if (!decoded.ok()) return decoded.status();
    const tcp::Bytes again = tcp::encode(*decoded);
    FUZZ_CHECK(std::equal(again.begin() + tcp::kPrefixBytes, again.end(), body.begin(), body.end()));
    return {};
  }
  std::shared_ptr<BufferPool> pool_;
  tcp::Inbox in_;
  tcp::Outbox out_{Lane::kData};
  std::vector<TransportMessage> messages_;
};

void run(std::span<const std::byte> bytes, std::size_t step) {
  tcp::FrameDecoder decoder;
  Session session;
  FUZZ_CHECK(decoder.feed(tcp::encode_preface(), session).ok());
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    const Status sound = decoder.feed(bytes.subspan(at, std::min(step, bytes.size() - at)), session);
    if (sound.ok()) continue;
    FUZZ_CHECK(sound.code() == StatusCode::kCorrupt && !sound.message().empty());
    return;
  }
}

}  // namespace

std::vector<Input> seed_inputs() {
  std::vector<Input> inputs;
  const auto add = [&](std::initializer_list<tcp::Bytes> frames) {
    tcp::Bytes all;
    for (const tcp::Bytes& frame : frames) all.insert(all.end(), frame.begin(), frame.end());
    inputs.push_back(to_input(all));
  };
  const auto segment = [](std::uint64_t number, std::uint64_t message, std::uint32_t total, std::uint32_t offset,
                          std::uint32_t length) {
    const auto header = tcp::encode(tcp::SegmentHeader{Lane::kData, number, message, 10, total, offset, length});
    tcp::Bytes bytes(header.begin(), header.end());
    bytes.resize(bytes.size() + length);
    return bytes;
  };
  add({tcp::encode(tcp::Hello{{1}, {2}, 0, true}), tcp::encode_ping(1), tcp::encode(tcp::Pong{1, 2}),
       tcp::encode_want(4)});
  add({tcp::encode_welcome({3}), tcp::encode(tcp::Arrivals{}), tcp::encode(tcp::Bye{{1, 2}})});
  add({segment(0, 0, 100, 0, 10), segment(2, 0, 100, 60, 50), segment(1, 0, 100, 10, 50), segment(3, 1, 5, 0, 10)});
  add({tcp::encode(tcp::Refuse{tcp::Refusal::kEnded, "over"}), tcp::encode_abort("a reason")});
  add({tcp::encode(tcp::Arrivals{tcp::LaneArrivals{0, {}}, tcp::LaneArrivals{0, {1}}})});
  return inputs;
}

}  // namespace collab::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  collab::fuzz::run(bytes, std::max<std::size_t>(1, bytes.size()));
  collab::fuzz::run(bytes, 13);
  return 0;
}
