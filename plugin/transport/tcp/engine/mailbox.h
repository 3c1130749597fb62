// What other threads ask of the engine, until its IO thread looks at it.
//
// Threads: any. Ownership: shared. Outlives the engine if a look-up does, and is shut by then.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "collab/transport.h"
#include "transport/tcp/connection/tcp_socket.h"

namespace collab::tcp {

struct Command {
  enum class Kind : std::uint8_t { kConnect, kSend, kClose, kResolved, kRoom, kStop };
  Kind kind = Kind::kSend;
  LinkId link{};
  TransportMessage message{};
  std::uint64_t token = 0;
  std::string address{};
  TimePoint deadline = kNever;
  Result<Endpoints> endpoints = Endpoints();
};

class Mailbox {
 public:
  // `look` is called from the event loop when there are commands.
  Mailbox(boost::asio::io_context& io, std::function<void()> look) : io_(io), look_(std::move(look)) {}

  void post(Command command);
  void take(std::vector<Command>& commands);  // all that wait; they replace what it held
  void shut();                                // what was posted before is still handled

 private:
  boost::asio::io_context& io_;
  const std::function<void()> look_;
  std::mutex mutex_;
  std::vector<Command> commands_;
  bool posted_ = false;
  bool shut_ = false;
};

}  // namespace collab::tcp
