// The traffic of rounds on this site's line, and the rates at which the line carried it.
//
// Threads: one caller at a time. Ownership: its own numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "collab/clock.h"
#include "core/protocol/site/rate_meter.h"

namespace collab {

// Traffic of the current round's exchange, without anchors sent to joiners meanwhile.
struct RoundTraffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  TimePoint first_payload = kNever;
  TimePoint last_payload{};

  void passed(TimePoint now) {
    first_payload = std::min(first_payload, now);
    last_payload = now;
  }
};

class LineTraffic {
 public:
  void begin_round() {
    round_ = {};
    in_flight_.clear();  // some were lost with their links
    up_.begin_round();
    down_.begin_round();
  }
  void came(TimePoint now, std::uint64_t payload) {
    round_.bytes_received += payload;
    round_.passed(now);
    down_.add(now, payload);
  }
  void leaves(TimePoint now, std::uint64_t token, std::uint64_t payload) {
    in_flight_[token] = payload;
    up_.set_busy(now, true);
    round_.passed(now);
  }
  void sending(std::uint64_t bytes) { round_.bytes_sent += bytes; }  // head and payload
  // A payload has left. Returns its bytes; 0 if it is not this round's.
  std::uint64_t left(TimePoint now, std::uint64_t token) {
    const auto sent = in_flight_.extract(token);
    if (!sent) return 0;
    up_.add(now, sent.mapped());
    if (in_flight_.empty()) up_.set_busy(now, false);
    return sent.mapped();
  }

  [[nodiscard]] const RoundTraffic& round() const { return round_; }
  // Per second; 0: not known.
  [[nodiscard]] std::uint32_t up_kbit() const { return up_.kbit_per_second(); }
  [[nodiscard]] std::uint32_t down_kbit() const { return down_.kbit_per_second(); }

 private:
  RoundTraffic round_;
  protocol::RateMeter up_;
  protocol::RateMeter down_;
  std::map<std::uint64_t, std::uint64_t> in_flight_;  // payloads of the round, by token
};

}  // namespace collab
