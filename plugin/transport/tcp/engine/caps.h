// What the user's caps leave to each link (COLLAB_MAX_MBIT_UP, COLLAB_MAX_MBIT_DOWN). Also which links are not read
// because too many of their bytes wait to be handled.
//
// What is sent is counted before it goes. What comes is held back by its senders: each peer is told its part of the
// cap, by how many send at the moment. Not to read is the last resort: what a sender gave to its system then stands
// there, looks lost to it, and is sent again.
// Threads: the IO thread. Ownership: the buckets of the whole transport. A link owns its buckets (link/link_caps.h).
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
  void resume_unhandled(TcpLink& link);                  // it has room for them again

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
