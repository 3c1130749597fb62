#include "transport/tcp/engine/liveness.h"

#include <algorithm>
#include <string>

#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {
namespace {

constexpr int kHeartbeatsBetweenPings = 4;                 // on a data connection
constexpr std::int64_t kFarApart = std::int64_t{1} << 60;  // limit for the difference of two clocks, in microseconds

std::int64_t milliseconds(Duration time) { return std::chrono::duration_cast<std::chrono::milliseconds>(time).count(); }

}  // namespace

void Liveness::attached(Connection& connection, TimePoint now) {
  connection.keepalive.ask(now, all_.context.options.heartbeat);
  connection.keepalive.heard(now);
  connection.send(encode_ping(stamp_of(now)));
}

void Liveness::heard(Connection& from) { from.keepalive.heard(all_.now()); }

Status Liveness::on_ping(Connection& from, std::uint64_t stamp) {
  if (from.overfull()) return corrupt("it asks for signs of life and does not read them");
  from.keepalive.asked_for_one(stamp, all_.now());
  return {};
}

void Liveness::answer(Connection& from) {
  if (from.state() != Connection::State::kAttached) return;
  const auto question = from.keepalive.take_question();
  if (!question) return;
  from.send(encode(Pong{question->stamp, stamp_of(question->came)}));
  from.flush();
}

void Liveness::on_pong(TcpLink& link, Connection& from, const Pong& pong) {
  const auto way = static_cast<std::int64_t>(pong.clock - pong.stamp);
  if (from.slot.index() == 0 && -kFarApart < way && way < kFarApart) {  // none of our data delays this ping
    link.pacing.note_one_way_delay(Duration(way));
  }
  const std::optional<Duration> took = from.keepalive.answered(all_.now(), pong.stamp);
  if (!took) return;
  link.connections.answered();
  if (from.slot.index() != 0 && link.round_trip.value() != Duration(0)) return;  // data in front of the ping delays it
  link.round_trip.note(*took);
}

void Liveness::reset_silence(const TcpLink& link, TimePoint now) {
  for (std::size_t i = 0; i < link.connections.size(); ++i) {
    if (link.connections.attached(i)) link.connections.at(i)->keepalive.heard(now);
  }
}

void Liveness::tick(TcpLink& link, TimePoint now) {
  for (std::size_t i = 0; i < link.connections.size() && !link.ended(); ++i) {
    const ConnectionPtr connection = link.connections.at(i);
    if (connection != nullptr) check(link, *connection, now);
  }
  if (!link.ended()) check_grace(link, now);
}

// Pings the connection, and gives it up if it shows no sign of life.
void Liveness::check(TcpLink& link, Connection& connection, TimePoint now) {
  if (connection.state() != Connection::State::kAttached) {
    if (connection.deadline() <= now) connection.fail(Fault::kNoAnswer, timed_out("no answer in time"));
    return;
  }
  Keepalive& keepalive = connection.keepalive;
  const Duration heartbeat = all_.context.options.heartbeat;
  if (!keepalive.answer_due()) {
    // Data connections are pinged rarely: the control connection shows whether the peer lives, and a ping spoils a rest
    // of Rotation.
    if (connection.slot.index() != 0 && keepalive.quiet(now) < kHeartbeatsBetweenPings * heartbeat) return;
    if (!keepalive.may_ask(now)) return;
    keepalive.ask(now, heartbeat);
    connection.send(encode_ping(stamp_of(now)));
    connection.flush();
    return;
  }
  if (connection.paused() != Connection::Pause::kNone) return;
  const Duration round_trip = link.round_trip.value();
  const Duration silent = keepalive.silent(now);
  const Duration soft = std::max(all_.context.soft_limit, 4 * round_trip);
  if (silent < soft) return;
  const bool kernel_answers = connection.kernel_silence().value_or(silent) < soft;
  if (kernel_answers && silent < std::max(all_.context.hard_limit, 16 * round_trip)) return;
  connection.fail(Fault::kNoAnswer, unavailable("silent for " + std::to_string(milliseconds(silent)) + " ms"));
}

void Liveness::check_grace(TcpLink& link, TimePoint now) {
  const std::optional<TimePoint> since = link.connections.alone_since();
  if (!since || link.session.closing()) return;
  const TcpOptions& options = all_.context.options;
  const bool gone = link.connections.ended_by_peer() && !link.dialled();
  const Duration wait =
      gone ? std::min(options.link_grace, options.death_wait + 4 * link.round_trip.value()) : options.link_grace;
  if (now - *since < wait) return;
  const std::string text = "no connection to " + link.peer() + " for " + std::to_string(milliseconds(wait)) + " ms (" +
                           link.connections.last_fault() + ")";
  all_.links.end(
      link,
      gone ? unavailable(text + ": it closed them all and did not dial again; its process ended [tcp.process-gone]")
           : timed_out(text + ", which is the link's grace (COLLAB_LINK_GRACE) [tcp.silent]"));
}

}  // namespace collab::tcp
