// The pending calls of the handler, in order. They are made after UCX has returned, never from its callbacks.
//
// Threads: started() from any thread after start(); all else on the progress thread. Ownership: borrows the handler;
// holds messages until the handler gets them.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "collab/transport.h"

namespace collab {

class UcxCalls {
 public:
  void start(TransportHandler* handler) { handler_ = handler; }
  [[nodiscard]] bool started() const { return handler_ != nullptr; }

  void accepted(LinkId link, const std::string& peer) { add(Kind::kAccepted, link).peer = peer; }
  void connected(LinkId link) { add(Kind::kConnected, link); }
  void message(LinkId link, TransportMessage message) { add(Kind::kMessage, link).message = std::move(message); }
  void sent(LinkId link, std::uint64_t token) { add(Kind::kSent, link).token = token; }
  void closed(LinkId link, Status why) { add(Kind::kClosed, link).why = std::move(why); }

  // Makes the next call. False: none is pending.
  bool deliver() {
    if (calls_.empty()) return false;
    Call call = std::move(calls_.front());
    calls_.pop_front();
    switch (call.kind) {
      case Kind::kAccepted: handler_->on_accepted(call.link, call.peer); break;
      case Kind::kConnected: handler_->on_connected(call.link); break;
      case Kind::kMessage: handler_->on_message(call.link, std::move(call.message)); break;
      case Kind::kSent: handler_->on_sent(call.link, call.token); break;
      case Kind::kClosed: handler_->on_closed(call.link, std::move(call.why)); break;
    }
    return true;
  }
  void drop() { calls_.clear(); }

 private:
  enum class Kind : std::uint8_t { kAccepted, kConnected, kMessage, kSent, kClosed };
  struct Call {
    Kind kind;
    LinkId link;
    TransportMessage message{};
    std::uint64_t token = 0;
    Status why{};
    std::string peer{};
  };
  Call& add(Kind kind, LinkId link) { return calls_.emplace_back(Call{kind, link}); }

  TransportHandler* handler_ = nullptr;
  std::deque<Call> calls_;
};

}  // namespace collab
