// How links and their connections come and go.
#include <algorithm>
#include <boost/asio/post.hpp>
#include <ranges>
#include <utility>

#include "core/base/log.h"
#include "transport/tcp/tcp_engine.h"

namespace collab::tcp {
namespace {

namespace asio = boost::asio;
constexpr Duration kGreetLimit = std::chrono::seconds(10);
constexpr Duration kRedialLimit = std::chrono::seconds(3);
constexpr Duration kFirstBackOff = std::chrono::milliseconds(100);
constexpr Duration kFlapBackOff = std::chrono::milliseconds(200);
constexpr Duration kLongestBackOff = std::chrono::seconds(2);
constexpr Duration kSteady = std::chrono::seconds(1);  // a connection that lived this long is redialled at once
constexpr std::uint16_t kMostWithBbr = 12;             // a third of them at work

}  // namespace

Result<std::string> TcpEngine::listen(const std::string& address) {
  if (in_child()) return unavailable("cannot listen on " + address + ": this process is the child of a fork");
  const Result<HostPort> parts = parse_host_port(address);
  if (!parts.ok()) return parts.status();
  const Result<Endpoints> endpoints = resolve(*parts, false);
  if (!endpoints.ok()) return unavailable("cannot listen on " + address + ": " + endpoints.status().message());
  const Endpoint& local = endpoints->front();
  auto acceptor = std::make_shared<asio::ip::tcp::acceptor>(io_);
  boost::system::error_code error;
  acceptor->open(local.protocol(), error);
  if (!error) acceptor->set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor->bind(local, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return unavailable("cannot listen on " + address + ": the port is in use; choose another, or port 0");
  }
  if (error) return unavailable("cannot listen on " + address + ": " + error.message());
  const std::uint16_t port = acceptor->local_endpoint(error).port();
  asio::post(io_, [this, acceptor] {
    acceptors_.push_back(acceptor);
    accept_on(acceptor);
  });
  const std::string& host = options_.advertise_host.empty() ? parts->host : options_.advertise_host;
  return to_string(HostPort{host, port});
}

void TcpEngine::accept_on(const Acceptor& acceptor) {
  acceptor->async_accept([this, acceptor](const boost::system::error_code& error, asio::ip::tcp::socket socket) {
    if (stopped_ || error == asio::error::operation_aborted) return;
    if (!error) {
      boost::system::error_code gone;
      const Endpoint from = socket.remote_endpoint(gone);
      if (!gone) accepted(std::move(socket), from);
      accept_on(acceptor);
      return;
    }
    // Out of files, most likely: those at work go on, new ones wait.
    if (const auto line = not_accepted_.let(now(), "tcp: a connection could not be accepted: " + error.message())) {
      log_warning(*line);
    }
    auto pause = std::make_shared<asio::steady_timer>(io_, std::chrono::milliseconds(200));
    pause->async_wait([this, acceptor, pause](const boost::system::error_code& ended) {
      if (!ended && !stopped_) accept_on(acceptor);
    });
  });
}

bool TcpEngine::allowed(const Endpoint& peer) const {
  return encrypts() || options_.insecure || is_near(peer.address());
}

void TcpEngine::accepted(asio::ip::tcp::socket socket, const Endpoint& from) {
  make_room();
  auto connection = std::make_shared<Connection>(around_, next_carrier_++);
  connection->accept(std::move(socket), from);
  connection->deadline = now() + kGreetLimit;
  loose_.push_back(connection);
  keep_ticking();
  if (allowed(from)) return;
  const std::string words =
      "without a key only this machine and private addresses are accepted: set the swarm's COLLAB_TOKEN on all sites "
      "(made once by `collab token`), or COLLAB_INSECURE=1 to speak in the clear";
  tell_turned_away(from, words);
  turn_away(*connection, Refusal::kNotAllowed, words);
}

// ---- dialling ------------------------------------------------------------------------------------

void TcpEngine::begin_dial(TcpLink& link, const std::string& address, TimePoint deadline) {
  link.dialled = true;
  link.peer = address;
  link.deadline = deadline;
  link.session = draw_id();
  sessions_[link.session] = link.id;
  const Result<HostPort> parts = parse_host_port(link.peer);
  if (!parts.ok()) {
    end_link(link, parts.status());
    return;
  }
  if (Result<Endpoints> numeric = resolve(*parts, true); numeric.ok()) {
    resolved(link, std::move(numeric));
    return;
  }
  look_up(link, *parts);
}

void TcpEngine::look_up(const TcpLink& link, const HostPort& address) {
  const auto done = [id = link.id, mailbox = std::weak_ptr(mailbox_)](Result<Endpoints> endpoints) {
    const auto open = mailbox.lock();
    if (open == nullptr) return;
    Command command;
    command.kind = Command::Kind::kResolved;
    command.link = id;
    command.endpoints = std::move(endpoints);
    post(open, std::move(command));
  };
  if (!options_.look_up) return resolve_in_background(address, done);
  Endpoints endpoints;
  for (const std::string& host : options_.look_up(address.host)) {
    const Result<Endpoints> numeric = resolve({host, address.port}, true);
    if (numeric.ok()) endpoints.insert(endpoints.end(), numeric->begin(), numeric->end());
  }
  if (endpoints.empty()) return done(unavailable("the host \"" + address.host + "\" has no address"));
  done(std::move(endpoints));
}

void TcpEngine::resolved(TcpLink& link, Result<Endpoints> endpoints) {
  if (link.state != TcpLink::State::kResolving) {  // asked again, while it is cut off
    if (!endpoints.ok()) return;
    const Endpoint turn = link.endpoints[link.next_endpoint];
    link.endpoints = std::move(*endpoints);
    const auto at = std::ranges::find(link.endpoints, turn);
    link.next_endpoint = at == link.endpoints.end() ? 0 : static_cast<std::size_t>(at - link.endpoints.begin());
    return;
  }
  if (!endpoints.ok()) {
    end_link(link, unavailable("cannot connect to " + link.peer + ": " + endpoints.status().message()));
    return;
  }
  link.endpoints = std::move(*endpoints);
  link.state = TcpLink::State::kDialling;
  dial_slot(link, 0);
}

void TcpEngine::dial_slot(TcpLink& link, std::uint16_t index) {
  Slot& slot = link.slots[index];
  slot.redial_at = kNever;
  const Endpoint& to = link.endpoints[link.next_endpoint];
  if (!allowed(to)) {
    end_link(link, refused("cannot connect to " + link.peer + ": " + to_text(to) +
                           " is neither this machine nor a private address, and there is no key to encrypt with: set "
                           "the swarm's COLLAB_TOKEN on all sites (made once by `collab token`), or COLLAB_INSECURE=1 "
                           "to speak in the clear"));
    return;
  }
  auto connection = std::make_shared<Connection>(around_, next_carrier_++);
  slot.connection = connection;
  connection->link = link.id;
  connection->index = index;
  const bool opens = link.state != TcpLink::State::kOpen;
  const Duration limit = std::clamp<Duration>(kRedialLimit + 4 * link.round_trip, kRedialLimit, kGreetLimit);
  connection->deadline = now() + limit;
  if (opens) {  // a part of the link's own for each address that is left: one may lead nowhere
    const auto left = static_cast<Duration::rep>(link.endpoints.size() - link.next_endpoint);
    connection->deadline = left == 1 ? kNever : now() + (link.deadline - now()) / left;
  }
  connection->send(encode_preface());
  connection->send(encode(Hello{link.session, process_, index, opens}));
  if (!opens) {
    connection->send(encode(Arrivals{link.in[0].arrivals(), link.in[1].arrivals()}));
    connection->held = true;
  }
  connection->dial(to);
}

std::uint16_t TcpEngine::wanted(const TcpLink& link) const {
  const std::uint16_t own = link.search.wanted();
  return options_.connections != 0 ? own : std::max(own, link.peer_wants);
}

void TcpEngine::dial_missing(TcpLink& link) {
  if (!link.dialled || link.closing) return;
  while (link.slots.size() < std::size_t{wanted(link)} + 1) link.slots.emplace_back();
  for (std::size_t i = 0; i < link.slots.size() && !link.ended; ++i) {
    Slot& slot = link.slots[i];
    if (slot.connection == nullptr && slot.redial_at == kNever) dial_slot(link, static_cast<std::uint16_t>(i));
  }
}

// ---- greeting ------------------------------------------------------------------------------------

Status TcpEngine::on_hello(Connection& from, const Hello& hello) {
  const auto at = std::find_if(loose_.begin(), loose_.end(), [&](const auto& entry) { return entry.get() == &from; });
  if (from.dialled() || at == loose_.end()) return corrupt("a hello out of turn");
  const ConnectionPtr connection = *at;
  const auto known = sessions_.find(hello.link);
  TcpLink* link = known != sessions_.end() ? find(known->second) : nullptr;
  if (link != nullptr && (link->dialled || link->process != hello.process || hello.opens)) {
    return corrupt("a hello for a link of somebody else");
  }
  if (link == nullptr && !hello.opens) {
    const bool well = std::find(ended_well_.begin(), ended_well_.end(), hello.link) != ended_well_.end();
    turn_away(from, well ? Refusal::kEnded : Refusal::kUnknownLink,
              well ? "that link has ended"
                   : "that link is not known here: it was given up after its grace, or the process was restarted");
    return {};
  }
  const bool fresh = link == nullptr;
  if (!fresh && hello.connection != 0 && data_connections() >= most_data_connections()) {
    from.close();  // the dialler tries again by and by, and has its others
    return {};
  }
  loose_.erase(at);
  if (fresh) {
    make_room_for_link();
    link = &make_link(LinkId(next_link_.fetch_add(1)), {});
    link->state = TcpLink::State::kOpen;
    link->peer = to_text(from.peer());
    link->session = hello.link;
    link->process = hello.process;
    sessions_[hello.link] = link->id;
  }
  remember_host(from.peer().address());
  from.send(encode_preface());
  from.send(encode_welcome(process_));
  if (!fresh) {
    from.send(encode(Arrivals{link->in[0].arrivals(), link->in[1].arrivals()}));
    from.held = true;
  }
  from.index = hello.connection;
  if (link->slots.size() <= from.index) link->slots.resize(std::size_t{from.index} + 1);
  if (const ConnectionPtr old = link->slots[from.index].connection; old != nullptr) {
    old->close();  // the dialler knows better that it is dead
    detach(*link, *old);
  }
  if (fresh) {
    tell_proved(*link, from);
    handler_->on_accepted(link->id, link->peer);
  }
  attach(*link, connection);
  return {};
}

void TcpEngine::tell_proved(const TcpLink& link, const Connection& by) {
  if (const std::vector<std::string> names = by.proved_names(); !names.empty()) handler_->on_proved(link.id, names);
}

Status TcpEngine::on_welcome(Connection& from, const Id& process) {
  TcpLink* const link = find(from.link);
  if (!from.dialled() || link == nullptr || from.state() == Connection::State::kAttached) {
    return corrupt("a welcome out of turn");
  }
  if (link->state == TcpLink::State::kOpen && process != link->process) {
    end_link(*link, unavailable("another process answers at " + link->peer + " than before: it was restarted"));
    return {};
  }
  const bool opens = link->state != TcpLink::State::kOpen;
  const ConnectionPtr connection = link->slots[from.index].connection;
  link->process = process;
  if (opens) {
    link->state = TcpLink::State::kOpen;
    link->deadline = link->closing ? now() + std::chrono::seconds(5) : kNever;
    tell_proved(*link, from);
    handler_->on_connected(link->id);
  }
  attach(*link, connection);
  dial_missing(*link);
  return {};
}

void TcpEngine::on_refuse(Connection& from, const Refuse& refusal) {
  TcpLink* const link = find(from.link);
  if (!from.dialled() || link == nullptr || from.state() == Connection::State::kAttached) return;
  const std::string words = link->peer + " refuses: " + refusal.words;
  if (from.unproven() && link->state == TcpLink::State::kOpen) {
    from.fail(Fault::kNoAnswer, unavailable(words));
    return;
  }
  switch (refusal.why) {
    case Refusal::kUnknownLink: return end_link(*link, unavailable(words));
    case Refusal::kEnded: return end_link(*link, link->closing ? Status() : unavailable(words));
    case Refusal::kNotAllowed:
    case Refusal::kVersion: return end_link(*link, refused(words));
  }
}

void TcpEngine::attach(TcpLink& link, const ConnectionPtr& connection) {
  const TimePoint time = now();
  ++counters_.opened;
  connection->attached();
  connection->link = link.id;
  connection->deadline = time + options_.heartbeat;  // of the next ping
  connection->pinged = time;
  connection->send(encode_ping(stamp_of(time)));
  connection->last_heard = time;
  Slot& slot = link.slots[connection->index];
  slot.connection = connection;
  slot.redial_at = kNever;
  connection->attached_at = time;
  if (connection->index == 0) link.refused_ports = 0;
  if (connection->index != 0) link.silence.forget();  // of what others have on their way it knows nothing
  if (link.alone_since != kNever) {
    ++counters_.resumed;
    const auto away = std::chrono::duration_cast<std::chrono::seconds>(time - link.alone_since);
    link.alone_since = kNever;
    link.answered = false;
    const std::string again = link.cut_bytes == 0
                                  ? std::string()
                                  : "; some " + std::to_string(link.cut_bytes) + " bytes that were on their way over " +
                                        std::to_string(link.cut_connections) + " of them are sent again";
    log_info("tcp: the link to " + link.peer + " has a connection again after " + std::to_string(away.count()) + " s" +
             again);
  }
  link.cut_connections = 0;
  link.cut_bytes = 0;
  const std::string congestion = congestion_of(connection->handle());
  connection->rests = congestion == "bbr" && !connection->peer().address().is_loopback();
  if (congestion == "bbr" && options_.connections == 0) link.search.at_most(kMostWithBbr);
  if (!connection->peer().address().is_loopback() && !std::exchange(told_congestion_, true))
    tell_congestion(congestion);
  if (connection->index == 0) {  // what was under way on another may not have come
    link.allowance = 0;
    allot(time);
    if (link.wish != 0) connection->send(encode_want(link.wish));
  }
  if (link.bye_sent) connection->send(encode(Bye{{link.out[0].segments(), link.out[1].segments()}}));
  connection->flush();
  pump(link);
}

void TcpEngine::tell_congestion(const std::string& name) const {
  const std::string& wanted = options_.congestion;
  if (wanted.empty() || name == wanted) return log_debug("tcp: congestion control is " + name);
  const std::string words =
      "tcp: congestion control is " + name + ": " + wanted +
      " (COLLAB_CONGESTION) is not in /proc/sys/net/ipv4/tcp_allowed_congestion_control here; long lossy lines get "
      "more connections, and are slower than with bbr";
  wanted == "bbr" ? log_info(words) : log_warning(words);
}

void TcpEngine::detach(TcpLink& link, Connection& connection) {
  std::vector<std::uint64_t> tokens;
  std::uint64_t lost = 0;
  for (Outbox& out : link.out) {
    lost += out.lost(connection.name);
    out.take_tokens(tokens);
  }
  if (lost > connection.never_sent()) {
    link.cut_bytes += lost - connection.never_sent();
    ++link.cut_connections;
  }
  for (Inbox& in : link.in) in.lost(connection.name);
  connection.link = LinkId();
  Slot& slot = link.slots[connection.index];
  if (slot.connection.get() == &connection) slot.connection = nullptr;
  deliver_tokens(link, tokens);
}

// ---- failing -------------------------------------------------------------------------------------

void TcpEngine::failed(const ConnectionPtr& from, Fault fault, const Status& why) {
  if (stopped_) return;
  TcpLink* const link = find(from->link);
  if (link == nullptr) {
    if (!from->dialled() && from->link == LinkId() && fault != Fault::kEndedByPeer) {
      ++counters_.refused;
      if (fault == Fault::kNotAllowed) {
        tell_turned_away(from->peer(), why.message());
      } else if (const auto line = dropped_.let(
                     now(), "tcp: a connection from " + to_text(from->peer()) + " was dropped: " + why.message())) {
        log_info(*line);
      }
    }
    if (from->state() == Connection::State::kDraining) from->deadline = now() + kDrainLimit;
    std::erase_if(loose_, [](const auto& entry) { return entry->state() == Connection::State::kClosed; });
    return;
  }
  if (link->state != TcpLink::State::kOpen) {
    dial_failed(*link, fault, why);
    return;
  }
  slot_failed(*link, from->index, fault, why);
}

void TcpEngine::dial_failed(TcpLink& link, Fault fault, const Status& why) {
  if (link.slots[0].connection != nullptr) link.slots[0].connection->close();
  link.slots[0].connection = nullptr;
  link.last_fault = why.message();
  const bool another = fault == Fault::kRefusedPort || fault == Fault::kNoAnswer;
  if (another && ++link.next_endpoint < link.endpoints.size()) {
    dial_slot(link, 0);
    return;
  }
  const std::string words = "cannot connect to " + link.peer + ": " + why.message();
  end_link(link, Status(fault == Fault::kNotAllowed ? StatusCode::kRefused
                        : fault == Fault::kBroken   ? StatusCode::kCorrupt
                                                    : StatusCode::kUnavailable,
                        words));
}

void TcpEngine::slot_failed(TcpLink& link, std::uint16_t index, Fault fault, const Status& why) {
  Slot& slot = link.slots[index];
  const bool was_alone = link.alone_since != kNever;
  // Who answers a redial and is not who was there before may be anybody: the link waits for the one it knows.
  const bool known = slot.connection == nullptr || slot.connection->attached_at != TimePoint() || !encrypts();
  if (slot.connection != nullptr) {
    const TimePoint begun = slot.connection->attached_at;
    const bool steady = begun != TimePoint() && now() - begun >= kSteady;
    // One that flaps is not redialled without a pause, but well before the listener takes us for dead.
    if (begun != TimePoint()) slot.back_off = steady ? Duration(0) : std::min(slot.back_off, kFlapBackOff);
    detach(link, *slot.connection);
  }
  if (known && (fault == Fault::kBroken || fault == Fault::kNotAllowed)) {
    end_with_words(link, Status(why.code(), "the link to " + link.peer + " broke: " + why.message()));
    return;
  }
  link.last_fault = why.message();
  if (!was_alone && link.alone()) {
    link.alone_since = now();
    // What was so stays so until it has been heard again: a connection it was still dialling when it closed the
    // others is no sign of life.
    link.ended_by_peer = fault == Fault::kEndedByPeer && (link.answered || link.ended_by_peer);
    log_debug("tcp: the link to " + link.peer + " lost its last connection (" + why.message() + ")");
  }
  if (link.bye_sent && link.bye_came) return;
  if (!link.dialled) {
    pump(link);
    return;
  }
  if (index == 0 && fault == Fault::kNoAnswer) link.refused_ports = 0;
  if (index == 0 && fault == Fault::kRefusedPort && link.alone() &&
      std::cmp_greater_equal(++link.refused_ports, 2 * link.endpoints.size())) {
    end_link(link, unavailable("nobody listens at " + link.peer + " any more: its process ended"));
    return;
  }
  if (index == 0 && was_alone) link.next_endpoint = (link.next_endpoint + 1) % link.endpoints.size();
  if (index == 0 && fault == Fault::kNoAnswer && was_alone) {
    // The name may lead elsewhere by now.
    const Result<HostPort> parts = parse_host_port(link.peer);
    if (parts.ok() && !resolve(*parts, true).ok()) look_up(link, *parts);
  }
  const double jitter = 0.75 + 0.5 * prng_.uniform();
  slot.redial_at = now() + std::chrono::duration_cast<Duration>(slot.back_off * jitter);
  const bool at_once = slot.back_off == Duration(0);
  slot.back_off = std::clamp<Duration>(2 * slot.back_off, kFirstBackOff, kLongestBackOff);
  if (at_once) dial_slot(link, index);
  if (!link.ended) pump(link);
}

}  // namespace collab::tcp
