// How a process exchanges messages with others: the interface that every transport implements.
//
// A link is a pair of ordered lanes between two processes. The control lane overtakes the data lane; within a lane
// messages arrive in the order they were sent, whole, once. A transport that can no longer guarantee this closes the
// link and says why.
//
// Threads: every method may be called from any thread, and from inside a handler. Handlers are called
// from the transport's own thread (loopback and sim: from the thread that drives them), one at a time
// per transport, and must not block.
// Ownership: a transport owns its links; payloads are shared and released once sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "collab/types.h"

namespace collab {

// Bytes from a pool: page faults on fresh memory cost as much as copying, so buffers are reused.
class Buffer {
 public:
  virtual ~Buffer() = default;
  [[nodiscard]] virtual std::span<std::byte> bytes() = 0;
  [[nodiscard]] std::span<const std::byte> view() { return bytes(); }
};
using BufferPtr = std::shared_ptr<Buffer>;

// Hands out buffers aligned to 64 bytes; a released buffer returns to the pool. Thread-safe; buffers
// may outlive the pool object. Memory kept for reuse is at most the peak that was in use at once.
class BufferPool {
 public:
  virtual ~BufferPool() = default;
  [[nodiscard]] virtual BufferPtr take(std::size_t bytes) = 0;
  virtual void trim() = 0;  // gives unused memory back to the system
  // Gives back half of the memory that was not needed since the last call. Call it every few seconds: memory left over
  // from a burst is freed, and memory in regular use stays.
  virtual void trim_idle() = 0;
  [[nodiscard]] virtual std::size_t bytes_held() const = 0;  // in use and kept
};
[[nodiscard]] std::shared_ptr<BufferPool> make_buffer_pool();

enum class Lane : std::uint8_t { kControl = 0, kData = 1 };

// `head` is a framed wire message (docs/protocol/wire.md), at most kMaxHeadBytes; `payload` may be null.
struct TransportMessage {
  Lane lane = Lane::kControl;
  std::vector<std::byte> head;
  BufferPtr payload;
  // About how many bytes will follow on this lane of the link, as far as the sender knows; not sent. If links share a
  // line, a transport may give more of the line to a link with more left to send.
  std::uint64_t more = 0;
  // Set on an arrived message by a transport that stops reading from a peer while too many of its messages wait. The
  // message counts as waiting until this pointer is released.
  std::shared_ptr<const void> unhandled = nullptr;

  [[nodiscard]] std::size_t payload_bytes() const { return payload == nullptr ? 0 : payload->view().size(); }
  [[nodiscard]] std::size_t bytes() const { return head.size() + payload_bytes(); }
};
inline constexpr std::size_t kMaxHeadBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMaxPayloadBytes = std::size_t{64} << 20;

// What a transport can do; the conformance suite holds it to this.
struct Abilities {
  bool resumes = false;      // a link survives the loss of its connections
  bool crosses_nat = false;  // works towards a peer that can only dial out
  bool encrypts = false;
  bool between_hosts = false;    // reaches other machines
  bool sees_peer_death = false;  // on_closed follows the death of a peer without a time-out of ours
};

class TransportHandler {
 public:
  virtual ~TransportHandler() = default;
  // Called before on_accepted or on_connected, if the peer has proved these names by a certificate.
  virtual void on_authenticated(LinkId /*link*/, const std::vector<std::string>& /*names*/) {}
  // A peer dialled us. `peer` is for messages to people only.
  virtual void on_accepted(LinkId link, const std::string& peer) = 0;
  // Our dial succeeded.
  virtual void on_connected(LinkId link) = 0;
  virtual void on_message(LinkId link, TransportMessage message) = 0;
  // The head and payload of the send with this token have left, and the transport no longer uses the payload's buffer.
  virtual void on_sent(LinkId link, std::uint64_t token) = 0;
  // The last call for a link, also after a failed dial. Unsent messages are dropped without on_sent.
  virtual void on_closed(LinkId link, Status why) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;  // closes everything; no handler is called after it returns
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual Abilities abilities() const = 0;
  // Called once, before anything else. The handler outlives the transport.
  virtual Status start(TransportHandler* handler) = 0;
  // "host:port"; port 0 takes a free one. Returns the bound "host:port". A port in use is an error that
  // names it.
  virtual Result<std::string> listen(const std::string& address) = 0;
  // Returns at once; on_connected or on_closed follows within `timeout`.
  virtual LinkId connect(const std::string& address, Duration timeout) = 0;
  // Queues the message; never blocks. `token` != 0 asks for on_sent. An unknown or closed link drops it.
  virtual void send(LinkId link, TransportMessage message, std::uint64_t token) = 0;
  // Messages queued before close() are still sent, for a few seconds at most; then on_closed(ok) follows. Messages that
  // arrive meanwhile may be dropped.
  virtual void close(LinkId link) = 0;
};

}  // namespace collab
