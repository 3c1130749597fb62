// One connection below the transport: what it greets with, what it announces and whether it reads are the attack's.
//
// Speaks the frames of tcp_wire.h, in TLS where there is a key. It never blocks: what the socket does not take stays in
// a queue of its own until flush().
// Threads: one caller. Ownership: owns its socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collab/transport.h"
#include "core/base/prng.h"
#include "transport/tcp/tls/tcp_tls.h"
#include "transport/tcp/wire/tcp_wire.h"

namespace collab::hostile {

class RawConnection {
 public:
  // A null key: in the clear; no hello: it never greets. Where nothing listens it is closed from the start.
  RawConnection(const std::string& address, std::shared_ptr<const tcp::TlsContext> key,
                const std::optional<tcp::Hello>& hello);
  // The other end of one that was dialled: look() goes on with the handshake, and what it answers is the attack's.
  RawConnection(int accepted, std::shared_ptr<const tcp::TlsContext> key);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  [[nodiscard]] bool open() const { return socket_ >= 0; }
  [[nodiscard]] const std::string& end() const { return end_; }  // how it was closed, in words
  [[nodiscard]] bool greeted() const { return greeted_; }
  // Segments of messages that have come: the other side answers.
  [[nodiscard]] std::uint64_t segments_came() const { return segments_came_; }
  [[nodiscard]] std::uint64_t pongs_came() const { return pongs_came_; }
  // The hello with which it was dialled, once that has come.
  [[nodiscard]] const std::optional<tcp::Hello>& hello() const { return hello_; }
  [[nodiscard]] int handle() const { return socket_; }

  // Takes what has come and answers pings, so that the link lives.
  void look();
  // Looks at this many bytes at most.
  void look(std::size_t most_bytes);
  // Like `look`, until the listener has said welcome or `limit_ms` is over.
  bool wait_for_welcome(int limit_ms);

  // Part of a message of so many bytes of head; the message is finished when all its parts were sent.
  void queue_part(Lane lane, std::uint64_t message, std::uint32_t head_bytes, std::uint32_t offset,
                  std::span<const std::byte> data);
  // A whole message without payload.
  void queue_message(Lane lane, std::span<const std::byte> head);
  void queue(std::span<const std::byte> bytes);
  // True: all that was queued is with the system.
  bool flush();

 private:
  void secure(std::shared_ptr<const tcp::TlsContext> key);
  void take(std::span<const std::byte> plain);
  void on_frame(const tcp::Prefix& prefix, std::span<const std::byte> body);
  void close(std::string why);

  int socket_ = -1;
  std::string end_;
  bool greeted_ = false;
  std::unique_ptr<tcp::TlsStream> tls_;
  std::vector<std::byte> out_;  // in the clear
  std::size_t sent_ = 0;        // of out_
  std::vector<std::byte> in_;
  std::uint64_t segments_came_ = 0;
  std::uint64_t pongs_came_ = 0;
  std::optional<tcp::Hello> hello_;
  std::uint64_t segments_[2] = {0, 0};  // by lane
  std::uint64_t messages_[2] = {0, 0};
};

// A port of this machine at which no dial is answered, ever: its queue is full.
class Unanswered {
 public:
  Unanswered();
  ~Unanswered();
  Unanswered(const Unanswered&) = delete;
  Unanswered& operator=(const Unanswered&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  std::vector<int> sockets_;
  std::string address_;
};

// A port of this machine's second address, which a coordinator dials as it does not its own host.
class Port {
 public:
  Port();
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }
  // The connection that has dialled, without waiting. Negative: none.
  [[nodiscard]] int take() const;

 private:
  int socket_ = -1;
  std::string address_;
};

// Waits until the socket can be written (or read), or until the limit.
void wait_for(const RawConnection& connection, bool writable, int limit_ms);
void wait_ms(int limit_ms);

}  // namespace collab::hostile
