// Decides when and where connections are dialled: a link's first one, missing ones, and failed ones again.
//
// Threads: the IO thread. Each name is looked up on its own thread, which posts the result. Ownership: owns a random
// number generator and the queue of look-ups. A link owns its redial plans (link/redial.h).
#pragma once

#include <string>

#include "core/base/prng.h"
#include "transport/tcp/link/link.h"
#include "transport/tcp/link/look_ups.h"

namespace collab::tcp {

struct EngineParts;

class Dialler {
 public:
  explicit Dialler(EngineParts& all);

  void begin(LinkId id, const std::string& address, TimePoint deadline);
  void looked_up(LinkId id, Result<Endpoints> endpoints);
  void dial_missing(TcpLink& link);
  // Called at each tick: the first for a link that is not open yet, the second for an open one.
  void check_opening(TcpLink& link, TimePoint now);
  void redial(TcpLink& link, TimePoint now);
  // A connection of the link failed.
  void opening_failed(TcpLink& link, Fault fault, const Status& why);
  void failed(TcpLink& link, std::uint16_t index, Fault fault, const Status& why);

 private:
  void look_up(const TcpLink& link, const HostPort& address);
  void look_up_next();
  void resolved(TcpLink& link, Result<Endpoints> endpoints);
  void dial(TcpLink& link, std::uint16_t index);
  bool dial_or_wait(TcpLink& link, std::uint16_t index, bool room);
  [[nodiscard]] bool plan(TcpLink& link, std::uint16_t index);  // true: it is due at once
  void plan_redial(TcpLink& link, std::uint16_t index, Fault fault, bool was_alone);

  EngineParts& all_;
  Prng prng_;
  LookUps look_ups_;
};

}  // namespace collab::tcp
