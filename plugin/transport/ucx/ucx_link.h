// What the engine knows of one link: its connections, its two lanes and how far it is in opening and closing.
//
//   dialled:   resolving ──▶ connecting ──(all hellos sent, welcome came)──▶ open
//   accepted:                connecting ──(all hellos came, welcome sent)──▶ open
//   open ──close() or a bye──▶ closing: queues run dry, bye goes out; ends when each side has taken all the
//   other sent and said so. A connection that breaks before that ends the link with the reason.
//
// Threads: the progress thread only. Ownership: the engine owns links; links share connections, and those their
// worker, with the operations under way on them.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collab/transport.h"
#include "transport/ucx/ucx_api.h"
#include "transport/ucx/ucx_resolver.h"

namespace collab {

inline constexpr unsigned kActiveMessage = 1;
inline constexpr Duration kCloseLimit = std::chrono::seconds(5);  // of a link, without a sign of life
// A lane's messages that the peer has not taken: at most this many, or these bytes and one message more.
inline constexpr std::uint64_t kLaneMessages = 1024;
inline constexpr std::size_t kLaneBytes = kMaxPayloadBytes;

// A UCX worker. Each link has its own, because over shared memory all peers of a worker write into one queue, which a
// peer killed in the middle of writing leaves stuck: so only its own link is hurt. Ends with its last connection.
struct UcxWorker {
  const UcxApi& api;
  ucp_worker_h handle = nullptr;
  int wake_fd = -1;
  std::uint64_t client_id = 0;  // of the dialler's worker; says which accepted connections belong together
  explicit UcxWorker(const UcxApi& functions) : api(functions) {}
  ~UcxWorker() {
    if (handle != nullptr) api.worker_destroy(handle);
  }
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
};
using UcxWorkerPtr = std::shared_ptr<UcxWorker>;

// One UCX endpoint: over TCP, a connection of its own.
struct UcxConnection {
  UcxWorkerPtr worker;
  ucp_ep_h endpoint = nullptr;  // null once closed
  std::string peer;
  LinkId link;  // 0: accepted, and its hello has not come
  std::size_t messages_in_flight = 0;
  std::size_t bytes_in_flight = 0;
  TimePoint deadline = kNever;  // for the hello
};
using UcxConnectionPtr = std::shared_ptr<UcxConnection>;

struct UcxLane {
  struct Outgoing {
    TransportMessage message;
    std::uint64_t token = 0;
    [[nodiscard]] std::size_t bytes() const { return message.bytes(); }
  };

  // Sending.
  std::deque<Outgoing> queue;
  std::uint64_t sent = 0;           // numbers given out
  std::deque<std::size_t> untaken;  // bytes of each message sent and not taken by the peer
  std::size_t untaken_bytes = 0;
  [[nodiscard]] bool may_send() const { return untaken.size() < kLaneMessages && untaken_bytes < kLaneBytes; }
  // The peer has taken this number of messages in all; false when that cannot be.
  [[nodiscard]] bool peer_has_taken(std::uint64_t number) {
    const std::uint64_t before = sent - untaken.size();
    if (number < before || number > sent) return false;
    for (std::uint64_t i = before; i < number; ++i) {
      untaken_bytes -= untaken.front();
      untaken.pop_front();
    }
    return true;
  }

  // Receiving.
  std::uint64_t taken = 0;  // handed to the handler, in order
  std::uint64_t told = 0;   // what the peer knows of `taken`
  std::size_t untold_bytes = 0;
  std::map<std::uint64_t, TransportMessage> early;  // arrived before one with a lower number
  [[nodiscard]] bool expects(std::uint64_t number) const {
    return number >= taken && number - taken < kLaneMessages && early.count(number) == 0;
  }
};

struct UcxLink {
  enum class State : std::uint8_t { kResolving, kConnecting, kOpen };

  LinkId id;
  State state = State::kResolving;
  bool dialled = false;
  std::string peer;                           // for messages to people
  std::array<std::uint64_t, 2> token{};       // drawn by the dialler; groups the connections
  std::vector<UcxConnectionPtr> connections;  // an acceptor's are null until their hello
  std::array<UcxLane, 2> lanes;
  TimePoint deadline = kNever;  // for opening, then for closing

  // A dial tries the addresses of the name in turn.
  UcxWorkerPtr worker;
  SocketAddresses addresses;
  std::size_t next_address = 0;

  // Closing.
  bool closing = false;  // nothing new is queued
  bool bye_sent = false;
  bool bye_taken = false;  // the peer has everything
  bool peer_said_bye = false;
  std::array<std::uint64_t, 2> peer_sent{};  // in all, from its bye
  bool told_bye_taken = false;               // we have everything, and said so

  [[nodiscard]] UcxLane& lane(Lane which) { return lanes[static_cast<std::size_t>(which)]; }
  [[nodiscard]] bool has_everything() const {
    return peer_said_bye && lanes[0].taken == peer_sent[0] && lanes[1].taken == peer_sent[1];
  }
};

}  // namespace collab
