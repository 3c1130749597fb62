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
  // If nothing arrives any more, the next shift would only send more data to be lost.
  if (backlogged && link.pacing.arrives(now, link.round_trip.value())) link.rotation.tick(now, link.connections);
  const std::vector<Connection*> carriers = Striping::carriers(link);
  if (carriers.empty()) {
    link.pacing.pause();
    return;
  }
  if (carriers.front()->peer().address().is_loopback()) return;
  const bool seen = link.pacing.keep(now, link.connections, carriers, backlogged);
  if (seen && backlogged) probe_one_way_delay(link, now);
}

// Pings on the control connection measure the delay to the peer: none of our data holds them up.
void Pacing::probe_one_way_delay(const TcpLink& link, TimePoint now) {
  if (off(Mechanism::kWayOut) || !link.connections.attached(0)) return;
  Connection& control = *link.connections.at(0);
  if (control.slot.held() || control.overfull()) return;
  control.send(encode_ping(stamp_of(now)));
  control.flush();
}

}  // namespace collab::tcp
