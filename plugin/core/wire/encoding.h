// Bytes <-> messages. A frame is a fixed header and one message body; see docs/protocol/wire.md.
//
// The decoder trusts nothing: every length, count and enum is bounded before memory is allocated, the
// body must be consumed to its last byte, reserved bits must be zero. Threads: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "collab/status.h"
#include "core/wire/messages.h"

namespace collab::wire {

[[nodiscard]] std::string_view name_of(const Message& message);  // "StartAttempt"

// A frame as it goes into TransportMessage::head. The message must keep its bounds and rules (a broken one is a
// bug and aborts); what people bring (names, models) goes through try_encode first. Reasons that are too long are cut.
[[nodiscard]] std::vector<std::byte> encode(const Message& message);

// kInvalidArgument names the message, the field, what was expected and what came.
[[nodiscard]] Result<std::vector<std::byte>> try_encode(const Message& message);

// kCorrupt names the field, what was expected and what came. Another protocol version is kRefused with
// both versions.
[[nodiscard]] Result<Message> decode(std::span<const std::byte> frame);

// A record by itself, as it is kept: what a site may read back is as little trusted as what comes from others.
[[nodiscard]] std::vector<std::byte> encode_record(const Record& record);
[[nodiscard]] Result<Record> decode_record(std::span<const std::byte> bytes);

}  // namespace collab::wire
