// Receives and acknowledges the segments of a link's connections, and closes links.
//
// Threads: the IO thread. Ownership: owns the acknowledgement timer. A link owns its queues (link/link_session.h).
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <span>
#include <vector>

#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class Sessions {
 public:
  explicit Sessions(EngineParts& all);

  Result<std::optional<std::span<std::byte>>> on_segment_begin(Connection& from, const SegmentHeader& header);
  Status on_segment_end(Connection& from, const SegmentHeader& header);
  void on_segment_written(Connection& from, Lane lane, std::uint64_t number);
  Status on_ack(TcpLink& link, Connection& from, const Arrivals& arrivals);
  // Called when all available bytes have been read.
  void acknowledge_soon(TcpLink& link);
  // Reports completely sent messages to the handler.
  void deliver(const TcpLink& link, std::vector<std::uint64_t>& tokens);

  void send(TcpLink& link, TransportMessage message, std::uint64_t token);
  void close(TcpLink& link);
  Status on_bye(TcpLink& link, const Bye& bye);
  void go_on_closing(TcpLink& link);
  void check_closing(TcpLink& link, TimePoint now);  // at each tick

 private:
  void begin_closing(TcpLink& link);
  void acknowledge(TcpLink& link);
  void acknowledge_later();

  EngineParts& all_;
  boost::asio::steady_timer ack_timer_;
  bool ack_waiting_ = false;
};

}  // namespace collab::tcp
