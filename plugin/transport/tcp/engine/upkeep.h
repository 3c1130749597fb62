// Periodic work: the ticker, and giving back the memory of a burst. The ticker runs while there is a link, a connection
// or memory to give back.
//
// Threads: the IO thread. Ownership: its timer.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>

#include "collab/clock.h"
#include "transport/tcp/engine/trim_policy.h"

namespace collab::tcp {

struct EngineParts;

class Upkeep {
 public:
  Upkeep(EngineParts& all, std::function<void()> tick);

  void keep_ticking();
  // Call first at each tick. Returns whether this thread was held up since the last tick.
  [[nodiscard]] bool begin_tick(TimePoint now);
  void trim_idle(TimePoint now);

 private:
  EngineParts& all_;
  const std::function<void()> tick_;
  boost::asio::steady_timer ticker_;
  bool ticking_ = false;
  TimePoint last_tick_{}, trim_at_{};
  TrimPolicy trims_;
};

}  // namespace collab::tcp
