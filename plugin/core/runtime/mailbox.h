// What reaches a loop thread: everything a transport reports, and calls from other threads; in order for each link, and
// the links take turns.
//
// Threads: post() and close() from any thread, take() from the loop's. Ownership: queued events.
#pragma once

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

struct LinkProved {
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
// A call from another thread, run on the loop's. Like std::function, for callables that cannot be copied.
class LoopCall {
 public:
  template <typename F>
  explicit LoopCall(F call) : body_(std::make_unique<Body<F>>(std::move(call))) {}
  void operator()() { body_->run(); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual void run() = 0;
  };
  template <typename F>
  struct Body final : Base {
    explicit Body(F f) : call(std::move(f)) {}
    void run() override { call(); }
    F call;
  };
  std::unique_ptr<Base> body_;
};
using LoopEvent =
    std::variant<LinkProved, LinkAccepted, LinkConnected, MessageArrived, MessageSent, LinkClosed, LoopCall>;

class Mailbox final : public TransportHandler {
 public:
  void post(LoopCall call) { queue_.push(0, std::move(call)); }
  std::optional<LoopEvent> take(TimePoint deadline) { return queue_.pop_until(deadline); }
  void close() { queue_.close(); }
  [[nodiscard]] bool closed() const { return queue_.closed(); }

  void on_proved(LinkId link, const std::vector<std::string>& names) override { put(link, LinkProved{link, names}); }
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
