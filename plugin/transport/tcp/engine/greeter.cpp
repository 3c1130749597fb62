#include "transport/tcp/engine/greeter.h"

#include <utility>

#include "core/base/log.h"
#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {

Status Greeter::on_hello(Connection& from, const Hello& hello) {
  const ConnectionPtr connection = all_.pending.find(from);
  if (from.dialled() || connection == nullptr) return corrupt("a hello out of turn");
  TcpLink* link = all_.links.find(hello.link);
  if (link != nullptr && (link->dialled() || link->process() != hello.process || hello.opens)) {
    return corrupt("a hello for another peer's link");
  }
  if (link == nullptr && !hello.opens) {
    const bool well = all_.links.ended_well(hello.link);
    all_.pending.refuse_connection(
        from, well ? Refusal::kEnded : Refusal::kUnknownLink,
        well ? "that link has ended"
             : "that link is not known here: it was given up after its grace, or the process was restarted");
    return {};
  }
  const bool fresh = link == nullptr;
  if (!fresh && hello.connection != 0 && !all_.pending.has_room_for_data()) {
    from.close();  // the dialler has other connections, and retries this one later
    return {};
  }
  all_.pending.admit(from);
  if (fresh) link = &open_link(from, hello);
  all_.pending.remember_host(from.peer().address());
  from.send(encode_preface());
  from.send(encode_welcome(all_.context.process));
  if (!fresh) {
    from.send(encode(link->session.arrivals()));
    from.slot.hold();
  }
  from.slot.belong_to(LinkId(), hello.connection);
  link->connections.grow(std::size_t{hello.connection} + 1);
  if (const ConnectionPtr old = link->connections.at(hello.connection); old != nullptr) {
    old->close();  // the dialler has replaced this connection, so it is dead
    detach(*link, *old);
  }
  if (fresh) {
    log_authenticated(*link, from);
    all_.context.handler->on_accepted(link->id(), link->peer());
  }
  attach(*link, connection);
  return {};
}

TcpLink& Greeter::open_link(Connection& from, const Hello& hello) {
  all_.pending.make_room_for_link(/*dialled=*/false);
  TcpLink& link = all_.links.make(all_.links.next_id(), {});
  link.accept(to_text(from.peer()), hello.link, hello.process);
  all_.links.name(link);
  return link;
}

void Greeter::log_authenticated(const TcpLink& link, const Connection& by) const {
  const std::vector<std::string> names = by.security().authenticated_names();
  if (!names.empty()) all_.context.handler->on_authenticated(link.id(), names);
}

Status Greeter::on_welcome(Connection& from, const Id& process) {
  TcpLink* const link = all_.links.find(from.slot.link());
  if (!from.dialled() || link == nullptr || from.state() == Connection::State::kAttached) {
    return corrupt("a welcome out of turn");
  }
  if (link->open() && process != link->process()) {
    all_.links.end(*link, unavailable("another process answers at " + link->peer() +
                                      " than before: it was restarted [tcp.restarted]"));
    return {};
  }
  const ConnectionPtr connection = link->connections.at(from.slot.index());
  if (!link->open()) {
    link->welcomed(process);
    link->session.go_on(all_.now());
    log_authenticated(*link, from);
    all_.context.handler->on_connected(link->id());
  }
  attach(*link, connection);
  all_.dialler.dial_missing(*link);
  return {};
}

void Greeter::on_refuse(Connection& from, const Refuse& refusal) {
  TcpLink* const link = all_.links.find(from.slot.link());
  if (!from.dialled() || link == nullptr || from.state() == Connection::State::kAttached) return;
  const std::string text = link->peer() + " refuses: " + refusal.reason;
  if (from.security().unauthenticated() && link->open()) {
    from.fail(Fault::kNoAnswer, unavailable(text));
    return;
  }
  switch (refusal.why) {
    case Refusal::kUnknownLink: return all_.links.end(*link, unavailable(text));
    case Refusal::kEnded: return all_.links.end(*link, link->session.closing() ? Status() : unavailable(text));
    case Refusal::kNotAllowed:
    case Refusal::kVersion: return all_.links.end(*link, refused(text));
  }
}

void Greeter::attach(TcpLink& link, const ConnectionPtr& connection) {
  const TimePoint time = all_.now();
  const std::uint16_t index = connection->slot.index();
  ++all_.context.counters.opened;
  connection->attached(time);
  connection->slot.belong_to(link.id(), index);
  all_.liveness.attached(*connection, time);
  link.connections.put(index, connection);
  link.redial.dialled(index);
  if (index == 0) link.redial.port_answers();
  if (const auto absence = link.connections.end_absence(time)) {
    ++all_.context.counters.resumed;
    log_reconnect(link, *absence);
  }
  const std::string congestion = congestion_of(connection->handle());
  link.rotation.attached(*connection, congestion);
  NumberSearch::attached(link, congestion);
  if (!connection->peer().address().is_loopback() && !std::exchange(warned_congestion_, true)) {
    warn_congestion(congestion);
  }
  if (index == 0) all_.caps.control_attached(link, time);
  if (index == 0) NumberSearch::control_attached(link, *connection);
  if (link.session.bye_sent()) connection->send(encode(link.session.bye()));
  connection->flush();
  all_.striping.pump(link);
}

void Greeter::log_reconnect(const TcpLink& link, const LinkConnections::Absence& absence) {
  const auto away = std::chrono::duration_cast<std::chrono::seconds>(absence.lasted);
  const std::string again =
      absence.cut_bytes == 0 ? std::string()
                             : "; some " + std::to_string(absence.cut_bytes) + " bytes that were on their way over " +
                                   std::to_string(absence.cut_connections) + " of them are sent again";
  const auto line = returned_.allow(all_.now(), "tcp: the link to " + link.peer() + " has a connection again after " +
                                                    std::to_string(away.count()) + " s" + again);
  if (line) log_info(*line);
}

void Greeter::warn_congestion(const std::string& name) {
  const std::string& wanted = all_.context.options.congestion;
  if (wanted.empty() || name == wanted) return log_debug("tcp: congestion control is " + name);
  const std::string text =
      "tcp: congestion control is " + name + ": " + wanted +
      " (COLLAB_TCP_CONGESTION) is not in /proc/sys/net/ipv4/tcp_allowed_congestion_control here; long lossy lines get "
      "more connections, and are slower than with bbr [tcp.congestion]";
  wanted == "bbr" ? log_info(text) : log_warning(text);
}

void Greeter::detach(TcpLink& link, Connection& connection) {
  std::vector<std::uint64_t> tokens;
  const std::uint64_t lost = link.session.lose(connection.name, tokens);
  if (lost > connection.never_sent()) link.connections.note_cut(lost - connection.never_sent());
  connection.slot.leave_link();
  const std::uint16_t index = connection.slot.index();
  if (link.connections.at(index).get() == &connection) link.connections.take(index);
  all_.sessions.deliver(link, tokens);
}

}  // namespace collab::tcp
