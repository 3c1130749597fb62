#include "transport/tcp/engine/striping.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <optional>
#include <utility>

#include "transport/tcp/engine/engine_parts.h"
#include "transport/tcp/pace/mechanisms.h"

namespace collab::tcp {
namespace {

constexpr std::size_t kFillSegments = 64;
constexpr int kFillsInTurn = 64;  // then other links have their turn
constexpr double kSlow = 2e6;     // bytes a second: below this, a large segment takes long

// After this time a segment hangs: its connection has lost packets, or is slower than the others. A queue or a thin
// line delays all connections, so no segment hangs because of it. With many connections, as when losses slow each of
// them down, some segments always hang, and the usual time is no measure.
Duration hang_time(TcpLink& link, std::size_t carriers) {
  const Duration usual = carriers > kFewCarriers ? Duration(0) : link.session.outbox(Lane::kData).usual();
  return 2 * std::max(link.round_trip.value(), usual) + std::chrono::milliseconds(50);
}

}  // namespace

std::vector<Connection*> Striping::carriers(const TcpLink& link) {
  return link.rotation.at_work(link.connections, NumberSearch::in_use(link));
}

// True if segments take long over each of so many carriers, so that small ones are better.
bool Striping::slow(const TcpLink& link, std::size_t carriers) const {
  if (off(Mechanism::kSmallSegments)) return false;
  if (carriers > kFewCarriers) return true;
  const auto is_slow = [&](double rate) { return rate > 0 && rate < kSlow * static_cast<double>(carriers); };
  return is_slow(link.pacing.pace().rate()) || is_slow(all_.caps.rate_up()) || is_slow(link.caps.rate());
}

// Hands a batch to one connection. False if the connection takes no more or the lane has no more. Data that has hung
// for longer than `hang` goes over this connection as well.
bool Striping::fill(TcpLink& link, Connection& connection, Lane lane, Duration hang) {
  if (!connection.idle() || connection.state() != Connection::State::kAttached) return false;
  Outbox& out = link.session.outbox(lane);
  const bool data = lane == Lane::kData;
  if (data && !all_.caps.admit_send(link)) return false;
  const TimePoint now = all_.now();
  const std::size_t batch = off(Mechanism::kBatches) ? kMostFilled : connection.batch.next(now);
  const std::size_t most = data && all_.caps.capped(link) ? std::min(kMaxSegmentBytes, batch) : batch;
  std::size_t bytes = 0;
  std::size_t segments = 0;
  const std::uint64_t again = out.sent_again();
  while (bytes < most && segments < kFillSegments) {
    std::optional<Outbox::Piece> piece = out.next(connection.name, now);
    if (!piece && data && !off(Mechanism::kSecondCopies)) piece = out.second_copy(connection.name, now - hang);
    if (!piece) break;
    bytes += piece->data.size() + kSegmentHeaderBytes;
    ++segments;
    connection.send(std::move(*piece));
  }
  if (segments == 0) return false;
  connection.batch.sent(now);
  all_.context.counters.bytes += bytes;
  all_.context.counters.again += out.sent_again() - again;
  if (data) all_.caps.sent(link, bytes);
  connection.flush();
  return connection.idle();
}

void Striping::pump(TcpLink& link) {
  if (link.ended() || !link.open()) return;
  Connection* const control = link.connections.control();
  if (control == nullptr) return;
  int fills = 0;  // fills after which there may be more to send
  const auto fill_on = [&](Connection& connection, Lane lane, Duration hang) {
    while (fills < kFillsInTurn && fill(link, connection, lane, hang)) ++fills;
  };
  fill_on(*control, Lane::kControl, {});
  std::vector<Connection*> at_work = carriers(link);
  if (at_work.empty()) at_work.push_back(control);
  const Duration hang = hang_time(link, at_work.size());
  link.session.outbox(Lane::kData).cut_at(slow(link, at_work.size()) ? kSmallSegmentBytes : kMaxSegmentBytes);
  const std::size_t first = link.turn.take();
  for (std::size_t i = 0; i < at_work.size(); ++i) {
    fill_on(*at_work[(first + i) % at_work.size()], Lane::kData, hang);
  }
  if (fills == kFillsInTurn) pump_later(link);
  all_.sessions.go_on_closing(link);
}

void Striping::pump_later(TcpLink& link) {
  if (!link.turn.post()) return;
  boost::asio::post(all_.context.io, [this, id = link.id()] {
    TcpLink* const again = all_.links.find(id);
    if (again == nullptr || all_.context.stopped) return;
    again->turn.begin();
    pump(*again);
  });
}

}  // namespace collab::tcp
