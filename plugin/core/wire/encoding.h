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

// A frame for TransportMessage::head. The message must keep its bounds and rules; if not, that is a bug, and encode()
// aborts. User input (names, models) goes through try_encode() first. Reasons that are too long are cut.
[[nodiscard]] std::vector<std::byte> encode(const Message& message);

// kInvalidArgument names the message, the field, what was expected and what came.
[[nodiscard]] Result<std::vector<std::byte>> try_encode(const Message& message);

// kCorrupt names the field, what was expected and what came. Another protocol version is kRefused with
// both versions.
[[nodiscard]] Result<Message> decode(std::span<const std::byte> frame);

// A record by itself, for its file. A record read back from a file is trusted as little as one from the network.
[[nodiscard]] std::vector<std::byte> encode_record(const Record& record);
[[nodiscard]] Result<Record> decode_record(std::span<const std::byte> bytes);

}  // namespace collab::wire
