// Events for a loop thread: all that a transport reports, and calls from other threads. Each link's events stay in
// order, and the links take turns.
//
// Threads: post() and close() from any thread, take() from the loop's. Ownership: queued events.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collab/clock.h"
#include "collab/transport.h"
#include "core/base/fair_queue.h"

namespace collab {

struct LinkAuthenticated {
  LinkId link;
  std::vector<std::string> names;
};
struct LinkAccepted {
  LinkId link;
  std::string peer;
};
struct LinkConnected {
  LinkId link;
};
struct MessageArrived {
  LinkId link;
  TransportMessage message;
};
struct MessageSent {
  LinkId link;
  std::uint64_t token = 0;
};
struct LinkClosed {
  LinkId link;
  Status why;
};
using LoopCall = std::function<void()>;  // from another thread, run on the loop's
using LoopEvent =
    std::variant<LinkAuthenticated, LinkAccepted, LinkConnected, MessageArrived, MessageSent, LinkClosed, LoopCall>;

class Mailbox final : public TransportHandler {
 public:
  // Posts a call, which need not be copyable.
  template <typename F>
  void post(F call) {
    queue_.push(0, LoopCall([call = std::make_shared<F>(std::move(call))] { (*call)(); }));
  }
  std::optional<LoopEvent> take(TimePoint deadline) { return queue_.pop_until(deadline); }
  void close() { queue_.close(); }
  [[nodiscard]] bool closed() const { return queue_.closed(); }

  void on_authenticated(LinkId link, const std::vector<std::string>& names) override {
    put(link, LinkAuthenticated{link, names});
  }
  void on_accepted(LinkId link, const std::string& peer) override { put(link, LinkAccepted{link, peer}); }
  void on_connected(LinkId link) override { put(link, LinkConnected{link}); }
  void on_message(LinkId link, TransportMessage message) override {
    const std::size_t size = message.bytes();
    queue_.push(link.value, MessageArrived{link, std::move(message)}, size);
  }
  void on_sent(LinkId link, std::uint64_t token) override { put(link, MessageSent{link, token}); }
  void on_closed(LinkId link, Status why) override { put(link, LinkClosed{link, std::move(why)}); }

 private:
  void put(LinkId link, LoopEvent event) { queue_.push(link.value, std::move(event)); }

  FairQueue<LoopEvent> queue_;
};

}  // namespace collab
