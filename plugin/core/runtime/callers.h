// Calls of the script's thread that wait for the loop. Each is answered once, with a result or the reason why there is
// none. Once the loop can serve no more calls, later ones are answered with the reason.
//
// Threads: the loop's; the other end of each promise is the caller's. Ownership: plain values.
#pragma once

#include <future>
#include <optional>
#include <type_traits>
#include <utility>

#include "collab/clock.h"
#include "collab/session.h"
#include "core/protocol/formatting.h"
#include "core/runtime/round_in_progress.h"

namespace collab {

template <typename T>
class Answer {
 public:
  void wait(std::promise<T> promise) { promise_ = std::move(promise); }
  [[nodiscard]] bool awaited() const { return promise_.has_value(); }
  // False: no caller waits.
  template <typename... Value>
  bool give(Value&&... value) {
    if (!promise_) return false;
    std::exchange(promise_, std::nullopt)->set_value(std::forward<Value>(value)...);
    return true;
  }

 private:
  std::optional<std::promise<T>> promise_;
};

class Callers {
 public:
  Answer<Result<SealedAnchor>> join;
  Answer<Result<RoundReport>> round;
  Answer<Result<OptimizerOffer>> offer;  // of an optimizer state
  Answer<Result<BufferPtr>> optimizer;   // the bytes of that state
  Answer<void> departure;

  // No call is served any more: later callers get `why`.
  void refuse(Status why) { refused_ = std::move(why); }
  [[nodiscard]] bool refused() const { return refused_.has_value(); }
  // The caller waits from here on; false: it is refused.
  template <typename T>
  [[nodiscard]] bool wait(Answer<T>& answer, std::promise<T> promise) {
    if (!refused_) {
      answer.wait(std::move(promise));
      return true;
    }
    if constexpr (std::is_void_v<T>) {
      promise.set_value();
    } else {
      promise.set_value(*refused_);
    }
    return false;
  }

  // A caller has begun to wait, and the training stands still.
  void stand_still(TimePoint now) { standing_still_.start(now); }
  [[nodiscard]] TimePoint next_deadline() const { return standing_still_.next(); }
  // How long the training has stood still, if a log line about that is due.
  [[nodiscard]] std::optional<Duration> stood_still(TimePoint now) {
    if (join.awaited() || round.awaited() || offer.awaited() || optimizer.awaited()) return standing_still_.due(now);
    standing_still_.stop();
    return std::nullopt;
  }
  void fail(const Status& why) {
    join.give(why);
    round.give(why);
    offer.give(why);
    optimizer.give(why);
    departure.give();
  }

 private:
  std::optional<Status> refused_;
  protocol::WaitProgress standing_still_;
};

}  // namespace collab
