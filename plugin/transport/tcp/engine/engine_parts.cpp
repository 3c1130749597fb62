#include "transport/tcp/engine/engine_parts.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "core/base/memory_limit.h"

namespace collab::tcp {

Id draw_id() {
  std::random_device device;
  Id id;
  for (std::uint8_t& byte : id) byte = static_cast<std::uint8_t>(device());
  return id;
}

TcpContext::TcpContext(TcpOptions given)
    : options(std::move(given)),
      pid(::getpid()),
      soft_limit(5 * options.heartbeat),
      hard_limit(20 * options.heartbeat),
      pool(options.pool != nullptr ? options.pool : make_buffer_pool()) {
  const std::uint64_t memory = options.memory != 0 ? options.memory : memory_limit();
  unfinished->most = share_of_memory(memory, 2 * kMaxUnfinishedBytes, kMaxUnfinishedInAll);
  unhandled->in_all = share_of_memory(memory, kMaxControlBytes, kMaxUnhandledInAll);
  control->in_all = share_of_memory(memory, kMaxControlBytes, kMaxControlInAll);
}

bool TcpContext::in_child() const { return ::getpid() != pid; }

EngineParts::EngineParts(TcpOptions options, std::shared_ptr<TlsKeys> keys, ConnectionOwner& owner,
                         std::function<void()> look, std::function<void()> tick)
    : context(std::move(options)),
      mailbox(std::make_shared<Mailbox>(context.io, std::move(look))),
      connection_context{context.io,
                         owner,
                         std::move(keys),
                         {context.options.congestion, std::max<Duration>(context.hard_limit, std::chrono::seconds(1))},
                         std::vector<std::byte>(std::size_t{256} << 10),
                         std::vector<std::byte>(std::size_t{16} << 10)},
      links(*this),
      pending(*this),
      dialler(*this),
      greeter(*this),
      sessions(*this),
      striping(*this),
      pacing(*this),
      balance(*this),
      number(*this),
      caps(*this),
      liveness(*this),
      tokens(*this),
      upkeep(*this, std::move(tick)) {}

}  // namespace collab::tcp
