#include "transport/ucx/engine/ucx_acceptor.h"

#include <utility>

#include "core/base/log.h"
#include "transport/ucx/engine/ucx_parts.h"

namespace collab {
namespace {

constexpr Duration kHelloLimit = std::chrono::seconds(10);
constexpr std::size_t kMaxStrangers = 1024;  // accepted connections without a hello

}  // namespace

Result<std::string> UcxAcceptor::listen(const std::string& address) {
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
    static_cast<UcxAcceptor*>(self)->requests_.push_back(request);
  };
  ucp_listener_h listener = nullptr;
  ucs_status_t status = all_.api.listener_create(all_.workers.listening(), &params, &listener);
  if (status == UCS_ERR_BUSY) {
    return unavailable("cannot listen on " + address +
                       ": the port is in use; end what holds it, or choose another by COLLAB_LISTEN [ucx.port-in-use]");
  }
  if (status != UCS_OK)
    return unavailable("cannot listen on " + address + ": " + all_.reason(status) + " [ucx.listen]");
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (status = all_.api.listener_query(listener, &attributes); status != UCS_OK) {
    all_.api.listener_destroy(listener);
    return internal_error("UCX does not say where it listens: " + all_.reason(status) + " [ucx.no-listen-address]");
  }
  listeners_.push_back(listener);
  const std::string& host = all_.options.advertise_host.empty() ? parts->host : all_.options.advertise_host;
  return to_string(HostPort{host, host_port_of(attributes.sockaddr).port});
}

void UcxAcceptor::stop() {
  for (auto* listener : listeners_) all_.api.listener_destroy(listener);
  requests_.clear();
}

bool UcxAcceptor::accept_requests() {
  const auto requests = std::exchange(requests_, {});
  for (auto* request : requests) accept(request);
  return !requests.empty();
}

Result<UcxWorkerPtr> UcxAcceptor::worker_for(std::uint64_t client_id) {
  if (auto known = all_.endpoints.accepted_worker(client_id); known != nullptr) return known;
  return all_.workers.add(client_id);
}

void UcxAcceptor::accept(ucp_conn_request_h request) {
  ucp_conn_request_attr_t attributes{};
  attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR | UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
  const ucs_status_t queried = all_.api.conn_request_query(request, &attributes);
  const std::size_t strangers = all_.endpoints.strangers();
  std::string peer = queried == UCS_OK ? to_string(host_port_of(attributes.client_address)) : "an unknown address";
  const auto tell = [this](const std::string& what) {
    if (const auto line = refusal_log_limit_.allow(all_.now(), "ucx: a connection " + what)) log_warning(*line);
  };
  if (!all_.options.insecure && (queried != UCS_OK || !is_near(attributes.client_address))) {
    const std::string from = queried == UCS_OK ? host_port_of(attributes.client_address).host : peer;
    tell("was turned away: " + from + kUcxNotNear + " [ucx.turned-away]");
    (void)all_.api.listener_reject(listeners_.front(), request);
    return;
  }
  if (strangers >= kMaxStrangers) {
    tell("from " + peer + " was refused: " + std::to_string(strangers) +
         " others have not said yet what they belong to [ucx.strangers]");
    (void)all_.api.listener_reject(listeners_.front(), request);
    return;
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  const auto worker = worker_for(queried == UCS_OK ? attributes.client_id : 0);
  if (!worker.ok()) {
    tell("from " + peer + " was refused: " + worker.status().message() + " [ucx.no-worker]");
    (void)all_.api.listener_reject(listeners_.front(), request);
    return;
  }
  auto connection = all_.endpoints.open(*worker, params, peer);
  if (!connection.ok()) {
    return tell("from " + peer + " failed: " + connection.status().message() + "; this side has UCX " +
                all_.api.version + ", and the other may have another [ucx.accept-failed]");
  }
  (*connection)->wait_until(all_.now() + kHelloLimit);
}

void UcxAcceptor::greeted(const UcxConnectionPtr& connection, const Preamble& hello) {
  if (!connection->stranger() || hello.connections == 0 || hello.connection >= hello.connections) {
    all_.endpoints.note_failure(connection, corrupt("a greeting that cannot be read [ucx.bad-greeting]"));
    return;
  }
  const UcxLink::Token token{hello.first, hello.second};
  const auto known = half_open_.find(token);
  if (known == half_open_.end()) {
    const LinkId id = all_.links.draw_id();
    half_open_.emplace(token, id);
    UcxLink& fresh = all_.links.add(id, false, connection->peer(), token, all_.now() + kHelloLimit);
    fresh.connect();
    fresh.expect(hello.connections);
  }
  UcxLink& link = *all_.links.find(half_open_.at(token));
  if (link.connections().size() != hello.connections || link.connections()[hello.connection] != nullptr) {
    all_.endpoints.note_failure(connection, corrupt("a greeting that contradicts an earlier one [ucx.other-greeting]"));
    return;
  }
  connection->belong_to(link.id());
  link.put(hello.connection, connection);
  if (!link.complete()) return;
  half_open_.erase(token);
  Preamble welcome;
  welcome.kind = Preamble::Kind::kWelcome;
  all_.sender.send(link.control(), welcome);
  all_.links.opened(link);
}

}  // namespace collab
