// State shared by all parts of the engine: options, clock, event loop, handler and counters.
//
// Threads: all but `counters` and `in_child` on the IO thread. Ownership: the engine owns it; it borrows the handler.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <memory>

#include "transport/tcp/session/tcp_inbox.h"
#include "transport/tcp/session/tcp_unhandled.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/tcp/wire/tcp_wire.h"

namespace collab::tcp {

inline constexpr Duration kDrainLimit = std::chrono::seconds(2);

[[nodiscard]] Id draw_id();

struct TcpContext {
  explicit TcpContext(TcpOptions given);
  [[nodiscard]] TimePoint now() const { return clock.now(); }
  [[nodiscard]] bool in_child() const;  // true in a forked child: sockets and thread belong to the parent

  // One part increments each counter: Greeter opened and resumed, PendingConnections refused, Striping again and bytes,
  // Sessions twice.
  struct Counters {
    std::atomic<std::uint64_t> opened{0}, refused{0}, again{0}, twice{0}, bytes{0}, resumed{0};
  };

  const TcpOptions options;
  const pid_t pid;
  const Duration soft_limit, hard_limit;  // of silence, on a connection
  const SteadyClock clock;
  const std::shared_ptr<BufferPool> pool;
  const std::shared_ptr<UnfinishedBytes> unfinished = std::make_shared<UnfinishedBytes>();
  const std::shared_ptr<UnhandledBytes> unhandled = std::make_shared<UnhandledBytes>();
  const std::shared_ptr<ControlBytes> control = std::make_shared<ControlBytes>();  // control bytes that wait for peers
  const Id process = draw_id();
  Counters counters;
  boost::asio::io_context io{1};
  TransportHandler* handler = nullptr;  // set once, by start()
  bool stopped = false;                 // set once, by the engine's stop()
};

}  // namespace collab::tcp
