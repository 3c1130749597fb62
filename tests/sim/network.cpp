#include "tests/sim/network.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace collab::sim {

void Network::at(TimePoint when, std::function<void()> what) {
  queue_.push({std::max(when, now_), number_++, std::move(what)});
}

bool Network::run_one() {
  if (queue_.empty()) return false;
  const Happening next = queue_.top();
  queue_.pop();
  now_ = next.when;
  next.what();
  return true;
}

void Network::wake(NodeId node, TimePoint when) {
  Host& host = hosts_[node];
  when = std::max(when, now_);
  if (when == kNever || host.wake_at <= when) return;
  host.wake_at = when;
  at(when, [this, node, when] {
    if (hosts_[node].wake_at != when) return;  // an earlier one came in between
    hosts_[node].wake_at = kNever;
    deliver(node, [](Node& n) { n.on_timer(); });
  });
}

NodeId Network::add(Node* node, std::string address) {
  Host host;
  host.node = node;
  host.address = std::move(address);
  hosts_.push_back(std::move(host));
  return static_cast<NodeId>(hosts_.size() - 1);
}

void Network::kill(NodeId node, bool noticed) {
  hosts_[node].alive = false;
  hosts_[node].held.clear();
  std::vector<LinkId> its;
  for (const auto& [id, link] : links_) {
    if (link.ends[0] == node || link.ends[1] == node) its.push_back(id);
  }
  for (const LinkId id : its) {
    if (noticed) {
      break_link(id, "connection reset by peer");
    }
  }
}

Duration Network::draw_delay() {
  const double extra = -std::log(1.0 - prng_.uniform()) * static_cast<double>(options_.delay_mean.count());
  return options_.delay_min + Duration(static_cast<Duration::rep>(extra));
}

TimePoint Network::passable(TimePoint when, NodeId from, NodeId to) const {
  const auto side = [this](NodeId node) { return node < side_.size() && side_[node]; };
  if (side(from) != side(to)) when = std::max(when, split_until_);
  return std::max({when, hosts_[from].isolated_until, hosts_[to].isolated_until, hosts_[from].muted_until});
}

// In the order of arrival, also across a pause.
void Network::deliver(NodeId to, std::function<void(Node&)> what) {
  Host& host = hosts_[to];
  if (!host.alive) return;
  if (now_ < host.paused_until || !host.held.empty()) {
    host.held.push_back(std::move(what));
    return;
  }
  what(*host.node);
}

void Network::resume(NodeId node) {
  if (now_ < hosts_[node].paused_until) return;  // paused again, for longer
  while (hosts_[node].alive && !hosts_[node].held.empty()) {
    const auto what = std::move(hosts_[node].held.front());
    hosts_[node].held.pop_front();
    what(*hosts_[node].node);
  }
}

void Network::arrive(NodeId to, LinkId link, TimePoint when, std::function<void(Node&)> what) {
  at(when, [this, to, link, what = std::move(what)] {
    deliver(to, [this, to, link, what](Node& node) {
      const auto found = links_.find(link);
      if (found != links_.end() && !found->second.hung_up[found->second.end_of(to)]) what(node);
    });
  });
}

bool Network::knows(const std::string& address) const {
  return std::any_of(hosts_.begin(), hosts_.end(), [&](const Host& host) { return host.address == address; });
}

void Network::dial(NodeId from, const std::string& address, std::uint64_t token) {
  const auto target = std::find_if(hosts_.rbegin(), hosts_.rend(), [&](const Host& h) { return h.address == address; });
  const TimePoint limit = now_ + options_.dial_limit;
  const auto fail = [&](TimePoint when, const std::string& why) {
    at(when, [this, from, token, why] {
      deliver(from, [token, why](Node& node) { node.on_dial_failed(token, unavailable(why)); });
    });
  };
  if (address.empty() || target == hosts_.rend() || !target->alive) {
    return fail(now_ + 2 * draw_delay(), "connection refused by " + address);
  }
  const auto to = static_cast<NodeId>(hosts_.rend() - target - 1);
  const TimePoint there = std::max(passable(now_ + 2 * draw_delay(), from, to), passable(now_, to, from));
  if (there >= limit) return fail(limit, "no answer from " + address);
  at(there, [this, from, to, token, address] {
    if (!hosts_[from].alive) return;
    if (!hosts_[to].alive) {
      return deliver(from, [=](Node& node) { node.on_dial_failed(token, unavailable("reset by " + address)); });
    }
    const LinkId id{next_link_++};
    Link link;
    link.ends = {from, to};
    links_[id] = link;
    deliver(from, [=](Node& node) { node.on_connected(id, token); });
  });
}

void Network::send(NodeId from, LinkId id, Frame frame, std::uint64_t token) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  Link& link = found->second;
  if (link.hung_up[link.end_of(from)]) return;
  const std::size_t end = 1 - link.end_of(from);
  const NodeId to = link.ends[end];
  const std::size_t bytes = frame.head.size() + (frame.payload ? frame.payload->size() * sizeof(float) : 0);
  if (frame.lane == Lane::kData && hosts_[from].line.up > 0 && hosts_[to].line.down > 0) {
    return send_over_lines(from, to, id, std::move(frame), token);
  }
  double rate = options_.bytes_per_second;
  for (const NodeId host : {from, to}) {
    if (now_ < hosts_[host].slow_until) rate /= hosts_[host].slow_factor;
  }
  TimePoint left = now_;
  if (frame.lane == Lane::kData) {  // control overtakes data
    const Duration takes(static_cast<Duration::rep>(1e6 * static_cast<double>(bytes) / rate));
    left = std::max(now_, link.line_free[end]) + takes;
    link.line_free[end] = left;
  }
  TimePoint& last = link.arrival[end][static_cast<std::size_t>(frame.lane)];
  last = std::max(last, passable(left + draw_delay(), from, to));
  arrive(to, id, last, [id, frame = std::move(frame)](Node& node) { node.on_frame(id, frame); });
  if (token != 0) {
    arrive(from, id, passable(left, from, from), [id, token](Node& node) { node.on_sent(id, token); });
  }
}

// Out over the one's line, in over the other's: each carries one thing after the other. It is known to be sent when it
// has arrived.
void Network::send_over_lines(NodeId from, NodeId to, LinkId id, Frame frame, std::uint64_t token) {
  const std::size_t bytes = frame.head.size() + (frame.payload ? frame.payload->size() * sizeof(float) : 0);
  const auto over = [this, bytes](TimePoint& free, double rate) {
    free = std::max(now_, free) + Duration(static_cast<Duration::rep>(1e6 * static_cast<double>(bytes) / rate));
    return free;
  };
  at(over(hosts_[from].up_free, hosts_[from].line.up), [this, from, to, id, token, over, frame = std::move(frame)] {
    const TimePoint in = over(hosts_[to].down_free, hosts_[to].line.down);
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    TimePoint& last = found->second.arrival[found->second.end_of(to)][static_cast<std::size_t>(frame.lane)];
    last = std::max(last, passable(in + draw_delay(), from, to));
    arrive(to, id, last, [id, frame](Node& node) { node.on_frame(id, frame); });
    if (token == 0) return;
    arrive(from, id, passable(last + draw_delay(), to, from), [id, token](Node& node) { node.on_sent(id, token); });
  });
}

// What was sent before is delivered, then both ends see the close.
void Network::close(NodeId from, LinkId id) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  Link& link = found->second;
  const std::size_t end = 1 - link.end_of(from);
  if (link.hung_up[1 - end]) return;
  link.hung_up[1 - end] = true;
  const NodeId to = link.ends[end];
  const TimePoint there =
      std::max({passable(now_ + draw_delay(), from, to), link.arrival[end][0], link.arrival[end][1]});
  at(now_, [this, id, from] { deliver(from, [id](Node& node) { node.on_closed(id, Status()); }); });
  at(there, [this, id, to, end] {
    const auto link_now = links_.find(id);
    if (link_now == links_.end()) return;
    const bool both = link_now->second.hung_up[end];
    links_.erase(link_now);
    if (!both) deliver(to, [id](Node& node) { node.on_closed(id, unavailable("closed by the peer")); });
  });
}

void Network::break_link(LinkId id, const std::string& why) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  const Link link = found->second;
  links_.erase(found);
  for (const NodeId end : link.ends) {
    if (link.hung_up[link.end_of(end)]) continue;
    at(now_ + draw_delay(),
       [this, end, id, why] { deliver(end, [id, why](Node& node) { node.on_closed(id, unavailable(why)); }); });
  }
}

void Network::cut_links(NodeId node, Prng& choice) {
  std::vector<LinkId> its;
  for (const auto& [id, link] : links_) {
    if (link.ends[0] == node || link.ends[1] == node) its.push_back(id);
  }
  if (its.empty()) return;
  if (choice.chance(0.3)) {
    for (const LinkId id : its) break_link(id, "link cut");
  } else {
    break_link(its[choice.below(its.size())], "link cut");
  }
}

void Network::isolate(NodeId node, TimePoint until) {
  hosts_[node].isolated_until = std::max(hosts_[node].isolated_until, until);
}

void Network::mute(NodeId node, TimePoint until) {
  hosts_[node].muted_until = std::max(hosts_[node].muted_until, until);
}

void Network::split(const std::vector<bool>& side, TimePoint until) {
  side_ = side;
  split_until_ = until;
}

void Network::pause(NodeId node, TimePoint until) {
  hosts_[node].paused_until = std::max(hosts_[node].paused_until, until);
  at(hosts_[node].paused_until, [this, node] { resume(node); });
}

void Network::slow(NodeId node, double factor, TimePoint until) {
  hosts_[node].slow_factor = factor;
  hosts_[node].slow_until = until;
}

}  // namespace collab::sim
