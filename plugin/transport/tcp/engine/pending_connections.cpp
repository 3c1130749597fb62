#include "transport/tcp/engine/pending_connections.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <ranges>
#include <utility>

#include "core/base/log.h"
#include "core/base/open_files.h"
#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {
namespace {

namespace asio = boost::asio;
constexpr std::size_t kMaxStrangers = 256;  // connections that have not sent a hello
constexpr std::size_t kLeastStrangers = 32;
constexpr std::size_t kMaxHosts = 4096;  // remembered hosts
constexpr std::size_t kLeastDataConnections = 128;

// A process may usually open 1,024 files, and needs some itself, above all for its record. An eighth is for strangers,
// an eighth for links without a handled message, and a quarter for data connections of accepted links. Another eighth
// is for admitted links (runtime/admitted_links.h). Data connections dialled here have their own quarter; usually
// nobody dials such a process. If both quarters are full, an eighth is left.
std::size_t most_strangers() { return std::clamp<std::size_t>(most_open_files() / 8, kLeastStrangers, kMaxStrangers); }
std::size_t most_data_connections() { return std::max(kLeastDataConnections, most_open_files() / 4); }

}  // namespace

// ---- ports -----------------------------------------------------------------------------------------

Result<std::string> PendingConnections::listen(const std::string& address) {
  if (all_.context.in_child())
    return unavailable("cannot listen on " + address + ": this process is the child of a fork [tcp.forked]");
  const Result<HostPort> parts = parse_host_port(address);
  if (!parts.ok()) return parts.status();
  const Result<Endpoints> endpoints = resolve(*parts, false);
  if (!endpoints.ok())
    return unavailable("cannot listen on " + address + ": " + endpoints.status().message() + " [tcp.listen-host]");
  const Endpoint& local = endpoints->front();
  const Acceptor acceptor(new asio::ip::tcp::acceptor(all_.context.io), [](auto* of_us) {
    close_own(*of_us);
    delete of_us;
  });
  boost::system::error_code error;
  acceptor->open(local.protocol(), error);
  if (!error) make_own(acceptor->native_handle());
  if (!error) acceptor->set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor->bind(local, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return unavailable("cannot listen on " + address +
                       ": the port is in use; end what holds it, or choose another by COLLAB_LISTEN [tcp.port-in-use]");
  }
  if (error) return unavailable("cannot listen on " + address + ": " + error.message() + " [tcp.listen]");
  const std::uint16_t port = acceptor->local_endpoint(error).port();
  asio::post(all_.context.io, [this, acceptor] {
    acceptors_.push_back(acceptor);
    accept_on(acceptor);
  });
  const std::string& host =
      all_.context.options.advertise_host.empty() ? parts->host : all_.context.options.advertise_host;
  return to_string(HostPort{host, port});
}

void PendingConnections::accept_on(const Acceptor& acceptor) {
  acceptor->async_accept([this, acceptor](const boost::system::error_code& error, asio::ip::tcp::socket socket) {
    if (all_.context.stopped || error == asio::error::operation_aborted) return;
    if (!error) {
      boost::system::error_code gone;
      const Endpoint from = socket.remote_endpoint(gone);
      if (!gone) accepted(std::move(socket), from);
      accept_on(acceptor);
      return;
    }
    // Most likely no file descriptors are left: open connections go on, new ones wait.
    if (const auto line = not_accepted_.allow(
            all_.now(), "tcp: a connection could not be accepted: " + error.message() + " [tcp.accept-failed]")) {
      log_warning(*line);
    }
    auto pause = std::make_shared<asio::steady_timer>(all_.context.io, std::chrono::milliseconds(200));
    pause->async_wait([this, acceptor, pause](const boost::system::error_code& ended) {
      if (!ended && !all_.context.stopped) accept_on(acceptor);
    });
  });
}

bool PendingConnections::allowed(const Endpoint& peer) const {
  return all_.encrypts() || all_.context.options.insecure || is_near(peer.address());
}

void PendingConnections::accepted(asio::ip::tcp::socket socket, const Endpoint& from) {
  make_room();
  const ConnectionPtr connection = all_.make_connection();
  connection->accept(std::move(socket), from);
  connection->wait_until(all_.now() + kGreetLimit);
  connections_.push_back(connection);
  all_.upkeep.keep_ticking();
  if (allowed(from)) return;
  const std::string reason =
      "without a token only this machine and private addresses are accepted: set the swarm's COLLAB_TOKEN on all sites "
      "(made once by `collab token`), or COLLAB_INSECURE=1 to speak in the clear";
  log_refusal(from, reason);
  refuse_connection(*connection, Refusal::kNotAllowed, reason);
}

// ---- room ------------------------------------------------------------------------------------------

// Connections without a TLS hello are evicted first. With a token, only its holders can send a fitting one. So however
// many strangers connect, a real peer keeps its place through the handshake, however far away it is.
void PendingConnections::make_room() {
  const auto is_silent = [](const ConnectionPtr& connection) { return !connection->security().hello_received(); };
  const std::size_t most = most_strangers();
  while (std::cmp_greater_equal(std::ranges::count_if(connections_, is_silent), most / 2)) evict(is_silent);
  while (connections_.size() >= most) evict([](const ConnectionPtr&) { return true; });
}

// Peers may open links faster than this process handles them. A peer whose link is being closed may receive its queue
// as slowly as it likes. So two kinds of links are limited: those without a handled message, and those being closed.
// The network with the most of them loses one: one that is being closed, otherwise the oldest.
void PendingConnections::make_room_for_link(bool dialled) {
  std::map<asio::ip::address, std::vector<TcpLink*>> waiting;  // the oldest first
  std::size_t count = 0;
  for (const auto& [id, link] : all_.links.all()) {
    if (!link->session.closing() && (link->dialled() || link->session.any_handled())) continue;
    const Connection* const control = link->connections.control();
    waiting[control == nullptr ? asio::ip::address() : network_of(control->peer().address())].push_back(link.get());
    ++count;
  }
  if (count < most_strangers()) return;
  const auto most_of = std::ranges::max_element(waiting, {}, [](const auto& entry) { return entry.second.size(); });
  const std::vector<TcpLink*>& theirs = most_of->second;
  const auto closing = std::ranges::find_if(theirs, [](const TcpLink* link) { return link->session.closing(); });
  if (dialled && closing == theirs.end()) return;
  all_.links.end(closing != theirs.end() ? **closing : *theirs.front(),
                 unavailable("too many links wait here for their first message to be handled, or to be closed "
                             "[tcp.links-waiting]"));
}

// Closes the oldest connection of the network with the most connections, so that one scanner cannot push others out.
// Hosts that had a link here come last.
void PendingConnections::evict(const Among& among) {
  std::map<asio::ip::address, std::size_t> by_network;
  for (const ConnectionPtr& connection : connections_) {
    if (among(connection)) ++by_network[network_of(connection->peer().address())];
  }
  auto chosen = connections_.end();
  std::pair<bool, std::size_t> worst;
  for (auto at = connections_.begin(); at != connections_.end(); ++at) {
    if (!among(*at)) continue;
    const asio::ip::address address = (*at)->peer().address();
    const std::pair<bool, std::size_t> rank(!hosts_.contains(address), by_network.at(network_of(address)));
    if (chosen != connections_.end() && rank <= worst) continue;  // the oldest comes first
    worst = rank;
    chosen = at;
  }
  (*chosen)->close();
  connections_.erase(chosen);
  ++all_.context.counters.refused;
}

void PendingConnections::remember_host(const boost::asio::ip::address& host) {
  if (!hosts_.insert(host).second) return;
  hosts_in_order_.push_back(host);
  if (hosts_in_order_.size() <= kMaxHosts) return;
  hosts_.erase(hosts_in_order_.front());
  hosts_in_order_.pop_front();
}

void PendingConnections::refuse_connection(Connection& connection, Refusal why, const std::string& reason) {
  ++all_.context.counters.refused;
  Bytes answer = encode_preface();
  const Bytes refusal = encode(Refuse{why, reason});
  answer.insert(answer.end(), refusal.begin(), refusal.end());
  connection.send(std::move(answer));
  connection.wait_until(all_.now() + kDrainLimit);
  connection.drain();
}

void PendingConnections::log_refusal(const Endpoint& from, const std::string& reason) {
  const auto line = refusal_log_limit_.allow(
      all_.now(), "tcp: a connection from " + to_text(from) + " was turned away: " + reason + " [tcp.turned-away]");
  if (line) log_warning(*line);
}

bool PendingConnections::has_room_for_data() const {
  std::size_t count = 0;
  for (const auto& [id, link] : all_.links.all()) count += link->dialled() ? 0 : link->connections.attached_data();
  return count < most_data_connections();
}

// The peer's wish also decides how many connections a link dials. Each link may have one. Above half of the room, no
// link gets more than its share.
bool PendingConnections::has_room_to_dial_data(const TcpLink& link) const {
  const std::size_t own = link.connections.data();
  if (own == 0) return true;
  std::size_t count = 0, links = 0;
  for (const auto& [id, each] : all_.links.all()) {
    if (!each->dialled()) continue;
    ++links;
    count += each->connections.data();
  }
  const std::size_t most = most_data_connections();
  return count < most && (count < most / 2 || own < most / links);
}

ConnectionPtr PendingConnections::find(const Connection& connection) const {
  const auto at = std::ranges::find_if(connections_, [&](const auto& entry) { return entry.get() == &connection; });
  return at != connections_.end() ? *at : nullptr;
}

void PendingConnections::admit(const Connection& connection) {
  std::erase_if(connections_, [&](const auto& entry) { return entry.get() == &connection; });
}

void PendingConnections::adopt_draining(const ConnectionPtr& connection) {
  connection->wait_until(all_.now() + kDrainLimit);
  make_room();
  connections_.push_back(connection);
  connection->drain();
}

// ---- ends ------------------------------------------------------------------------------------------

void PendingConnections::failed(const ConnectionPtr& from, Fault fault, const Status& why) {
  if (!from->dialled() && from->slot.link() == LinkId() && fault != Fault::kEndedByPeer) {
    ++all_.context.counters.refused;
    if (fault == Fault::kNotAllowed) {
      log_refusal(from->peer(), why.message());
    } else if (const auto line = dropped_.allow(
                   all_.now(), "tcp: a connection from " + to_text(from->peer()) + " was dropped: " + why.message())) {
      log_info(*line);
    }
  }
  if (from->state() == Connection::State::kDraining) from->wait_until(all_.now() + kDrainLimit);
  drop_closed();
}

void PendingConnections::tick(TimePoint now) {
  const std::vector<ConnectionPtr> loose(connections_.begin(), connections_.end());
  for (const ConnectionPtr& connection : loose) {
    if (connection->deadline() > now) continue;
    if (connection->state() == Connection::State::kDraining) {
      connection->close();
    } else {
      connection->fail(Fault::kNoAnswer, timed_out("it sent no handshake in time"));
    }
  }
  drop_closed();
}

void PendingConnections::drop_closed() {
  std::erase_if(connections_, [](const ConnectionPtr& entry) { return entry->state() == Connection::State::kClosed; });
}

void PendingConnections::stop() {
  for (const ConnectionPtr& connection : connections_) connection->close();
  connections_.clear();
  for (const Acceptor& acceptor : acceptors_) close_own(*acceptor);
}

}  // namespace collab::tcp
