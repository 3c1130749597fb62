#include "transport/tcp/link/link_pacing.h"

#include <bit>
#include <utility>

#include "transport/tcp/pace/mechanisms.h"

namespace collab::tcp {
namespace {

constexpr double kUnsentSeconds = 0.008;  // a socket holds as much as it sends in this time
constexpr Duration kArrives = std::chrono::milliseconds(500);
constexpr std::size_t kMuchUnsent = std::size_t{16} << 20;

// How many unsent bytes each connection's socket may hold, beyond those in flight.
std::size_t unsent_of(std::size_t carriers, double share) {
  if (off(Mechanism::kLittleUnsent)) return kMuchUnsent;
  if (share > 0) {
    return std::clamp(std::bit_ceil(static_cast<std::size_t>(share * kUnsentSeconds)), kSmallSegmentBytes,
                      kUnsentBytes);
  }
  return carriers > kFewCarriers ? kSmallSegmentBytes : kUnsentBytes;
}

}  // namespace

bool LinkPacing::begin_tick(TimePoint now, bool waiting, bool alone) {
  const bool backlogged = std::exchange(was_backlogged_, waiting) && waiting;
  backlog_.note(now, waiting && !alone);
  return backlogged;
}

bool LinkPacing::arrives(TimePoint now, Duration round_trip) const {
  return now - data_arrived_ < kArrives + 4 * round_trip;
}

bool LinkPacing::keep(TimePoint now, const LinkConnections& connections, const std::vector<Connection*>& carriers,
                      bool backlogged) {
  LinkPace::PathSample path_sample;
  if (backlogged) {
    const std::optional<LinkPace::PathSample> seen = look(connections, carriers);
    if (!seen) return false;
    path_sample = *seen;
  } else {
    one_way_delay_.reset();  // clocks drift, so old values are wrong
  }
  const double rate = off(Mechanism::kPace) ? 0 : pace_.observe(now, path_sample);
  const double share = rate / static_cast<double>(carriers.size());
  const std::size_t unsent = unsent_of(carriers.size(), share);
  for (Connection* const carrier : carriers) carrier->pace.keep(carrier->handle(), share, unsent);
  return true;
}

std::optional<LinkPace::PathSample> LinkPacing::look(const LinkConnections& connections,
                                                     const std::vector<Connection*>& carriers) {
  for (std::size_t i = 1; i < connections.size(); ++i) {
    if (!connections.attached(i)) continue;
    Connection& carrier = *connections.at(i);
    const std::optional<SocketPace::Progress> progress = carrier.pace.look(carrier.handle());
    if (!progress) return std::nullopt;
    delivered_ += progress->delivered;
    resent_ += progress->resent;
  }
  LinkPace::PathSample path_sample;
  path_sample.backlogged = true;
  path_sample.delivered = delivered_;
  path_sample.resent = resent_;
  path_sample.behind = behind_;
  path_sample.one_way_delay = std::exchange(one_way_delay_, std::nullopt);
  for (const Connection* const carrier : carriers) {
    const Duration took = carrier->pace.round_trip();
    if (took == Duration(0)) continue;
    if (path_sample.round_trip == Duration(0) || took < path_sample.round_trip) path_sample.round_trip = took;
  }
  return path_sample;
}

}  // namespace collab::tcp
