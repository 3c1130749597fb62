#include "transport/tcp/engine/links.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {
namespace {

constexpr std::size_t kEndedRemembered = 1024;

}  // namespace

TcpLink& Links::make(LinkId id, const std::string& address) {
  const auto room = [id, mailbox = std::weak_ptr(all_.mailbox)] {
    if (const auto open = mailbox.lock()) open->post({.kind = Command::Kind::kRoom, .link = id});
  };
  const TcpContext& context = all_.context;
  auto& link = links_[id] = std::make_unique<TcpLink>(
      id, all_.number.first(address), context.pool, std::make_shared<UnfinishedShare>(context.unfinished),
      std::make_shared<Unhandled>(context.unhandled, room), context.control);
  all_.upkeep.keep_ticking();
  return *link;
}

TcpLink* Links::find(LinkId id) {
  const auto found = links_.find(id);
  return found != links_.end() ? found->second.get() : nullptr;
}

TcpLink* Links::find(const Id& name) {
  const auto found = by_name_.find(name);
  return found != by_name_.end() ? find(found->second) : nullptr;
}

std::vector<LinkId> Links::ids() const {
  std::vector<LinkId> ids;
  for (const auto& [id, link] : links_) ids.push_back(id);
  return ids;
}

void Links::end_with_reason(TcpLink& link, const Status& why) {
  if (Connection* const control = link.connections.control(); control != nullptr && !link.ended()) {
    control->send(encode_abort(why.message()));
  }
  end(link, why);
}

void Links::end(TcpLink& link, const Status& why) {
  if (link.ended()) return;
  link.end();
  if (why.ok()) {
    ended_well_.push_back(link.name());
    if (ended_well_.size() > kEndedRemembered) ended_well_.pop_front();
  }
  for (std::size_t i = 0; i < link.connections.size(); ++i) {
    const ConnectionPtr connection = link.connections.take(i);
    if (connection == nullptr) continue;
    connection->slot.leave_link();
    if (connection->state() == Connection::State::kAttached) {
      all_.pending.adopt_draining(connection);
    } else if (connection->state() != Connection::State::kDraining) {
      connection->close();
    }
  }
  by_name_.erase(link.name());
  const LinkId id = link.id();
  const auto at = links_.find(id);
  if (graveyard_.empty()) boost::asio::post(all_.context.io, [this] { graveyard_.clear(); });
  graveyard_.push_back(std::move(at->second));
  links_.erase(at);
  all_.context.handler->on_closed(id, why);
}

std::size_t Links::data_cost() const {
  std::size_t bytes = 0;
  for (const auto& [id, link] : links_) bytes += link->session.data_cost();
  for (const auto& link : graveyard_) bytes += link->session.data_cost();
  return bytes;
}

bool Links::ended_well(const Id& name) const {
  return std::find(ended_well_.begin(), ended_well_.end(), name) != ended_well_.end();
}

void Links::stop() {
  for (const auto& [id, link] : links_) {
    if (Connection* const control = link->connections.control(); control != nullptr) {
      control->send(encode_abort("its process ended or left the swarm"));
      control->flush();
    }
    for (std::size_t i = 0; i < link->connections.size(); ++i) {
      if (link->connections.at(i) != nullptr) link->connections.at(i)->close();
    }
  }
  links_.clear();
}

}  // namespace collab::tcp
