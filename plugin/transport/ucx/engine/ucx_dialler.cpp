#include "transport/ucx/engine/ucx_dialler.h"

#include <memory>
#include <utility>

#include "core/base/random.h"
#include "transport/ucx/engine/ucx_parts.h"

namespace collab {

void UcxDialler::dial(LinkId id, const std::string& address, TimePoint deadline) {
  UcxLink& link = all_.links.add(id, true, address, {random_bits(), random_bits()}, deadline);
  const auto parts = parse_host_port(address);
  if (!parts.ok()) {
    all_.links.end(link, parts.status());
    return;
  }
  if (auto numeric = resolve_numeric(*parts); numeric.ok()) {
    resolved(id, std::move(numeric));
    return;
  }
  resolve_in_background(*parts, [this, id, mailbox = std::weak_ptr(all_.mailbox)](Result<SocketAddresses> addresses) {
    // If the mailbox is alive and open, so is the engine. A posted command runs only on the engine's thread.
    if (const auto open = mailbox.lock(); open != nullptr) {
      open->post([this, id, addresses = std::move(addresses)] { resolved(id, addresses); });
    }
  });
}

void UcxDialler::resolved(LinkId id, Result<SocketAddresses> addresses) {
  UcxLink* link = all_.links.find(id);
  if (link == nullptr) return;
  if (!addresses.ok()) {
    all_.links.end(*link, unavailable("cannot connect to " + link->peer() + ": " + addresses.status().message() +
                                      " [ucx.dial-host]"));
    return;
  }
  link->connect();
  link->dial.found(std::move(*addresses));
  dial_next_address(*link);
}

void UcxDialler::dial_next_address(UcxLink& link) {
  const SocketAddress& address = link.dial.next();
  if (!all_.options.insecure && !is_near(address.storage)) {
    all_.links.end(link, refused("cannot connect to " + link.peer() + ": " + host_port_of(address.storage).host +
                                 kUcxNotNear + " [ucx.in-the-clear]"));
    return;
  }
  if (link.dial.worker() == nullptr) {
    auto worker = all_.workers.add(link.token()[0]);
    if (!worker.ok()) {
      all_.links.end(link, worker.status());
      return;
    }
    link.dial.use(*worker);
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;
  params.sockaddr.addr = address.get();
  params.sockaddr.addrlen = address.length;
  Preamble hello;
  hello.kind = Preamble::Kind::kHello;
  hello.connections = static_cast<std::uint8_t>(all_.options.connections);
  hello.first = link.token()[0];
  hello.second = link.token()[1];
  for (std::uint32_t i = 0; i < all_.options.connections; ++i) {
    auto connection = all_.endpoints.open(link.dial.worker(), params, link.peer());
    if (!connection.ok()) {
      failed(link, connection.status());
      return;
    }
    (*connection)->belong_to(link.id());
    link.add(*connection);
    hello.connection = static_cast<std::uint8_t>(i);
    all_.sender.send(*connection, hello);
  }
}

void UcxDialler::failed(UcxLink& link, const Status& why) {
  for (const auto& connection : link.take_connections()) all_.endpoints.close(connection);
  if (link.dial.more()) {
    dial_next_address(link);
    return;
  }
  all_.links.end(link,
                 unavailable("cannot connect to " + link.peer() + ": " + why.message() +
                             "; does anything listen there, and does a firewall let it through? [ucx.unreachable]"));
}

}  // namespace collab
