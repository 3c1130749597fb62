#include "core/wire/encoding.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "core/base/digest.h"
#include "core/base/little_endian.h"
#include "core/wire/byte_io.h"
#include "core/wire/fields.h"
#include "core/wire/hub_fields.h"
#include "core/wire/limits.h"
#include "core/wire/rules.h"

namespace collab::wire {
namespace {

// The header; docs/protocol/wire.md has the drawing. Magic and version keep their place in all future versions.
constexpr std::array<std::byte, 4> kMagic{std::byte{'C'}, std::byte{'L'}, std::byte{'B'}, std::byte{'1'}};
constexpr std::size_t kVersionAt = 4;
constexpr std::size_t kReservedAt = 6;
constexpr std::size_t kChecksumAt = 8;
constexpr std::size_t kTypeAt = 16;  // the checksum covers everything from here
constexpr std::size_t kReserved2At = 18;
constexpr std::size_t kBodyBytesAt = 20;
constexpr std::size_t kReserved3At = 24;
static_assert(kReserved3At + sizeof(std::uint64_t) == kFrameHeaderBytes);
static_assert(kMaxBodyBytes <= 0xFFFF'FFFF);

// A message's type on the wire is its place in Message, counted from 1.
constexpr std::array<std::string_view, std::variant_size_v<Message>> kNames{
    "Join",          "AnchorInstalled", "Ready",          "Decline",        "PeerUnreachable",
    "Done",          "Leave",           "Welcome",        "Refuse",         "Roster",
    "InstallAnchor", "StartAttempt",    "Commit",         "LeaveAck",       "Hello",
    "FetchAnchor",   "AnchorMoved",     "Chunk",          "Heartbeat",      "StatusQuery",
    "StatusReport",  "RoundSkipped",    "Prepare",        "Promise",        "MemberLeft",
    "Enter",         "Assemble",        "Disband",        "Contribute",     "ResultAck",
    "ResolveSender", "Entered",         "Stands",         "SenderResolved", "Part",
    "StepResult",    "Notice",          "FetchOptimizer", "OptimizerState", "Hold",
    "Accept",        "Accepted",        "Inquire",        "Leads",          "Forget",
    "PrepareWorld",  "AcceptEpoch",     "AcceptedEpoch",  "ChosenEpoch",    "Keys"};
static_assert(std::is_same_v<std::variant_alternative_t<0, Message>, Join>);
static_assert(std::is_same_v<std::variant_alternative_t<11, Message>, StartAttempt>);
static_assert(std::is_same_v<std::variant_alternative_t<17, Message>, Chunk>);
static_assert(std::is_same_v<std::variant_alternative_t<20, Message>, StatusReport>);
static_assert(std::is_same_v<std::variant_alternative_t<23, Message>, Promise>);
static_assert(std::is_same_v<std::variant_alternative_t<35, Message>, StepResult>);
static_assert(std::is_same_v<std::variant_alternative_t<38, Message>, OptimizerState>);
static_assert(std::is_same_v<std::variant_alternative_t<39, Message>, Hold>);
static_assert(std::is_same_v<std::variant_alternative_t<44, Message>, Forget>);
static_assert(std::is_same_v<std::variant_alternative_t<48, Message>, ChosenEpoch>);

Status bad_frame(const char* field, const std::string& expected, const std::string& got) {
  return corrupt(std::string("frame ") + field + ": expected " + expected + ", got " + got + " [wire.header]");
}

// Everything but the body; on success `type` is valid.
Status check_header(std::span<const std::byte> frame, std::uint16_t& type) {
  if (frame.size() < kFrameHeaderBytes || frame.size() > kMaxFrameBytes) {
    return bad_frame("size", std::to_string(kFrameHeaderBytes) + " to " + std::to_string(kMaxFrameBytes) + " bytes",
                     std::to_string(frame.size()));
  }
  if (!std::equal(kMagic.begin(), kMagic.end(), frame.begin())) {
    return bad_frame("magic", "\"CLB1\"", "other bytes: the peer does not speak collab's protocol");
  }
  if (const auto version = load_little<std::uint16_t>(frame.subspan(kVersionAt)); version != kProtocolVersion) {
    return refused("the peer speaks protocol version " + std::to_string(version) + ", but this site speaks version " +
                   std::to_string(kProtocolVersion) +
                   ": install the same release of torch-collab on both sites [wire.version]");
  }
  const auto body_bytes = load_little<std::uint32_t>(frame.subspan(kBodyBytesAt));
  if (body_bytes != frame.size() - kFrameHeaderBytes) {
    return bad_frame("body length", std::to_string(frame.size() - kFrameHeaderBytes), std::to_string(body_bytes));
  }
  if (load_little<std::uint16_t>(frame.subspan(kReservedAt)) != 0 ||
      load_little<std::uint16_t>(frame.subspan(kReserved2At)) != 0 ||
      load_little<std::uint64_t>(frame.subspan(kReserved3At)) != 0) {
    return bad_frame("reserved bytes", "zeros", "something else");
  }
  if (load_little<std::uint64_t>(frame.subspan(kChecksumAt)) != hash64(frame.subspan(kTypeAt))) {
    return bad_frame("checksum", "that of the bytes after it", "another one: the frame was damaged on its way");
  }
  type = load_little<std::uint16_t>(frame.subspan(kTypeAt));
  if (type == 0 || type > kNames.size()) {
    return bad_frame("type", "1 to " + std::to_string(kNames.size()), std::to_string(type));
  }
  return {};
}

// Alternative number `index` of Message, default-constructed.
template <std::size_t... kIndex>
Message make_message(std::size_t index, std::index_sequence<kIndex...>) {
  Message message;
  static_cast<void>(((index == kIndex && (message.emplace<kIndex>(), true)) || ...));
  return message;
}

}  // namespace

std::string_view name_of(const Message& message) { return kNames[message.index()]; }

Result<std::vector<std::byte>> try_encode(const Message& message) {
  const auto wrong = [&](const std::string& what) {
    return invalid_argument(std::string(name_of(message)) + " cannot be sent: " + what);
  };
  if (const Status broken = check_rules(message); !broken.ok()) return wrong(broken.message());
  Writer writer;
  writer.bytes().resize(kFrameHeaderBytes);
  std::visit([&](const auto& m) { fields(writer, m); }, message);
  if (!writer.status().ok()) return wrong(writer.status().message());

  std::vector<std::byte> frame = std::move(writer.bytes());
  if (frame.size() > kMaxFrameBytes) {
    return wrong("expected at most " + std::to_string(kMaxFrameBytes) + " bytes, got " + std::to_string(frame.size()));
  }
  std::copy(kMagic.begin(), kMagic.end(), frame.begin());
  const std::span<std::byte> bytes(frame);
  store_little(bytes.subspan(kVersionAt), kProtocolVersion);
  store_little(bytes.subspan(kTypeAt), static_cast<std::uint16_t>(message.index() + 1));
  store_little(bytes.subspan(kBodyBytesAt), static_cast<std::uint32_t>(frame.size() - kFrameHeaderBytes));
  store_little(bytes.subspan(kChecksumAt), hash64(bytes.subspan(kTypeAt)));
  return frame;
}

std::vector<std::byte> encode(const Message& message) { return try_encode(message).value(); }

Result<Message> decode(std::span<const std::byte> frame) {
  std::uint16_t type = 0;
  COLLAB_RETURN_IF_ERROR(check_header(frame, type));
  Message message = make_message(type - std::size_t{1}, std::make_index_sequence<std::variant_size_v<Message>>());
  Reader reader(frame.subspan(kFrameHeaderBytes));
  std::visit([&](auto& m) { fields(reader, m); }, message);
  reader.finish();
  const Status status = reader.status().ok() ? check_rules(message) : reader.status();
  if (!status.ok()) return corrupt(std::string(name_of(message)) + "." + status.message());
  return message;
}

std::vector<std::byte> encode_record(const Record& record) {
  Writer writer;
  fields(writer, record);
  COLLAB_CHECK(writer.status().ok(), "a record keeps its bounds: " + writer.status().message());
  return std::move(writer.bytes());
}

Result<Record> decode_record(std::span<const std::byte> bytes) {
  Record record;
  Reader reader(bytes);
  fields(reader, record);
  reader.finish();
  const Status status = reader.status().ok() ? check_rules(record) : reader.status();
  if (!status.ok()) return corrupt("record." + status.message());
  return record;
}

}  // namespace collab::wire
