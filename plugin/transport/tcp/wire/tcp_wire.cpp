#include "transport/tcp/wire/tcp_wire.h"

#include <algorithm>
#include <span>

#include "core/base/little_endian.h"
#include "core/base/text.h"

namespace collab::tcp {
namespace {

class Writer {
 public:
  Writer(FrameType type, Lane lane = Lane::kControl) {
    number(static_cast<std::uint8_t>(type));
    number(static_cast<std::uint8_t>(lane));
    number(std::uint16_t{0});
    number(std::uint32_t{0});  // the body's size, once it is known
  }
  template <typename T>
  void number(T value) {
    bytes_.resize(bytes_.size() + sizeof(T));
    store_little(std::span(bytes_).last(sizeof(T)), value);
  }
  void id(const Id& id) {
    for (const std::uint8_t byte : id) bytes_.push_back(std::byte{byte});
  }
  void sentence(std::string_view text) {
    std::size_t size = std::min(text.size(), kMaxSentenceBytes);
    while (size > 0 && !is_valid_utf8(text.substr(0, size))) --size;  // not within a character
    for (const char c : text.substr(0, size)) bytes_.push_back(static_cast<std::byte>(c));
  }
  Bytes finish(std::size_t body_follows = 0) {
    const std::size_t body = bytes_.size() - kPrefixBytes + body_follows;
    store_little(std::span(bytes_).subspan(4), static_cast<std::uint32_t>(body));
    return std::move(bytes_);
  }

 private:
  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T number() {
    at_ += sizeof(T);
    return load_little<T>(bytes_.subspan(at_ - sizeof(T)));
  }
  Id id() {
    Id id{};
    for (std::uint8_t& byte : id) byte = number<std::uint8_t>();
    return id;
  }
  [[nodiscard]] std::size_t left() const { return bytes_.size() - at_; }
  [[nodiscard]] Result<std::string> sentence() {
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_, left());
    at_ = bytes_.size();
    if (text.size() > kMaxSentenceBytes || !is_valid_utf8(text))
      return corrupt("a reason that is not valid UTF-8, or too long");
    return text;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

Status wrong_size(const char* what, std::size_t expected, std::size_t came) {
  return corrupt(std::string("a ") + what + " of " + std::to_string(came) + " bytes, expected " +
                 std::to_string(expected));
}

}  // namespace

Bytes encode_preface() {
  Bytes bytes;
  for (const char c : kMagic) bytes.push_back(static_cast<std::byte>(c));
  bytes.push_back(static_cast<std::byte>(kWireVersion & 0xFFU));
  bytes.push_back(static_cast<std::byte>(kWireVersion >> 8U));
  bytes.resize(kPrefaceBytes);
  return bytes;
}

Status check_preface(std::span<const std::byte, kPrefaceBytes> bytes) {
  for (std::size_t i = 0; i < kMagic.size(); ++i) {
    if (bytes[i] != static_cast<std::byte>(kMagic[i])) {
      return corrupt(
          "the program that answers there is not a tcp transport of collab; is the address right? [tcp.no-transport]");
    }
  }
  Reader reader(bytes.subspan<4>());
  const auto version = reader.number<std::uint16_t>();
  if (version != kWireVersion) {
    return corrupt("it speaks version " + std::to_string(version) +
                   " of the tcp transport, but this site speaks version " + std::to_string(kWireVersion) +
                   "; install the same collab on all sites [tcp.version]");
  }
  if (reader.number<std::uint16_t>() != 0) return corrupt("reserved bytes of the preface that are not zero");
  return {};
}

Result<Prefix> decode_prefix(std::span<const std::byte, kPrefixBytes> bytes) {
  Reader reader(bytes);
  const auto type = reader.number<std::uint8_t>();
  const auto lane = reader.number<std::uint8_t>();
  const auto zero = reader.number<std::uint16_t>();
  const auto body = reader.number<std::uint32_t>();
  if (type < 1 || type > static_cast<std::uint8_t>(FrameType::kAllow)) {
    return corrupt("a frame of type " + std::to_string(type));
  }
  const bool segment = type == static_cast<std::uint8_t>(FrameType::kSegment);
  if (zero != 0 || lane > (segment ? 1 : 0)) return corrupt("reserved bytes of a frame that are not zero");
  if (segment ? body < kSegmentFieldBytes || body > kSegmentFieldBytes + kMaxSegmentBytes : body > kMaxBodyBytes) {
    return corrupt("a frame of type " + std::to_string(type) + " with " + std::to_string(body) + " bytes");
  }
  return Prefix{static_cast<FrameType>(type), static_cast<Lane>(lane), body};
}

Bytes encode(const Hello& hello) {
  Writer writer(FrameType::kHello);
  writer.id(hello.link);
  writer.id(hello.process);
  writer.number(hello.connection);
  writer.number(static_cast<std::uint8_t>(hello.opens));
  for (int i = 0; i < 5; ++i) writer.number(std::uint8_t{0});
  return writer.finish();
}

Result<Hello> decode_hello(std::span<const std::byte> body) {
  if (body.size() != 40) return wrong_size("hello", 40, body.size());
  Reader reader(body);
  Hello hello;
  hello.link = reader.id();
  hello.process = reader.id();
  hello.connection = reader.number<std::uint16_t>();
  const auto opens = reader.number<std::uint8_t>();
  hello.opens = opens != 0;
  while (reader.left() > 0) {
    if (reader.number<std::uint8_t>() != 0) return corrupt("reserved bytes of a hello that are not zero");
  }
  if (opens > 1 || hello.connection > kMaxDataConnections || (hello.opens && hello.connection != 0)) {
    return corrupt("a hello for connection " + std::to_string(hello.connection));
  }
  return hello;
}

Bytes encode_welcome(const Id& process) {
  Writer writer(FrameType::kWelcome);
  writer.id(process);
  return writer.finish();
}

Result<Id> decode_welcome(std::span<const std::byte> body) {
  if (body.size() != 16) return wrong_size("welcome", 16, body.size());
  return Reader(body).id();
}

Bytes encode(const Refuse& refuse) {
  Writer writer(FrameType::kRefuse);
  writer.number(static_cast<std::uint8_t>(refuse.why));
  for (int i = 0; i < 3; ++i) writer.number(std::uint8_t{0});
  writer.sentence(refuse.reason);
  return writer.finish();
}

Result<Refuse> decode_refuse(std::span<const std::byte> body) {
  if (body.size() < 4) return wrong_size("refusal", 4, body.size());
  Reader reader(body);
  const auto why = reader.number<std::uint8_t>();
  const bool zero = reader.number<std::uint8_t>() == 0 && reader.number<std::uint16_t>() == 0;
  if (!zero || why < 1 || why > static_cast<std::uint8_t>(Refusal::kVersion))
    return corrupt("a refusal without a reason");
  Result<std::string> reason = reader.sentence();
  if (!reason.ok()) return reason.status();
  return Refuse{static_cast<Refusal>(why), std::move(*reason)};
}

std::array<std::byte, kSegmentHeaderBytes> encode(const SegmentHeader& header) {
  Writer writer(FrameType::kSegment, header.lane);
  writer.number(header.number);
  writer.number(header.message);
  writer.number(header.head_bytes);
  writer.number(header.payload_bytes);
  writer.number(header.offset);
  writer.number(std::uint32_t{0});
  const Bytes bytes = writer.finish(header.length);
  std::array<std::byte, kSegmentHeaderBytes> fixed{};
  std::copy(bytes.begin(), bytes.end(), fixed.begin());
  return fixed;
}

Result<SegmentHeader> decode_segment(const Prefix& prefix, std::span<const std::byte, kSegmentFieldBytes> fields) {
  Reader reader(fields);
  SegmentHeader header;
  header.lane = prefix.lane;
  header.number = reader.number<std::uint64_t>();
  header.message = reader.number<std::uint64_t>();
  header.head_bytes = reader.number<std::uint32_t>();
  header.payload_bytes = reader.number<std::uint32_t>();
  header.offset = reader.number<std::uint32_t>();
  header.length = prefix.body_bytes - static_cast<std::uint32_t>(kSegmentFieldBytes);
  if (reader.number<std::uint32_t>() != 0) return corrupt("reserved bytes of a segment that are not zero");
  if (header.head_bytes > kMaxHeadBytes || header.payload_bytes > kMaxPayloadBytes) {
    return corrupt("a message with a head of " + std::to_string(header.head_bytes) + " and a payload of " +
                   std::to_string(header.payload_bytes) + " bytes");
  }
  const std::uint64_t total = std::uint64_t{header.head_bytes} + header.payload_bytes;
  const std::uint64_t end = std::uint64_t{header.offset} + header.length;
  const std::uint64_t limit = header.offset < header.head_bytes ? header.head_bytes : total;
  if (end > limit || (header.length == 0 && total != 0)) {
    return corrupt("a segment of " + std::to_string(header.length) + " bytes at " + std::to_string(header.offset) +
                   " of a message with " + std::to_string(header.head_bytes) + " and " +
                   std::to_string(header.payload_bytes));
  }
  return header;
}

Bytes encode(const Arrivals& arrivals) {
  Writer writer(FrameType::kAck);
  for (const LaneArrivals& lane : arrivals) {
    writer.number(lane.below);
    writer.number(static_cast<std::uint32_t>(lane.beyond.size()));
    for (const std::uint64_t word : lane.beyond) writer.number(word);
  }
  return writer.finish();
}

Result<Arrivals> decode_ack(std::span<const std::byte> body) {
  Reader reader(body);
  Arrivals arrivals;
  for (LaneArrivals& lane : arrivals) {
    if (reader.left() < 12) return corrupt("an acknowledgement that is cut short");
    lane.below = reader.number<std::uint64_t>();
    const auto words = reader.number<std::uint32_t>();
    if (words > kWindowSegments / 64 || std::size_t{8} * words > reader.left()) {
      return corrupt("an acknowledgement with " + std::to_string(words) + " words beyond the first gap");
    }
    for (std::uint32_t i = 0; i < words; ++i) lane.beyond.push_back(reader.number<std::uint64_t>());
  }
  if (reader.left() != 0) return corrupt("an acknowledgement that is longer than it says");
  return arrivals;
}

Bytes encode_ping(std::uint64_t stamp) {
  Writer writer(FrameType::kPing);
  writer.number(stamp);
  return writer.finish();
}

Result<std::uint64_t> decode_ping(std::span<const std::byte> body) {
  if (body.size() != 8) return wrong_size("ping", 8, body.size());
  return Reader(body).number<std::uint64_t>();
}

Bytes encode(const Pong& pong) {
  Writer writer(FrameType::kPong);
  writer.number(pong.stamp);
  writer.number(pong.clock);
  return writer.finish();
}

Result<Pong> decode_pong(std::span<const std::byte> body) {
  if (body.size() != 16) return wrong_size("pong", 16, body.size());
  Reader reader(body);
  Pong pong;
  pong.stamp = reader.number<std::uint64_t>();
  pong.clock = reader.number<std::uint64_t>();
  return pong;
}

Bytes encode_want(std::uint16_t connections) {
  Writer writer(FrameType::kWant);
  writer.number(connections);
  return writer.finish();
}

Result<std::uint16_t> decode_want(std::span<const std::byte> body) {
  if (body.size() != 2) return wrong_size("want", 2, body.size());
  const auto connections = Reader(body).number<std::uint16_t>();
  if (connections < 1 || connections > kMaxDataConnections) {
    return corrupt("a request for " + std::to_string(connections) + " connections, expected 1 to " +
                   std::to_string(kMaxDataConnections));
  }
  return connections;
}

Bytes encode(const Bye& bye) {
  Writer writer(FrameType::kBye);
  for (const std::uint64_t segments : bye.segments) writer.number(segments);
  return writer.finish();
}

Result<Bye> decode_bye(std::span<const std::byte> body) {
  if (body.size() != 16) return wrong_size("bye", 16, body.size());
  Reader reader(body);
  Bye bye;
  for (std::uint64_t& segments : bye.segments) segments = reader.number<std::uint64_t>();
  return bye;
}

Bytes encode_abort(std::string_view reason) {
  Writer writer(FrameType::kAbort);
  writer.sentence(reason);
  return writer.finish();
}

Result<std::string> decode_abort(std::span<const std::byte> body) { return Reader(body).sentence(); }

Bytes encode_allow(std::uint64_t bytes_per_second) {
  Writer writer(FrameType::kAllow);
  writer.number(bytes_per_second);
  return writer.finish();
}

Result<std::uint64_t> decode_allow(std::span<const std::byte> body) {
  if (body.size() != 8) return wrong_size("allowance", 8, body.size());
  return Reader(body).number<std::uint64_t>();
}

}  // namespace collab::tcp
