#include "tests/sim/network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace collab::sim {
namespace {

// What was queued before a close is delivered, unless it takes longer.
constexpr Duration kCloseLimit{5'000'000};

std::size_t bytes_of(const TransportMessage& message) {
  return message.head.size() + (message.payload ? message.payload->bytes().size() : 0);
}

}  // namespace

// ---- time ------------------------------------------------------------------------------------------

void Network::at(TimePoint when, std::function<void()> what) {
  queue_.push_back({std::max(when, now_), number_++, std::move(what)});
  std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
}

bool Network::run_one() {
  if (queue_.empty()) return false;
  std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
  const ScheduledEvent next = std::move(queue_.back());
  queue_.pop_back();
  now_ = next.when;
  next.what();
  return true;
}

TimePoint Network::local_time(const Host& host) const {
  const auto passed = static_cast<double>((now_ - host.global).count());
  return host.local + Duration(static_cast<Duration::rep>(passed * host.clock_rate));
}

void Network::set_clock(Host& host, double rate, Duration by) {
  host.local = local_time(host) + by;
  host.global = now_;
  host.clock_rate = rate;
}

void Network::set_clock_rate(NodeId node, double rate) { set_clock(hosts_[node], rate, Duration{}); }

void Network::jump_clock(NodeId node, Duration by) {
  Host& host = hosts_[node];
  set_clock(host, host.clock_rate, by);
  wake(node, std::exchange(host.wake_at, kNever));
}

void Network::wake(NodeId node, TimePoint when) {
  Host& host = hosts_[node];
  if (when == kNever || host.wake_at <= when) return;
  host.wake_at = when;
  const double wait = std::ceil(static_cast<double>((when - local_time(host)).count()) / host.clock_rate);
  at(now_ + Duration(static_cast<Duration::rep>(wait)), [this, node, when] {
    if (hosts_[node].wake_at != when) return;  // an earlier one came in between
    hosts_[node].wake_at = kNever;
    deliver(node, [this, node] { hosts_[node].on_timer(); });
  });
}

// ---- nodes -----------------------------------------------------------------------------------------

NodeId Network::add() {
  hosts_.emplace_back();
  return static_cast<NodeId>(hosts_.size() - 1);
}

void Network::kill(NodeId node, bool noticed) {
  Host& host = hosts_[node];
  if (!std::exchange(host.alive, false)) return;
  host.silent = !noticed;
  host.held.clear();
  if (!noticed) return;
  for (const LinkId id : links_of(node)) break_link(id, "connection reset by peer");
}

std::vector<LinkId> Network::links_of(NodeId node) const {
  std::vector<LinkId> its;
  for (const auto& [id, link] : links_) {
    if (link.ends[0] == node || (link.made && link.ends[1] == node)) its.push_back(id);
  }
  return its;
}

Network::Link* Network::find(LinkId id) {
  const auto found = links_.find(id);
  return found == links_.end() ? nullptr : &found->second;
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
void Network::deliver(NodeId to, std::function<void()> what) {
  Host& host = hosts_[to];
  if (!host.alive) return;
  if (now_ < host.paused_until || !host.held.empty()) {
    host.held.push_back(std::move(what));
    return;
  }
  what();
}

void Network::tell(NodeId to, Call call) {
  deliver(to, [this, to, call = std::move(call)] { call(*hosts_[to].handler); });
}

void Network::resume(NodeId node) {
  if (now_ < hosts_[node].paused_until) return;  // paused again, for longer
  while (hosts_[node].alive && !hosts_[node].held.empty()) {
    const auto what = std::move(hosts_[node].held.front());
    hosts_[node].held.pop_front();
    what();
  }
}

// ---- links -----------------------------------------------------------------------------------------

Result<std::string> Network::listen(NodeId node, const std::string& address) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return invalid_argument("cannot listen on \"" + address + "\": expected host:port");
  }
  std::string bound = address;
  while (address.ends_with(":0") && (bound == address || listeners_.count(bound) != 0)) {
    bound = address.substr(0, colon) + ":" + std::to_string(next_port_++);
  }
  const auto taken = listeners_.find(bound);
  if (taken != listeners_.end() && hosts_[taken->second].alive) {
    return unavailable("cannot listen on " + bound + ": the port is in use; choose another, or port 0");
  }
  listeners_[bound] = node;
  return bound;
}

LinkId Network::connect(NodeId from, const std::string& address, Duration timeout) {
  const LinkId id{next_link_++};
  links_[id].ends = {from, from};
  const TimePoint limit = now_ + timeout;
  const auto fail = [&](TimePoint when, Status why) {
    at(when, [this, id, why = std::move(why)] {
      Link* link = find(id);
      if (link == nullptr) return;
      link->told[1] = true;
      tell_closed(id, 0, why);
    });
    return id;
  };
  const auto target = listeners_.find(address);
  const Status unanswered = timed_out("no connection to " + address + " within the time allowed");
  if (target == listeners_.end() || (!hosts_[target->second].alive && !hosts_[target->second].silent)) {
    return fail(now_ + 2 * draw_delay(), unavailable("cannot connect to " + address + ": nobody listens there"));
  }
  const NodeId to = target->second;
  const TimePoint there = std::max(passable(now_ + 2 * draw_delay(), from, to), passable(now_, to, from));
  if (there >= limit || hosts_[to].silent) return fail(limit, unanswered);
  at(there, [this, id, to, address] { made(id, to, address); });
  return id;
}

void Network::made(LinkId id, NodeId to, const std::string& address) {
  Link* link = find(id);
  if (link == nullptr) return;  // given up meanwhile
  const NodeId from = link->ends[0];
  if (!hosts_[from].alive || !hosts_[to].alive) {
    link->told[1] = true;
    return tell_closed(id, 0, unavailable("cannot connect to " + address + ": reset"));
  }
  link->made = true;
  link->ends[1] = to;
  tell(to, [id, from](TransportHandler& handler) { handler.on_accepted(id, "node " + std::to_string(from)); });
  tell(from, [id](TransportHandler& handler) { handler.on_connected(id); });
  link = find(id);
  if (link == nullptr) return;
  for (auto& [message, token] : std::exchange(link->waiting, {})) send(from, id, std::move(message), token);
}

void Network::send(NodeId from, LinkId id, TransportMessage message, std::uint64_t token) {
  Link* link = find(id);
  if (link == nullptr || link->hung_up[link->end_of(from)]) return;
  if (!link->made) {
    link->waiting.emplace_back(std::move(message), token);
    return;
  }
  if (message.payload) {  // after on_sent the sender may write to its own
    BufferPtr copy = pool_->take(message.payload->view().size());
    std::ranges::copy(message.payload->view(), copy->bytes().begin());
    message.payload = std::move(copy);
  }
  const std::size_t end = 1 - link->end_of(from);
  const NodeId to = link->ends[end];
  if (message.lane == Lane::kData && hosts_[from].line.up > 0 && hosts_[to].line.down > 0) {
    return send_over_lines(from, to, id, std::move(message), token);
  }
  double rate = options_.bytes_per_second;
  for (const NodeId host : {from, to}) {
    if (now_ < hosts_[host].slow_until) rate /= hosts_[host].slow_factor;
  }
  TimePoint left = now_;
  if (message.lane == Lane::kData) {  // control overtakes data
    const Duration takes(static_cast<Duration::rep>(1e6 * static_cast<double>(bytes_of(message)) / rate));
    left = std::max(now_, link->line_free[end]) + takes;
    link->line_free[end] = left;
  }
  TimePoint& last = link->arrival[end][static_cast<std::size_t>(message.lane)];
  last = std::max(last, passable(left + draw_delay(), from, to));
  arrive(from, to, id, last, std::move(message));
  if (token != 0) sent(from, id, passable(left, from, from), token);
}

// What has arrived at a process that stands still is there, whatever becomes of the link.
void Network::arrive(NodeId from, NodeId to, LinkId id, TimePoint when, TransportMessage message) {
  const std::size_t bytes = message.lane == Lane::kControl ? bytes_of(message) : 0;
  hosts_[from].under_way += bytes;
  at(when, [this, from, to, id, bytes, message = std::make_shared<TransportMessage>(std::move(message))] {
    hosts_[from].under_way -= bytes;
    const auto hung_up = [this, to, id] {
      const Link* link = find(id);
      return link != nullptr && link->hung_up[link->end_of(to)];
    };
    if (find(id) == nullptr || hung_up()) return;
    tell(to, [id, message, hung_up](TransportHandler& handler) {
      if (!hung_up()) handler.on_message(id, std::move(*message));
    });
  });
}

void Network::sent(NodeId from, LinkId id, TimePoint when, std::uint64_t token) {
  at(when, [this, from, id, token] {
    tell(from, [this, id, token](TransportHandler& handler) {
      if (find(id) != nullptr) handler.on_sent(id, token);
    });
  });
}

// Out over the one's line, in over the other's: each carries one thing after the other. It is known to be sent when it
// has arrived.
void Network::send_over_lines(NodeId from, NodeId to, LinkId id, TransportMessage message, std::uint64_t token) {
  const std::size_t bytes = bytes_of(message);
  const auto over = [this, bytes](TimePoint& free, double rate) {
    free = std::max(now_, free) + Duration(static_cast<Duration::rep>(1e6 * static_cast<double>(bytes) / rate));
    return free;
  };
  const TimePoint out = over(hosts_[from].up_free, hosts_[from].line.up);
  at(out, [this, from, to, id, token, over, message = std::make_shared<TransportMessage>(std::move(message))] {
    const TimePoint in = over(hosts_[to].down_free, hosts_[to].line.down);
    Link* link = find(id);
    if (link == nullptr) return;
    TimePoint& last = link->arrival[link->end_of(to)][static_cast<std::size_t>(message->lane)];
    last = std::max(last, passable(in + draw_delay(), from, to));
    arrive(from, to, id, last, std::move(*message));
    if (token != 0) sent(from, id, passable(last + draw_delay(), to, from), token);
  });
}

// What was sent before is delivered, then both ends see the close.
void Network::close(NodeId from, LinkId id) {
  Link* link = find(id);
  if (link == nullptr) return;
  const std::size_t end = link->end_of(from);
  if (std::exchange(link->hung_up[end], true)) return;
  if (!link->made) {
    link->told[1] = true;
    at(now_, [this, id] { tell_closed(id, 0, Status()); });
    return;
  }
  const auto& arrival = link->arrival[1 - end];
  const TimePoint there = std::max({passable(now_ + draw_delay(), from, link->ends[1 - end]), arrival[0], arrival[1]});
  at(there, [this, id, end] { tell_closed(id, 1 - end, Status()); });
  at(there + draw_delay(), [this, id, end] { tell_closed(id, end, Status()); });
  at(now_ + kCloseLimit, [this, id, end] {
    tell_closed(id, end, timed_out("closing: the peer did not take the messages that were queued"));
  });
}

void Network::tell_closed(LinkId id, std::size_t end, const Status& why) {
  Link* link = find(id);
  if (link == nullptr || std::exchange(link->told[end], true)) return;
  link->hung_up[end] = true;
  const NodeId node = link->ends[end];
  if (link->told[1 - end]) links_.erase(id);
  tell(node, [id, why](TransportHandler& handler) { handler.on_closed(id, why); });
}

void Network::break_link(LinkId id, const std::string& why) {
  const auto found = links_.extract(id);
  if (!found) return;
  const Link& link = found.mapped();
  for (const std::size_t end : {0, 1}) {
    if (link.told[end] || (end == 1 && !link.made)) continue;
    at(now_ + draw_delay(), [this, id, why, node = link.ends[end]] {
      tell(node, [id, why](TransportHandler& handler) { handler.on_closed(id, unavailable(why)); });
    });
  }
}

// ---- faults ----------------------------------------------------------------------------------------

void Network::cut_links(NodeId node, Prng& choice) {
  std::vector<LinkId> its = links_of(node);
  std::erase_if(its, [this](LinkId id) { return !links_.at(id).made; });
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
