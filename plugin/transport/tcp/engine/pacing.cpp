#include "transport/tcp/engine/pacing.h"

#include "transport/tcp/engine/engine_parts.h"
#include "transport/tcp/pace/mechanisms.h"

namespace collab::tcp {

void Pacing::tick(TcpLink& link, TimePoint now) {
  const bool alone = link.connections.alone();
  const bool backlogged = link.pacing.begin_tick(now, link.session.outbox(Lane::kData).backlogged(), alone);
  if (alone) {
    link.pacing.pause();
    return;
  }
  keep_pace(link, now, backlogged);
  all_.number.tick(link, now, backlogged);
}

void Pacing::keep_pace(TcpLink& link, TimePoint now, bool backlogged) {
  const Duration round_trip = link.round_trip.value();
  // Where nothing arrives any more, the next shift would only put more on its way that is lost.
  if (backlogged && link.pacing.arrives(now, round_trip)) link.rotation.tick(now, link.connections);
  const std::vector<Connection*> carriers = Striping::carriers(link);
  if (carriers.empty()) {
    link.pacing.pause();
    return;
  }
  if (carriers.front()->peer().address().is_loopback()) return;
  const bool seen = link.pacing.keep(now, link.connections, carriers, backlogged, round_trip);
  if (seen && backlogged) ask_way_out(link, now);
}

// How long the way out takes is seen by pings on the control connection, which no data of ours holds up.
void Pacing::ask_way_out(const TcpLink& link, TimePoint now) {
  if (off(Mechanism::kWayOut) || !link.connections.attached(0)) return;
  Connection& control = *link.connections.at(0);
  if (control.slot.held() || control.overfull()) return;
  control.send(encode_ping(stamp_of(now)));
  control.flush();
}

}  // namespace collab::tcp
