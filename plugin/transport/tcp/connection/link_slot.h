// The link that a connection belongs to, and its index among the link's connections.
//
// Threads: one at a time. Ownership: plain values, a connection's own; the engine's Dialler and Greeter fill it, its
// Sessions release it.
#pragma once

#include <cstdint>

#include "collab/types.h"

namespace collab::tcp {

class LinkSlot {
 public:
  [[nodiscard]] LinkId link() const { return link_; }  // 0: not known yet
  [[nodiscard]] std::uint16_t index() const { return index_; }
  void belong_to(LinkId link, std::uint16_t index) {
    link_ = link;
    index_ = index;
  }
  void leave_link() { link_ = LinkId(); }
  // Held: no segment goes over the connection until the peer has said which ones arrived.
  [[nodiscard]] bool held() const { return held_; }
  void hold() { held_ = true; }
  void release() { held_ = false; }

 private:
  LinkId link_;
  std::uint16_t index_ = 0;
  bool held_ = false;
};

}  // namespace collab::tcp
