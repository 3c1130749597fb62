// How links of the ucx transport begin and end.
#include <algorithm>

#include "core/base/log.h"
#include "core/base/random.h"
#include "transport/ucx/ucx_engine.h"

namespace collab {
namespace {

constexpr Duration kHelloLimit = std::chrono::seconds(10);
constexpr std::size_t kMaxStrangers = 1024;  // accepted connections that have not said what they belong to

constexpr const char* kNotNear =
    " is neither this machine nor a private address, and links over UCX are not encrypted: set the swarm's "
    "COLLAB_TOKEN "
    "at all sites (made once by `collab token`) and leave COLLAB_TRANSPORT unset, or set COLLAB_INSECURE=1 to send the "
    "model in the clear";

std::array<std::uint64_t, 2> draw_token() { return {random_bits(), random_bits()}; }

}  // namespace

UcxLink* UcxEngine::find(LinkId id) {
  const auto found = links_.find(id);
  return found != links_.end() ? &found->second : nullptr;
}

Result<std::string> UcxEngine::listen_here(const std::string& address) {
  const auto parts = parse_host_port(address);
  if (!parts.ok()) return parts.status();
  const auto addresses = resolve_name(*parts, true);
  if (!addresses.ok())
    return unavailable("cannot listen on " + address + ": " + addresses.status().message() + " [ucx.listen-host]");
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = addresses->front().get();
  params.sockaddr.addrlen = addresses->front().length;
  params.conn_handler.arg = this;
  params.conn_handler.cb = [](ucp_conn_request_h request, void* self) {
    static_cast<UcxEngine*>(self)->requests_.push_back(request);
  };
  ucp_listener_h listener = nullptr;
  ucs_status_t status = api_.listener_create(workers_.front()->handle, &params, &listener);
  if (status == UCS_ERR_BUSY) {
    return unavailable("cannot listen on " + address +
                       ": the port is in use; choose another, or port 0 [ucx.port-in-use]");
  }
  if (status != UCS_OK) return unavailable("cannot listen on " + address + ": " + reason(status) + " [ucx.listen]");
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (status = api_.listener_query(listener, &attributes); status != UCS_OK) {
    api_.listener_destroy(listener);
    return internal_error("UCX does not say where it listens: " + reason(status) + " [ucx.no-listen-address]");
  }
  listeners_.push_back(listener);
  const std::string& host = options_.advertise_host.empty() ? parts->host : options_.advertise_host;
  return to_string(HostPort{host, host_port_of(attributes.sockaddr).port});
}

void UcxEngine::dial(LinkId id, const std::string& address, TimePoint deadline) {
  UcxLink& link = links_[id];
  link.id = id;
  link.dialled = true;
  link.peer = address;
  link.deadline = deadline;
  link.token = draw_token();
  const auto parts = parse_host_port(link.peer);
  if (!parts.ok()) {
    end_link(link, parts.status());
    return;
  }
  if (auto numeric = resolve_numeric(*parts); numeric.ok()) {
    resolved(id, std::move(numeric));
    return;
  }
  resolve_in_background(*parts, [this, id, mailbox = std::weak_ptr(mailbox_)](Result<SocketAddresses> addresses) {
    // A mailbox that is alive and open has an engine; a command in it runs only there.
    if (const auto open = mailbox.lock(); open != nullptr) {
      open->post([this, id, addresses = std::move(addresses)] { resolved(id, addresses); });
    }
  });
}

void UcxEngine::resolved(LinkId id, Result<SocketAddresses> addresses) {
  UcxLink* link = find(id);
  if (link == nullptr) return;
  if (!addresses.ok()) {
    end_link(*link,
             unavailable("cannot connect to " + link->peer + ": " + addresses.status().message() + " [ucx.dial-host]"));
    return;
  }
  link->state = UcxLink::State::kConnecting;
  link->addresses = std::move(*addresses);
  dial_next_address(*link);
}

void UcxEngine::dial_next_address(UcxLink& link) {
  const SocketAddress& address = link.addresses[link.next_address++];
  if (!options_.insecure && !is_near(address.storage)) {
    end_link(link, refused("cannot connect to " + link.peer + ": " + host_port_of(address.storage).host + kNotNear +
                           " [ucx.in-the-clear]"));
    return;
  }
  if (link.worker == nullptr) {
    auto worker = open_worker(link.token[0]);
    if (!worker.ok()) {
      end_link(link, worker.status());
      return;
    }
    workers_.push_back(*worker);
    link.worker = *worker;
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;
  params.sockaddr.addr = address.get();
  params.sockaddr.addrlen = address.length;
  Preamble hello;
  hello.kind = Preamble::Kind::kHello;
  hello.connections = static_cast<std::uint8_t>(options_.connections);
  hello.first = link.token[0];
  hello.second = link.token[1];
  for (std::uint32_t i = 0; i < options_.connections; ++i) {
    auto connection = open_connection(link.worker, params, link.peer);
    if (!connection.ok()) {
      fail_dial(link, connection.status());
      return;
    }
    (*connection)->link = link.id;
    link.connections.push_back(*connection);
    hello.connection = static_cast<std::uint8_t>(i);
    send_preamble(*connection, hello);
  }
}

// The worker of the accepted connections whose dialler gave this id.
Result<UcxWorkerPtr> UcxEngine::worker_for(std::uint64_t client_id) {
  for (const auto& [endpoint, connection] : connections_) {
    const bool accepted = connection->link == LinkId() || !find(connection->link)->dialled;
    if (accepted && connection->worker->client_id == client_id) return connection->worker;
  }
  auto worker = open_worker(client_id);
  if (worker.ok()) workers_.push_back(*worker);
  return worker;
}

Result<UcxConnectionPtr> UcxEngine::open_connection(const UcxWorkerPtr& worker, ucp_ep_params_t params,
                                                    std::string peer) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = this;
  params.err_handler.cb = [](void* self, ucp_ep_h endpoint, ucs_status_t status) {
    auto& engine = *static_cast<UcxEngine*>(self);
    const auto found = engine.connections_.find(endpoint);
    if (found == engine.connections_.end()) return;
    engine.failures_.emplace_back(found->second, unavailable(engine.reason(status)));
  };
  auto connection = std::make_shared<UcxConnection>();
  connection->peer = std::move(peer);
  connection->worker = worker;
  const ucs_status_t status = api_.ep_create(worker->handle, &params, &connection->endpoint);
  if (status != UCS_OK) return unavailable(reason(status));
  connections_.emplace(connection->endpoint, connection);
  return connection;
}

void UcxEngine::accept(ucp_conn_request_h request) {
  ucp_conn_request_attr_t attributes{};
  attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR | UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
  const ucs_status_t queried = api_.conn_request_query(request, &attributes);
  const auto strangers = std::count_if(connections_.begin(), connections_.end(),
                                       [](const auto& entry) { return entry.second->link == LinkId(); });
  std::string peer = queried == UCS_OK ? to_string(host_port_of(attributes.client_address)) : "an unknown address";
  const auto tell = [this](const std::string& what) {
    if (const auto line = turned_away_.allow(now(), "ucx: a connection " + what)) log_warning(*line);
  };
  if (!options_.insecure && (queried != UCS_OK || !is_near(attributes.client_address))) {
    const std::string from = queried == UCS_OK ? host_port_of(attributes.client_address).host : peer;
    tell("was turned away: " + from + kNotNear + " [ucx.turned-away]");
    (void)api_.listener_reject(listeners_.front(), request);
    return;
  }
  if (static_cast<std::size_t>(strangers) >= kMaxStrangers) {
    tell("from " + peer + " was refused: " + std::to_string(strangers) +
         " others have not said yet what they belong to [ucx.strangers]");
    (void)api_.listener_reject(listeners_.front(), request);
    return;
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  const auto worker = worker_for(queried == UCS_OK ? attributes.client_id : 0);
  if (!worker.ok()) {
    tell("from " + peer + " was refused: " + worker.status().message() + " [ucx.no-worker]");
    (void)api_.listener_reject(listeners_.front(), request);
    return;
  }
  auto connection = open_connection(*worker, params, peer);
  if (!connection.ok()) {
    return tell("from " + peer + " failed: " + connection.status().message() + "; this side has UCX " + api_.version +
                ", and the other may have another [ucx.accept-failed]");
  }
  (*connection)->deadline = now() + kHelloLimit;
}

// A hello came on an accepted connection: it joins its link, which is open when it was the last.
void UcxEngine::greeted(const UcxConnectionPtr& connection, const Preamble& hello) {
  if (connection->link != LinkId() || hello.connections == 0 || hello.connection >= hello.connections) {
    failures_.emplace_back(connection, corrupt("a greeting that cannot be read [ucx.bad-greeting]"));
    return;
  }
  const Token token{hello.first, hello.second};
  const auto known = half_open_.find(token);
  if (known == half_open_.end()) {
    const LinkId id(next_link_.fetch_add(1));
    half_open_.emplace(token, id);
    UcxLink& fresh = links_[id];
    fresh.id = id;
    fresh.state = UcxLink::State::kConnecting;
    fresh.token = token;
    fresh.peer = connection->peer;
    fresh.connections.resize(hello.connections);
    fresh.deadline = now() + kHelloLimit;
  }
  UcxLink& link = *find(half_open_.at(token));
  if (link.connections.size() != hello.connections || link.connections[hello.connection] != nullptr) {
    failures_.emplace_back(connection, corrupt("a greeting that contradicts an earlier one [ucx.other-greeting]"));
    return;
  }
  connection->link = link.id;
  connection->deadline = kNever;
  link.connections[hello.connection] = connection;
  if (std::count(link.connections.begin(), link.connections.end(), nullptr) != 0) return;
  half_open_.erase(token);
  Preamble welcome;
  welcome.kind = Preamble::Kind::kWelcome;
  send_preamble(link.connections.front(), welcome);
  opened(link);
}

void UcxEngine::opened(UcxLink& link) {
  link.state = UcxLink::State::kOpen;
  link.deadline = kNever;
  Event event;
  event.kind = link.dialled ? Event::Kind::kConnected : Event::Kind::kAccepted;
  event.link = link.id;
  event.peer = link.peer;
  events_.push_back(std::move(event));
  to_pump_.push_back(link.id);
  if (link.closing) begin_close(link);
  take_messages(link, Lane::kControl);  // what came on one connection while another was still being made
  take_messages(link, Lane::kData);
}

void UcxEngine::begin_close(UcxLink& link) {
  link.closing = true;
  if (link.state != UcxLink::State::kOpen) return;  // what was queued goes out when it opens, if it does
  link.deadline = now() + kCloseLimit;
  to_pump_.push_back(link.id);
}

void UcxEngine::peer_closes(UcxLink& link, const Preamble& bye) {
  link.peer_said_bye = true;
  link.peer_sent = {bye.first, bye.second};
  for (auto& lane : link.lanes) lane.queue.clear();  // the peer takes nothing new
  begin_close(link);
}

// Each side ends the link once it has all the other sent, and the other has said the same.
void UcxEngine::finish_close(UcxLink& link) {
  if (link.has_everything() && !link.told_bye_taken) {
    link.told_bye_taken = true;
    Preamble taken;
    taken.kind = Preamble::Kind::kByeTaken;
    send_preamble(link.connections.front(), taken);
  }
  if (link.told_bye_taken && link.bye_taken) end_link(link, Status());
}

void UcxEngine::fail_connection(const UcxConnectionPtr& connection, Status why) {
  if (connection->endpoint == nullptr) return;  // dealt with before
  UcxLink* link = find(connection->link);
  if (link == nullptr) {
    log_debug("ucx: a connection with " + connection->peer + " ended: " + why.message());
    close_connection(connection);
  } else if (link->dialled && link->state == UcxLink::State::kConnecting) {
    fail_dial(*link, std::move(why));
  } else if (link->told_bye_taken) {
    end_link(*link, Status());  // the peer had everything and was quicker to end
  } else {
    end_link(*link, Status(why.code(), "the link to " + link->peer + " broke: " + why.message() + " [ucx.broke]"));
  }
}

void UcxEngine::fail_dial(UcxLink& link, Status why) {
  for (const auto& connection : std::exchange(link.connections, {})) close_connection(connection);
  if (link.next_address < link.addresses.size()) {
    dial_next_address(link);
    return;
  }
  end_link(link, unavailable("cannot connect to " + link.peer + ": " + why.message() +
                             "; does anything listen there, and does a firewall let it through? [ucx.unreachable]"));
}

void UcxEngine::end_link(UcxLink& link, Status why) {
  for (const auto& connection : link.connections) {
    if (connection != nullptr) close_connection(connection);
  }
  if (!link.dialled && link.state != UcxLink::State::kOpen) {
    half_open_.erase(link.token);  // it was never told to the handler
  } else {
    Event event;
    event.kind = Event::Kind::kClosed;
    event.link = link.id;
    event.why = std::move(why);
    events_.push_back(std::move(event));
  }
  links_.erase(link.id);
}

// Operations under way are cancelled. Nothing is lost by it: a link that ends well has nothing under way.
void UcxEngine::close_connection(const UcxConnectionPtr& connection) {
  if (connection->endpoint == nullptr) return;
  const ucp_ep_h endpoint = std::exchange(connection->endpoint, nullptr);
  connections_.erase(endpoint);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  auto worker = std::make_unique<UcxWorkerPtr>(connection->worker);  // lives until the close is done
  param.user_data = worker.get();
  param.cb.send = [](void* request, ucs_status_t, void* user_data) {
    const std::unique_ptr<UcxWorkerPtr> done(static_cast<UcxWorkerPtr*>(user_data));
    (*done)->api.request_free(request);
  };
  if (UCS_PTR_IS_PTR(api_.ep_close_nbx(endpoint, &param))) (void)worker.release();
}

}  // namespace collab
