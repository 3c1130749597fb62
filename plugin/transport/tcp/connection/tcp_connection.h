// One TCP connection, in TLS or in the clear, that carries frames. It connects its parts to each other and to its
// owner. lifecycle.h draws its states.
//
// Threads: the transport's IO thread only. Ownership: shared by the engine and by the operations in progress; owns its
// socket. It reports every event to its owner. Failures are reported from the event loop, never from inside a call.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collab/clock.h"
#include "transport/tcp/connection/batch_size.h"
#include "transport/tcp/connection/keepalive.h"
#include "transport/tcp/connection/lifecycle.h"
#include "transport/tcp/connection/link_slot.h"
#include "transport/tcp/connection/nonblocking_socket.h"
#include "transport/tcp/connection/read_turn.h"
#include "transport/tcp/connection/security_layer.h"
#include "transport/tcp/connection/send_queue.h"
#include "transport/tcp/connection/socket_pace.h"
#include "transport/tcp/wire/tcp_decoder.h"

namespace collab::tcp {

class Connection;
using ConnectionPtr = std::shared_ptr<Connection>;

enum class Fault : std::uint8_t {
  kNoAnswer,     // could not be reached, or went silent
  kRefusedPort,  // nobody listens there
  kEndedByPeer,  // closed or reset by the other side
  kNotAllowed,   // wrong token or certificate, or a Refuse frame
  kBroken,       // bytes that break the protocol
};

class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  virtual Result<std::optional<std::span<std::byte>>> on_segment_begin(Connection& from,
                                                                       const SegmentHeader& header) = 0;
  virtual Status on_segment_end(Connection& from, const SegmentHeader& header, bool placed) = 0;
  virtual Status on_frame(Connection& from, FrameType type, std::span<const std::byte> body) = 0;
  // All bytes that were available have been read.
  virtual void on_reading_paused(Connection& from) = 0;
  virtual bool admit_read(Connection& from, std::size_t bytes) = 0;  // counts them; false: stop until resume_reading()
  virtual void on_send_queue_empty(Connection& from) = 0;            // more can be sent at once
  virtual void on_segment_written(Connection& from, Lane lane, std::uint64_t number) = 0;
  virtual void failed(const ConnectionPtr& from, Fault fault, const Status& why) = 0;
};

// What every connection of a transport needs.
struct ConnectionContext {
  boost::asio::io_context& io;
  ConnectionOwner& owner;
  std::shared_ptr<TlsKeys> keys;  // null: in the clear
  SocketOptions socket;
  std::vector<std::byte> raw;    // scratch: bytes as read from a socket
  std::vector<std::byte> clear;  // scratch: the same bytes, decrypted
};

class Connection final : public std::enable_shared_from_this<Connection>, private FrameSink {
 public:
  using State = Lifecycle::State;

  Connection(ConnectionContext& context, ConnectionId name);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  void dial(const Endpoint& to);
  void accept(boost::asio::ip::tcp::socket socket, const Endpoint& from);

  // Queues in order. flush() hands the system as much as it takes.
  void send(Bytes frame);
  void send(Outbox::Piece piece) { queue_.push(std::move(piece)); }
  void flush();
  [[nodiscard]] bool idle() const { return queue_.empty() && !socket_.waits_to_write() && !security_.has_outgoing(); }
  [[nodiscard]] bool overfull() const { return queue_.overfull(); }
  // Sends the queue and then stops. Discards incoming data until the other side ends as well.
  void drain();
  void close();
  void fail(Fault fault, Status why);
  void resume_reading();
  void forget_place() { decoder_.forget_place(); }

  [[nodiscard]] State state() const { return life_.state(); }
  void attached(TimePoint now) { life_.attach(now); }
  [[nodiscard]] std::optional<TimePoint> attached_at() const { return life_.attached_at(); }
  [[nodiscard]] TimePoint deadline() const { return life_.deadline(); }
  void wait_until(TimePoint deadline) { life_.wait_until(deadline); }
  [[nodiscard]] bool dialled() const { return security_.dialled(); }
  [[nodiscard]] const SecurityLayer& security() const { return security_; }
  [[nodiscard]] const Endpoint& peer() const { return socket_.peer(); }
  [[nodiscard]] std::optional<Duration> kernel_silence() const { return socket_.kernel_silence(); }
  // Valid once the connection is closed: bytes that were queued and never sent.
  [[nodiscard]] std::uint64_t never_sent() const { return never_sent_; }
  [[nodiscard]] int handle() { return socket_.handle(); }
  // Why the connection is not read.
  enum class Pause : std::uint8_t { kNone, kCap, kUnhandled };
  [[nodiscard]] Pause paused() const { return pause_; }
  void pause(Pause why) { pause_ = why; }

  const ConnectionId name;
  LinkSlot slot;        // used by the engine's Dialler, Greeter and Sessions
  Keepalive keepalive;  // used by its Liveness
  BatchSize batch;      // used by its Striping
  SocketPace pace;      // used by its Pacing

 private:
  Result<std::optional<std::span<std::byte>>> on_segment_begin(const SegmentHeader& header) override;
  Status on_segment_end(const SegmentHeader& header, bool placed) override;
  Status on_frame(FrameType type, std::span<const std::byte> body) override;

  void connected();
  void wait_to_read();
  void wait_to_write();
  void read_ready();
  // The number of bytes read; 0: none are available now.
  std::size_t read_some();
  std::size_t read_clear();
  std::size_t read_tls();
  [[nodiscard]] std::span<std::byte> raw() const;  // where reads go
  Status decode_tls();
  bool settle_first_byte(std::byte first);
  void refuse_in_clear();
  std::size_t receive(std::span<std::byte> first, std::span<std::byte> second);
  void broken(const Status& why);
  void write_clear();
  void write_tls();
  bool transmit_tls();
  void encrypt_queue();
  std::optional<std::size_t> put(std::span<iovec> parts);
  void on_segment_written(Lane lane, std::uint64_t number) { context_.owner.on_segment_written(*this, lane, number); }
  void ended(int error);
  void finish_drain();

  ConnectionContext& context_;
  NonblockingSocket socket_;
  Lifecycle life_;
  SecurityLayer security_;
  FrameDecoder decoder_;
  ReadTurn turn_;
  Pause pause_ = Pause::kNone;
  SendQueue queue_;
  std::uint64_t never_sent_ = 0;
};

}  // namespace collab::tcp
