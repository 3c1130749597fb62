// One TCP connection, in TLS or in the clear, that carries frames.
//
//   connecting ──▶ securing ──▶ greeting ──▶ attached ──▶ draining ──▶ closed
//      (dialled)    (with TLS)    hello, welcome   frames     we said all; waits for the other side's end
//   accepted connections begin in securing: their first byte tells whether it is TLS. Any state may fail to closed.
//
// Threads: the transport's IO thread only. Ownership: shared by the engine and by the operations under way; owns its
// socket. It tells its owner of everything; of a failure later, from the event loop, never from inside a call.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collab/clock.h"
#include "transport/tcp/connection/batch_size.h"
#include "transport/tcp/connection/signs_of_life.h"
#include "transport/tcp/connection/socket_pace.h"
#include "transport/tcp/connection/tcp_socket.h"
#include "transport/tcp/session/tcp_outbox.h"
#include "transport/tcp/tls/tcp_keys.h"
#include "transport/tcp/tls/tcp_tls.h"
#include "transport/tcp/wire/tcp_decoder.h"

namespace collab::tcp {

class Connection;
using ConnectionPtr = std::shared_ptr<Connection>;

enum class Fault : std::uint8_t {
  kNoAnswer,     // could not be reached, or went silent
  kRefusedPort,  // nobody listens there
  kEndedByPeer,  // closed or reset by the other side
  kNotAllowed,   // wrong key, or a refusal in words
  kBroken,       // bytes that are not ours
};

class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  virtual Result<std::optional<std::span<std::byte>>> segment_begins(Connection& from, const SegmentHeader& header) = 0;
  virtual Status segment_ended(Connection& from, const SegmentHeader& header, bool placed) = 0;
  virtual Status frame_came(Connection& from, FrameType type, std::span<const std::byte> body) = 0;
  // All bytes that were there have been taken in.
  virtual void reading_paused(Connection& from) = 0;
  virtual bool may_read(Connection& from, std::size_t bytes) = 0;  // counts them; false: not before resume_reading()
  virtual void ran_dry(Connection& from) = 0;                      // more can be sent at once
  virtual void segment_written(Connection& from, Lane lane, std::uint64_t number) = 0;
  virtual void failed(const ConnectionPtr& from, Fault fault, const Status& why) = 0;
};

// What every connection of a transport needs.
struct ConnectionContext {
  boost::asio::io_context& io;
  ConnectionOwner& owner;
  std::shared_ptr<TlsKeys> keys;  // null: in the clear
  std::string congestion;
  Duration give_up;              // TCP_USER_TIMEOUT
  std::vector<std::byte> raw;    // scratch: what a socket gave
  std::vector<std::byte> clear;  // scratch: the same without TLS
};

class Connection final : public std::enable_shared_from_this<Connection>, private FrameSink {
 public:
  enum class State : std::uint8_t { kConnecting, kSecuring, kGreeting, kAttached, kDraining, kClosed };

  Connection(ConnectionContext& context, Carrier name);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  void dial(const Endpoint& to);
  void accept(boost::asio::ip::tcp::socket socket, const Endpoint& from);

  // Queued in order; flush() hands them to the system as far as it takes them.
  void send(Bytes frame);
  void send(Outbox::Piece piece);
  void flush();
  [[nodiscard]] bool idle() const { return items_.empty() && !waits_to_write_ && (!tls_ || tls_->outgoing().empty()); }
  [[nodiscard]] bool overfull() const { return items_.size() > kMaxItems; }
  // What is queued is still sent, then nothing; what comes is passed over until the other side ends as well.
  void drain();
  void close();
  void fail(Fault fault, Status why);
  void resume_reading();
  void forget_place() { decoder_.forget_place(); }

  [[nodiscard]] State state() const { return state_; }
  void attached(TimePoint now) {
    state_ = State::kAttached;
    attached_at_ = now;
  }
  [[nodiscard]] std::optional<TimePoint> attached_at() const { return attached_at_; }
  [[nodiscard]] bool dialled() const { return dialled_; }
  // It is more than open: a ClientHello came, and fits (with a token: was made with it); in the clear, the first byte.
  [[nodiscard]] bool hello_came() const { return hello_came_; }
  [[nodiscard]] std::vector<std::string> proved_names() const {
    return tls_ != nullptr && tls_->open() ? tls_->names() : std::vector<std::string>();
  }
  [[nodiscard]] bool fits(const TlsContext& keys) const { return tls_ == nullptr || keys.accepts(tls_->key()); }
  // It answers in the clear where all is encrypted: what it says may be anybody's word.
  [[nodiscard]] bool unproven() const { return refusal_only_; }
  [[nodiscard]] const Endpoint& peer() const { return peer_; }
  [[nodiscard]] std::optional<Duration> kernel_silence() const;
  // Once it is closed: bytes it was given and never sent.
  [[nodiscard]] std::uint64_t never_sent() const { return never_sent_; }
  [[nodiscard]] int handle() { return socket_.native_handle(); }

  // Where it belongs. Link 0: not known yet.
  [[nodiscard]] LinkId link() const { return link_; }
  [[nodiscard]] std::uint16_t index() const { return index_; }
  void belong_to(LinkId link, std::uint16_t index) {
    link_ = link;
    index_ = index;
  }
  void leave_link() { link_ = LinkId(); }
  // Held: nothing of a lane before the peer has said what arrived.
  [[nodiscard]] bool held() const { return held_; }
  void hold() { held_ = true; }
  void release() { held_ = false; }
  // By when it is to have greeted, or ended.
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  void wait_until(TimePoint deadline) { deadline_ = deadline; }
  // Why it is not read.
  enum class Pause : std::uint8_t { kNone, kCap, kUnhandled };
  [[nodiscard]] Pause paused() const { return pause_; }
  void pause(Pause why) { pause_ = why; }

  const Carrier name;
  SignsOfLife signs;  // the engine's Liveness
  BatchSize batch;    // its Striping
  SocketPace pace;    // its Pacing

 private:
  static constexpr std::size_t kMaxItems = 2048;
  struct Item {
    Bytes frame;  // or the header of a segment
    std::span<const std::byte> data;
    std::shared_ptr<const TransportMessage> owner;
    bool segment = false;
    Lane lane = Lane::kControl;
    std::uint64_t number = 0;
    [[nodiscard]] std::size_t size() const { return frame.size() + data.size(); }
  };

  Result<std::optional<std::span<std::byte>>> segment_begins(const SegmentHeader& header) override;
  Status segment_ended(const SegmentHeader& header, bool placed) override;
  Status frame_came(FrameType type, std::span<const std::byte> body) override;

  void connected();
  void wait_to_read();
  void wait_to_write();
  void read_ready();
  // The bytes taken in, or 0 when there is nothing more now.
  std::size_t read_some();
  std::size_t read_clear();
  std::size_t read_tls();
  [[nodiscard]] std::span<std::byte> raw() const;  // what is read goes there
  Status decode_tls();
  bool settle_first_byte(std::byte first);
  std::optional<std::size_t> receive(std::span<std::byte> first, std::span<std::byte> second);
  void broken(const Status& why);
  void write_clear();
  void write_tls();
  bool transmit_tls();
  void encrypt_items();
  void item_done();
  void read_error(int error);
  void finish_drain();

  ConnectionContext& context_;
  boost::asio::ip::tcp::socket socket_;
  Endpoint peer_;
  LinkId link_;
  std::uint16_t index_ = 0;
  bool held_ = false;
  TimePoint deadline_ = kNever;
  std::optional<TimePoint> attached_at_;
  Pause pause_ = Pause::kNone;
  std::unique_ptr<TlsStream> tls_;
  FrameDecoder decoder_;
  State state_ = State::kConnecting;
  bool dialled_ = false;
  bool first_byte_seen_ = false;
  bool hello_came_ = false;
  bool refusal_only_ = false;  // the other side answers in the clear: it may only refuse
  bool waits_to_read_ = false;
  bool waits_to_write_ = false;
  bool shut_ = false;
  bool many_frames_ = false;  // a turn ended by their number, and none since was of few
  std::deque<Item> items_;
  std::size_t item_sent_ = 0;  // bytes of the first item
  std::uint64_t never_sent_ = 0;
};

}  // namespace collab::tcp
