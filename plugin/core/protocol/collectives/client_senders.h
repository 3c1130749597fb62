// A rank's waits for a message from any sender.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>

#include "core/protocol/collectives/hub_actions.h"

namespace collab::protocol {

struct HubClientParts;

class ClientSenders {
 public:
  explicit ClientSenders(HubClientParts& all) : all_(all) {}

  [[nodiscard]] TimePoint next_deadline() const;
  void resolve(const ResolveSender& event);
  void resend_state();  // to a hub that leads
  void on_resolved(const wire::SenderResolved& message);
  void on_tick();
  void close(GroupId group, const Status& why);
  void fail(const Status& why);  // ends all waits

 private:
  struct Wait {
    ResolveSender event;
    TimePoint deadline = kNever;
  };
  template <typename Why>
  void fail_if(Why why);  // ends each wait for which why(wait) is not ok

  HubClientParts& all_;
  std::map<std::uint64_t, Wait> waiting_;
};

}  // namespace collab::protocol
