// Commands from other threads for the engine's IO thread.
//
// Threads: any. Ownership: shared. A look-up may keep it alive longer than the engine; it is shut by then.
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
  // The event loop calls `look` when there are commands.
  Mailbox(boost::asio::io_context& io, std::function<void()> look) : io_(io), look_(std::move(look)) {}

  void post(Command command);
  void take(std::vector<Command>& commands);  // replaces the contents with all waiting commands
  void shut();                                // earlier commands are still handled

 private:
  boost::asio::io_context& io_;
  const std::function<void()> look_;
  std::mutex mutex_;
  std::vector<Command> commands_;
  bool posted_ = false;
  bool shut_ = false;
};

}  // namespace collab::tcp
