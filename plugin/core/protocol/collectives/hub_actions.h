// The events and actions of the collective hub and its client. Plain values, like those of the other machines in
// actions.h.
//
// Threads and ownership: plain values; payloads are shared and never changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "collab/transport.h"
#include "core/protocol/actions.h"

namespace collab::protocol {

// Bytes [offset, offset + bytes) of a buffer. Without a buffer it is empty.
struct Payload {
  BufferPtr buffer;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};
[[nodiscard]] inline Payload whole(const BufferPtr& buffer) {
  return buffer ? Payload{buffer, 0, buffer->bytes().size()} : Payload{};
}

struct HubReceived {
  LinkId link;
  wire::Message message;
  BufferPtr payload;
  std::string host{};  // the sender's host, if known; clients ignore it
};
// Messages of a link go on the data lane, in order. Heartbeats go on the control lane, and may overtake them.
struct HubSend {
  LinkId link;
  wire::Message message;
  Payload payload;
};

// ---- hub -----------------------------------------------------------------------------------------

using HubEvent = std::variant<HubReceived, Closed, Tick>;
using HubAction = std::variant<HubSend, CloseLink, Note>;

// ---- client --------------------------------------------------------------------------------------

// A collective, or one side of a send: this rank's part in the group's next step.
struct HubRequest {
  std::uint64_t id = 0;  // the caller's, given back in HubExchanged
  GroupId group;
  std::uint64_t call = 0;  // see wire::Contribute
  std::string operation;
  std::string shape;
  wire::Absence absence = wire::Absence::kFails;
  std::uint32_t root = 0;
  bool wants = true;
  bool absent = false;
  std::vector<std::uint64_t> splits;
  Payload payload;
  Duration timeout{0};  // 0: none
};
struct OpenGroup {
  GroupId group;
  std::vector<RankId> members;
  GroupId parent{};  // see wire::Assemble
  std::uint32_t tag = 0;
};
struct CloseGroup {
  GroupId group;
};
// Asks which member sends to this rank in this group with this tag. Answered by SenderResolved.
struct ResolveSender {
  std::uint64_t id = 0;
  GroupId group;
  std::uint32_t tag = 0;
  Duration timeout{0};
};
struct HubBegin {};
struct HubLeave {
  std::string reason;
};
// This rank wanted to send a message that is too large to encode.
struct HubMessageTooLarge {
  Status why;
};
struct HubConnected {
  LinkId link;
};
struct HubDialFailed {
  Status why;
};
using HubClientEvent = std::variant<HubBegin, OpenGroup, CloseGroup, HubRequest, ResolveSender, HubLeave,
                                    HubMessageTooLarge, HubConnected, HubDialFailed, HubReceived, Closed, Tick>;

struct DialHub {
  std::uint32_t candidate = 0;
};
struct HubExchanged {
  std::uint64_t id = 0;
  Status status;
  std::vector<Payload> parts;         // by member; without our own
  std::vector<std::uint32_t> absent;  // members it was completed without
};
struct SenderResolved {
  std::uint64_t id = 0;
  Status status;
  std::uint32_t from = 0;  // a member's index
};
struct HubEntered {};
// The client cannot go on: every exchange fails with this status from now on.
struct HubBroken {
  Status why;
};
using HubClientAction =
    std::variant<DialHub, HubSend, CloseLink, HubExchanged, SenderResolved, HubEntered, HubBroken, Note>;

}  // namespace collab::protocol
