// Writes a site's record, and holds back messages that may be sent only once it is durable.
//
//   said --asked to be durable--> held back --durable--> sent
//                                     +--not written, or not within the grace: the coordinator is left
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "core/protocol/actions.h"

namespace collab::protocol {

struct SiteParts;

class RecordWrites {
 public:
  [[nodiscard]] TimePoint next_deadline() const;

  void keep();                                    // writes the record; no message waits for it
  void send_when_durable(wire::Message message);  // to the leader
  void take_back_done();                          // drops a held Done: its attempt is given up
  void on_persisted(const Persisted& event);
  void on_tick();

 private:
  friend struct SiteParts;
  friend struct Inside;
  struct Held {
    std::uint64_t number = 0;
    LinkId link;
    wire::Message message;
  };

  SiteParts* all_ = nullptr;
  std::uint64_t asked_ = 0;
  std::uint64_t written_ = 0;
  TimePoint since_ = kNever;  // the oldest write that is under way
  std::vector<Held> held_;
};

}  // namespace collab::protocol
