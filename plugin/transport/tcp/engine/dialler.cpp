#include "transport/tcp/engine/dialler.h"

#include <algorithm>
#include <random>
#include <utility>

#include "core/base/log.h"
#include "core/base/message_code.h"
#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {
namespace {

constexpr Duration kRedialLimit = std::chrono::seconds(3);

}  // namespace

Dialler::Dialler(EngineParts& all) : all_(all), prng_(std::random_device{}()) {}

void Dialler::begin(const LinkId id, const std::string& address, TimePoint deadline) {
  all_.pending.make_room_for_link(/*dialled=*/true);
  TcpLink& link = all_.links.make(id, address);
  link.dial(address, draw_id());
  link.redial.begin(deadline);
  all_.links.name(link);
  const Result<HostPort> parts = parse_host_port(address);
  if (!parts.ok()) {
    all_.links.end(link, parts.status());
    return;
  }
  if (Result<Endpoints> numeric = resolve(*parts, true); numeric.ok()) {
    resolved(link, std::move(numeric));
    return;
  }
  look_up(link, *parts);
}

void Dialler::look_up(const TcpLink& link, const HostPort& address) {
  look_ups_.want(link.id(), address);
  look_up_next();
}

void Dialler::look_up_next() {
  while (const auto wanted = look_ups_.next()) {
    const LinkId id = wanted->link;
    if (all_.links.find(id) == nullptr) {  // the link timed out first
      look_ups_.ended(id);
      continue;
    }
    const auto done = [id, mailbox = std::weak_ptr(all_.mailbox)](Result<Endpoints> endpoints) {
      if (const auto open = mailbox.lock()) {
        open->post({.kind = Command::Kind::kResolved, .link = id, .endpoints = std::move(endpoints)});
      }
    };
    resolve_in_background(wanted->address, all_.context.options.look_up, done);
  }
}

void Dialler::looked_up(LinkId id, Result<Endpoints> endpoints) {
  look_ups_.ended(id);
  look_up_next();
  TcpLink* const link = all_.links.find(id);
  if (link == nullptr) return;
  if (const Result<HostPort> parts = parse_host_port(link->peer()); parts.ok() && endpoints.ok()) {
    look_ups_.found(parts->host);
  }
  resolved(*link, std::move(endpoints));
}

void Dialler::resolved(TcpLink& link, Result<Endpoints> endpoints) {
  if (link.state() != TcpLink::State::kResolving) {  // a later look-up, while the link had no connection
    if (endpoints.ok()) link.redial.found_anew(std::move(*endpoints));
    return;
  }
  if (!endpoints.ok()) {
    all_.links.end(link, unavailable("cannot connect to " + link.peer() + ": " + endpoints.status().message() +
                                     " [tcp.unknown-host]"));
    return;
  }
  link.redial.found(std::move(*endpoints));
  link.found();
  dial(link, 0);
}

void Dialler::dial(TcpLink& link, std::uint16_t index) {
  link.redial.dialled(index);
  const Endpoint to = link.redial.to();
  if (!all_.pending.allowed(to)) {
    all_.links.end(link,
                   refused("cannot connect to " + link.peer() + ": " + to_text(to) +
                           " is neither this machine nor a private address, and there is no token to encrypt with: set "
                           "the swarm's COLLAB_TOKEN on all sites (made once by `collab token`), or COLLAB_INSECURE=1 "
                           "to speak in the clear [tcp.in-the-clear]"));
    return;
  }
  const ConnectionPtr connection = all_.make_connection();
  link.connections.put(index, connection);
  connection->slot.belong_to(link.id(), index);
  const bool opens = !link.open();
  const Duration limit =
      std::clamp<Duration>(kRedialLimit + 4 * link.round_trip.value(), kRedialLimit, PendingConnections::kGreetLimit);
  connection->wait_until(opens ? link.redial.opening_limit(all_.now()) : all_.now() + limit);
  connection->send(encode_preface());
  connection->send(encode(Hello{link.name(), all_.context.process, index, opens}));
  if (!opens) {
    connection->send(encode(link.session.arrivals()));
    connection->slot.hold();
  }
  connection->dial(to);
}

void Dialler::dial_missing(TcpLink& link) {
  if (!link.dialled() || link.session.closing()) return;
  link.connections.grow(std::size_t{link.number.wanted()} + 1);
  bool room = true;  // computed once: it looks at all links
  for (std::size_t i = 0; i < link.connections.size() && !link.ended(); ++i) {
    if (link.connections.at(i) != nullptr || link.redial.planned(i)) continue;
    room = dial_or_wait(link, static_cast<std::uint16_t>(i), room);
  }
}

void Dialler::check_opening(TcpLink& link, TimePoint now) {
  const ConnectionPtr under_way = link.connections.at(0);
  if (under_way != nullptr && under_way->deadline() <= now) {
    under_way->fail(Fault::kNoAnswer, timed_out("no answer in time"));
  }
  if (now < link.redial.open_by()) return;
  std::string text = "no answer from " + link.peer() + " in time";
  if (const std::string& fault = link.connections.last_fault(); !fault.empty()) text += " (" + fault + ")";
  all_.links.end(link, timed_out(text + "; is the address right, and does a firewall let it through? [tcp.no-answer]"));
}

void Dialler::redial(TcpLink& link, TimePoint now) {
  bool room = true;
  for (std::size_t i = 0; i < link.connections.size() && !link.ended(); ++i) {
    if (link.connections.at(i) != nullptr || !link.redial.due(i, now)) continue;
    if (i != 0 && link.connections.alone()) continue;  // the control connection tests the path first
    room = dial_or_wait(link, static_cast<std::uint16_t>(i), room);
  }
}

// If there is no room for a data connection, it is tried again later. False: there was no room.
bool Dialler::dial_or_wait(TcpLink& link, std::uint16_t index, bool room) {
  room = room && (index == 0 || all_.pending.has_room_to_dial_data(link));
  if (room || index == 0) {
    dial(link, index);
  } else {
    static_cast<void>(plan(link, index));
  }
  return room;
}

// ---- failing -------------------------------------------------------------------------------------

void Dialler::opening_failed(TcpLink& link, Fault fault, const Status& why) {
  if (const ConnectionPtr connection = link.connections.take(0); connection != nullptr) connection->close();
  link.connections.note_fault(why.message());
  const bool another = fault == Fault::kRefusedPort || fault == Fault::kNoAnswer;
  if (another && link.redial.try_another()) {
    dial(link, 0);
    return;
  }
  std::string text = "cannot connect to " + link.peer() + ": " + why.message();
  if (message_code(why.message()).empty()) text += " [tcp.cannot-connect]";  // otherwise the cause has a code
  all_.links.end(link, Status(fault == Fault::kNotAllowed ? StatusCode::kRefused
                              : fault == Fault::kBroken   ? StatusCode::kCorrupt
                                                          : StatusCode::kUnavailable,
                              text));
}

void Dialler::failed(TcpLink& link, std::uint16_t index, Fault fault, const Status& why) {
  const bool was_alone = link.connections.alone_since().has_value();
  const ConnectionPtr connection = link.connections.at(index);
  // Another process than before may answer a redial, even a stranger. The link waits for the process that it knows.
  const bool known = connection == nullptr || connection->attached_at() || !all_.encrypts();
  if (connection != nullptr) {
    if (const auto since = connection->attached_at()) link.redial.lived(index, all_.now() - *since);
    all_.greeter.detach(link, *connection);
  }
  if (known && (fault == Fault::kBroken || fault == Fault::kNotAllowed)) {
    all_.links.end_with_reason(
        link, Status(why.code(), "the link to " + link.peer() + " broke: " + why.message() + " [tcp.broke]"));
    return;
  }
  link.connections.note_fault(why.message());
  if (!was_alone && link.connections.alone()) {
    link.connections.begin_absence(all_.now(), fault == Fault::kEndedByPeer);
    log_debug("tcp: the link to " + link.peer() + " lost its last connection (" + why.message() + ")");
  }
  if (link.session.over()) return;
  if (link.dialled()) plan_redial(link, index, fault, was_alone);
  if (!link.ended()) all_.striping.pump(link);
}

void Dialler::plan_redial(TcpLink& link, std::uint16_t index, Fault fault, bool was_alone) {
  if (index == 0 && fault == Fault::kNoAnswer) link.redial.port_answers();
  if (index == 0 && fault == Fault::kRefusedPort && link.connections.alone() && link.redial.port_refused()) {
    all_.links.end(
        link, unavailable("no process listens at " + link.peer() + " any more: its process ended [tcp.process-ended]"));
    return;
  }
  if (index == 0 && was_alone) link.redial.take_turns();
  if (index == 0 && fault == Fault::kNoAnswer && was_alone) {
    // The name may resolve to another address by now.
    const Result<HostPort> parts = parse_host_port(link.peer());
    if (parts.ok() && !resolve(*parts, true).ok()) look_up(link, *parts);
  }
  if (plan(link, index)) dial_or_wait(link, index, true);
}

bool Dialler::plan(TcpLink& link, std::uint16_t index) {
  return link.redial.plan(index, all_.now(), 0.75 + 0.5 * prng_.uniform());
}

}  // namespace collab::tcp
