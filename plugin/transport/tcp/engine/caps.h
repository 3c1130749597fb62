// Enforces the user's caps on the links (COLLAB_MAX_MBIT_UP, COLLAB_MAX_MBIT_DOWN). Also stops reading links if too
// many of their bytes wait to be handled.
//
// Outgoing bytes are counted before they are sent. Senders hold back incoming data: each peer is told its part of the
// cap, which depends on how many peers send at the moment. To stop reading is the last resort: data then waits in the
// sender's system, looks lost to the sender, and is sent again.
// Threads: the IO thread. Ownership: owns the buckets of the whole transport. A link owns its bucket
// (link/link_caps.h).
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>

#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class Caps {
 public:
  explicit Caps(EngineParts& all);

  [[nodiscard]] bool capped(const TcpLink& link) const { return up_.capped() || link.caps.capped(); }
  [[nodiscard]] double rate_up() const { return up_.rate(); }
  [[nodiscard]] bool admit_send(TcpLink& link);  // data
  void sent(TcpLink& link, std::size_t bytes);

  bool admit_read(Connection& from, std::size_t bytes);  // counts the bytes
  void resume_unhandled(TcpLink& link);                  // the link has room again

  void control_attached(TcpLink& link, TimePoint now);
  void tick(TimePoint now);

 private:
  void wait_for_bucket(TimePoint until);
  void go_on_reading();
  void read_on(Connection& connection);

  EngineParts& all_;
  TokenBucket up_, down_;
  boost::asio::steady_timer timer_;
  TimePoint due_ = kNever;
  std::deque<std::weak_ptr<Connection>> paused_;
};

}  // namespace collab::tcp
