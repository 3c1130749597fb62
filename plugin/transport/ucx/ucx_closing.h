// How far a link of the ucx transport is in closing.
//
//   begun ──queues are empty──▶ bye sent ──the peer has all──▶ ┐
//     └──bye came, and all it announces──▶ the peer was told ──┴──▶ over
//
// Threads: the progress thread only. Ownership: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace collab {

class UcxClosing {
 public:
  using Counts = std::array<std::uint64_t, 2>;  // of messages, by lane

  void begin() { begun_ = true; }
  [[nodiscard]] bool begun() const { return begun_; }  // nothing new is queued

  [[nodiscard]] bool may_say_bye() const { return begun_ && !bye_sent_; }
  void mark_bye_sent() { bye_sent_ = true; }
  [[nodiscard]] bool bye_sent() const { return bye_sent_; }
  void peer_has_all() { peer_has_all_ = true; }

  void receive_bye(const Counts& sent) { peer_sent_ = sent; }
  [[nodiscard]] bool peer_said_bye() const { return peer_sent_.has_value(); }
  // We have taken all that the other side sent, and have not told it yet.
  [[nodiscard]] bool may_send_final_ack(const Counts& taken) const { return !final_ack_sent_ && peer_sent_ == taken; }
  void mark_final_ack_sent() { final_ack_sent_ = true; }
  [[nodiscard]] bool final_ack_sent() const { return final_ack_sent_; }

  [[nodiscard]] bool over() const { return final_ack_sent_ && peer_has_all_; }

 private:
  bool begun_ = false;
  bool bye_sent_ = false;
  bool peer_has_all_ = false;
  std::optional<Counts> peer_sent_;  // in all, from its bye
  bool final_ack_sent_ = false;
};

}  // namespace collab
