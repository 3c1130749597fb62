#include "transport/tcp/pace/queue_delay.h"

namespace collab::tcp {
namespace {

constexpr Duration kShortestHolds = std::chrono::seconds(10);

}  // namespace

void Shortest::note(TimePoint now, Duration time) {
  if (now - since_ > kShortestHolds) {
    before_ = now_;
    now_ = time;
    since_ = now;
  }
  now_ = std::min(now_, time);
}

void QueueDelay::note(TimePoint now, Duration round_trip, std::optional<Duration> one_way_delay) {
  if (round_trip != Duration(0)) {
    round_trip_ = round_trip;
    shortest_round_trip_.note(now, round_trip);
  }
  if (one_way_delay) {
    shortest_one_way_delay_.note(now, *one_way_delay);
    one_way_delay_ = std::min(one_way_delay_.value_or(*one_way_delay), *one_way_delay);
  }
}

// The smaller of two estimates: a lost ping looks like a long one-way delay, and data on the way back like a long round
// trip.
double QueueDelay::seconds() const {
  const Duration both_ways = round_trip_ - shortest_round_trip_.value();
  const std::optional<Duration> way = one_way_delay_ ? one_way_delay_ : one_way_delay_before_;
  return seconds_of(way ? std::min(both_ways, *way - shortest_one_way_delay_.value()) : both_ways);
}

}  // namespace collab::tcp
