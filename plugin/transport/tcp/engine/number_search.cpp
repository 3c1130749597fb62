#include "transport/tcp/engine/number_search.h"

#include "core/base/log.h"
#include "transport/tcp/engine/engine_parts.h"
#include "transport/tcp/pace/mechanisms.h"

namespace collab::tcp {
namespace {

constexpr std::uint16_t kFirstGuess = 12;  // on a long path, the system's buffers limit one or two connections

}  // namespace

ConnectionNumber NumberSearch::first(const std::string& address) const {
  const auto fixed = static_cast<std::uint16_t>(all_.context.options.connections);
  if (fixed != 0) return {fixed, true};
  return {remembered_.of(address).value_or(kFirstGuess), false};
}

void NumberSearch::attached(TcpLink& link, const std::string& congestion) {
  if (!link.number.fixed()) link.number.search().at_most(Rotation::most(congestion));
}

// A number sent over an earlier control connection may be lost, so it is sent again.
void NumberSearch::control_attached(const TcpLink& link, Connection& control) {
  if (link.number.told() != 0) control.send(encode_want(link.number.told()));
}

void NumberSearch::tick(TcpLink& link, TimePoint now, bool backlogged) {
  if (link.number.fixed() || off(Mechanism::kSearch)) return;
  const std::uint64_t arrived = link.session.outbox(Lane::kData).bytes_arrived();
  const std::uint16_t before = link.number.found();
  const std::uint16_t after =
      link.number.search().observe(now, arrived, backlogged, link.round_trip.value(), link.connections.attached_data(),
                                   all_.caps.capped(link) || link.pacing.pace().sees_queue());
  if (after == before) return;
  log_debug("tcp: link to " + link.peer() + ": " + std::to_string(after) + " data connections instead of " +
            std::to_string(before));
  if (link.dialled()) {
    remembered_.note(link.peer(), after);
    all_.dialler.dial_missing(link);
    return;
  }
  link.number.set_told(after);
  if (Connection* const control = link.connections.control(); control != nullptr) {
    control->send(encode_want(after));
    control->flush();
  }
}

void NumberSearch::on_want(TcpLink& link, std::uint16_t number) {
  link.number.peer_wants(number);
  if (!link.number.fixed()) all_.dialler.dial_missing(link);
}

}  // namespace collab::tcp
