// One lane of a link of the ucx transport: messages to send, messages that the peer has not taken, and messages that
// have arrived.
//
// Messages are numbered from 0. The peer says how many it has taken; until then they fill the lane's window.
// Threads: the progress thread only. Ownership: holds messages until they are sent, or handed on in order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "collab/transport.h"

namespace collab {

// Limits of a lane's messages that the peer has not taken: their number, and their bytes, which one message may exceed.
inline constexpr std::uint64_t kLaneMessages = 1024;
inline constexpr std::size_t kLaneBytes = kMaxPayloadBytes;

class UcxLane {
 public:
  struct Outgoing {
    TransportMessage message;
    std::uint64_t token = 0;
  };

  // Sending.
  void push(TransportMessage message, std::uint64_t token) { queue_.push_back({std::move(message), token}); }
  [[nodiscard]] bool waits() const { return !queue_.empty(); }
  [[nodiscard]] bool has_room() const { return untaken_.size() < kLaneMessages && untaken_bytes_ < kLaneBytes; }
  // The first waiting message. Its number is the value of sent() before the call.
  Outgoing next() {
    Outgoing outgoing = std::move(queue_.front());
    queue_.pop_front();
    ++sent_;
    untaken_.push_back(outgoing.message.bytes());
    untaken_bytes_ += untaken_.back();
    return outgoing;
  }
  void drop_queue() { queue_.clear(); }
  [[nodiscard]] std::uint64_t sent() const { return sent_; }
  // The peer has taken this many messages in all. False: that is impossible.
  [[nodiscard]] bool peer_has_taken(std::uint64_t number) {
    const std::uint64_t before = sent_ - untaken_.size();
    if (number < before || number > sent_) return false;
    for (std::uint64_t i = before; i < number; ++i) {
      untaken_bytes_ -= untaken_.front();
      untaken_.pop_front();
    }
    return true;
  }

  // Receiving.
  [[nodiscard]] bool expects(std::uint64_t number) const {
    return number >= taken_ && number - taken_ < kLaneMessages && early_.count(number) == 0;
  }
  void arrived(std::uint64_t number, TransportMessage message) { early_.emplace(number, std::move(message)); }
  // The next message in order, if it has arrived.
  std::optional<TransportMessage> take() {
    const auto next = early_.begin();
    if (next == early_.end() || next->first != taken_) return std::nullopt;
    TransportMessage message = std::move(next->second);
    early_.erase(next);
    untold_bytes_ += message.bytes();
    ++taken_;
    return message;
  }
  [[nodiscard]] std::uint64_t taken() const { return taken_; }
  // Acknowledge often enough that the peer's window never fills up because of us.
  [[nodiscard]] bool ack_is_due() const { return taken_ - told_ >= kTellMessages || untold_bytes_ >= kTellBytes; }
  void told() {
    told_ = taken_;
    untold_bytes_ = 0;
  }

 private:
  static constexpr std::uint64_t kTellMessages = 32;
  static constexpr std::size_t kTellBytes = kLaneBytes / 8;

  std::deque<Outgoing> queue_;
  std::uint64_t sent_ = 0;           // messages sent so far
  std::deque<std::size_t> untaken_;  // bytes of each message sent and not taken by the peer
  std::size_t untaken_bytes_ = 0;

  std::uint64_t taken_ = 0;  // messages handed on, in order
  std::uint64_t told_ = 0;   // the value of taken_ that the peer knows
  std::size_t untold_bytes_ = 0;
  std::map<std::uint64_t, TransportMessage> early_;  // arrived out of order, by number
};

}  // namespace collab
