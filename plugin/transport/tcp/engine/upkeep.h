// What is done now and then: the ticker, which runs while there is a link or a connection or memory to give back, and
// the memory that a burst has left.
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
  // First at each tick: whether this thread was held up since the last.
  [[nodiscard]] bool begin_tick(TimePoint now);
  void ease(TimePoint now);

 private:
  EngineParts& all_;
  const std::function<void()> tick_;
  boost::asio::steady_timer ticker_;
  bool ticking_ = false;
  TimePoint last_tick_{}, ease_at_{};
  TrimPolicy trims_;
};

}  // namespace collab::tcp
