// How fast a link sends, and over how many connections.
#include <cmath>
#include <utility>

#include "core/base/log.h"
#include "transport/tcp/tcp_engine.h"
#include "transport/tcp/tcp_kernel.h"

namespace collab::tcp {
namespace {

constexpr double kWorthSetting = 0.005;  // of the pace

}  // namespace

void TcpEngine::tune(TcpLink& link, TimePoint time) {
  if (link.alone()) return;
  const Outbox& data = link.outbox(Lane::kData);
  const bool backlogged = std::exchange(link.was_backlogged, data.backlogged()) && data.backlogged();
  keep_pace(link, time, backlogged);
  if (options_.connections == 0) search(link, time, backlogged);
}

void TcpEngine::keep_pace(TcpLink& link, TimePoint time, bool backlogged) {
  LinkPace::Sight sight;
  sight.backlogged = backlogged;
  double carriers = 0;
  for (std::size_t i = 1; i < link.slots.size(); ++i) {
    if (!link.slots[i].attached()) continue;
    Connection& connection = *link.slots[i].connection;
    const std::optional<KernelFigures> figures = kernel_figures(connection.handle());
    if (!figures || connection.peer().address().is_loopback()) return;
    const std::uint32_t packets = figures->delivered - connection.delivered.value_or(figures->delivered);
    connection.delivered = figures->delivered;
    link.delivered += std::uint64_t{packets} * figures->packet_bytes;
    ++carriers;
    if (!figures->in_flight || figures->round_trip == Duration(0)) continue;
    if (sight.round_trip == Duration(0) || figures->round_trip < sight.round_trip)
      sight.round_trip = figures->round_trip;
  }
  sight.delivered = link.delivered;
  sight.way_out = std::exchange(link.way_out, std::nullopt);
  if (backlogged) ask_the_way(link, time);
  const double rate = link.pace.observe(time, sight);
  static const bool lbtrace = getenv("LB_PACE") != nullptr;  // TEMP
  if (lbtrace && sight.round_trip.count() > 0)
    fprintf(stderr, "P %.3f rate %.1f rtt %.1f del %.2f\n", static_cast<double>(time.time_since_epoch().count()) / 1e6,
            rate * 8e-6, static_cast<double>(sight.round_trip.count()) / 1e3,
            static_cast<double>(sight.delivered) / 1e6);  // TEMP
  if (rate == 0) return;
  for (std::size_t i = 1; i < link.slots.size(); ++i) {
    if (!link.slots[i].attached()) continue;
    Connection& connection = *link.slots[i].connection;
    const double share = rate / carriers;
    if (std::abs(share - connection.pace) < kWorthSetting * share) continue;
    connection.pace = share;
    set_pace(connection.handle(), share);
  }
}

// How long the way out takes is seen by pings on the control connection, which no data of ours holds up.
void TcpEngine::ask_the_way(TcpLink& link, TimePoint time) {
  Connection* const control = link.slots[0].attached() ? link.slots[0].connection.get() : nullptr;
  if (control == nullptr || control->held || control->overfull()) return;
  control->send(encode_ping(stamp_of(time)));
  control->flush();
}

// How many data connections move the most.
void TcpEngine::search(TcpLink& link, TimePoint time, bool backlogged) {
  const std::uint64_t arrived = link.outbox(Lane::kData).bytes_arrived();
  const std::uint16_t before = link.search.wanted();
  const std::uint16_t after = link.search.observe(time, arrived, backlogged, link.round_trip, link.attached_data());
  if (after == before) return;
  log_debug("tcp: link to " + link.peer + ": " + std::to_string(after) + " data connections instead of " +
            std::to_string(before));
  if (link.dialled) {
    remembered_[link.peer] = after;
    dial_missing(link);
  } else if (Connection* const control = link.control(); control != nullptr) {
    control->send(encode_want(after));
    control->flush();
  }
}

}  // namespace collab::tcp
