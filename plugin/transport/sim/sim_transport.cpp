#include "transport/sim/sim_transport.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

namespace collab {

// One connection between two hosts; end 0 dialled.
struct SimLink {
  struct Pipe {  // one lane in one direction
    struct Outgoing {
      TransportMessage message;
      std::uint64_t token = 0;
    };
    std::deque<Outgoing> queue;
    bool sending = false;
    std::size_t on_the_way = 0;         // left the sender, not handed over; the held ones too
    TimePoint last_arrival{};           // of those on the way: a lane keeps its order
    std::deque<TransportMessage> held;  // arrived at a partition
    [[nodiscard]] bool idle() const { return queue.empty() && !sending && on_the_way == 0; }
  };
  struct End {
    SimTransport* transport = nullptr;  // null: over for this end
    std::string host;
    LinkId id;
    std::array<Pipe, 2> out;
  };
  std::uint64_t number = 0;
  std::array<End, 2> ends;
  bool made = false;     // the dial has succeeded
  bool closing = false;  // by `closer`
  bool ending = false;   // the news that it is over is on its way
  std::size_t closer = 0;
  std::string broken;  // why, when it is; said to the ends when the way between them is open
};

namespace {

constexpr Duration kCloseLimit = std::chrono::seconds(5);

std::pair<std::string, std::string> pair_of(const std::string& a, const std::string& b) { return std::minmax(a, b); }

}  // namespace

class SimTransport final : public Transport {
 public:
  SimTransport(std::shared_ptr<SimNetwork> network, std::string host)
      : network_(std::move(network)), host_(std::move(host)) {
    network_->transports_.emplace(number_ = network_->next_transport_++, this);
  }
  ~SimTransport() override { network_->forget(*this, "the peer's transport ended"); }

  [[nodiscard]] std::string name() const override { return "sim"; }
  [[nodiscard]] Abilities abilities() const override { return {.between_hosts = true, .sees_peer_death = true}; }

  Status start(TransportHandler* handler) override {
    if (handler_ != nullptr) return invalid_argument("the sim transport was started twice");
    handler_ = handler;
    return {};
  }

  Result<std::string> listen(const std::string& address) override {
    const auto colon = address.rfind(':');
    if (colon == std::string::npos || colon + 1 == address.size()) {
      return invalid_argument("cannot listen on \"" + address + "\": expected host:port");
    }
    std::string bound = host_ + address.substr(colon);
    while (address.substr(colon) == ":0" && (bound.ends_with(":0") || network_->listeners_.count(bound) != 0)) {
      bound = host_ + ":" + std::to_string(network_->next_port_++);
    }
    if (!network_->listeners_.emplace(bound, this).second) {
      return unavailable("cannot listen on " + bound + ": the port is in use; choose another, or port 0");
    }
    return bound;
  }

  LinkId connect(const std::string& address, Duration timeout) override {
    auto link = std::make_shared<SimLink>();
    link->number = network_->next_link_++;
    link->ends[1].host = address.substr(0, address.rfind(':'));
    add_end(link, 0);
    network_->links_.emplace(link->number, link);
    network_->dial(link, address, network_->now() + timeout);
    return link->ends[0].id;
  }

  void send(LinkId id, TransportMessage message, std::uint64_t token) override {
    const auto found = links_.find(id);
    if (found == links_.end() || found->second.first->closing) return;
    const auto& [link, side] = found->second;
    const Lane lane = message.lane;
    link->ends[side].out[static_cast<std::size_t>(lane)].queue.push_back({std::move(message), token});
    network_->transmit(link, side, lane);
  }

  void close(LinkId id) override {
    const auto found = links_.find(id);
    if (found != links_.end()) network_->close(found->second.first, found->second.second);
  }

 private:
  friend class SimNetwork;

  void add_end(const std::shared_ptr<SimLink>& link, std::size_t side) {
    SimLink::End& end = link->ends[side];
    end.transport = this;
    end.host = host_;
    end.id = LinkId(next_link_++);
    links_.emplace(end.id, std::pair(link, side));
  }

  const std::shared_ptr<SimNetwork> network_;
  const std::string host_;
  std::uint64_t number_ = 0;
  TransportHandler* handler_ = nullptr;
  std::map<LinkId, std::pair<std::shared_ptr<SimLink>, std::size_t>> links_;
  std::uint64_t next_link_ = 1;
};

SimNetwork::SimNetwork(SimOptions options) : options_(options), random_(options.seed), pool_(make_buffer_pool()) {}
SimNetwork::~SimNetwork() = default;

TimePoint SimNetwork::next_event() const { return events_.empty() ? kNever : events_.begin()->first.first; }

bool SimNetwork::step() {
  if (events_.empty()) return false;
  auto event = events_.extract(events_.begin());
  clock_.set(std::max(now(), event.key().first));
  event.mapped()();
  return true;
}

void SimNetwork::run_until(TimePoint time) {
  while (next_event() <= time) step();
  clock_.set(std::max(now(), time));
}

void SimNetwork::at(TimePoint time, std::function<void()> action) {
  events_.emplace(std::pair(time, next_event_++), std::move(action));
}

Duration SimNetwork::draw_delay() {
  const auto spread = static_cast<std::uint64_t>((options_.max_delay - options_.min_delay).count()) + 1;
  Duration delay = options_.min_delay + Duration(static_cast<Duration::rep>(random_.below(spread)));
  while (options_.loss > 0 && random_.chance(options_.loss)) delay += options_.resend_after;
  return delay;
}

bool SimNetwork::blocked(const std::string& a, const std::string& b) const {
  return blocked_.count(pair_of(a, b)) != 0;
}
bool SimNetwork::blocked(const SimLink& link) const { return blocked(link.ends[0].host, link.ends[1].host); }

std::vector<std::shared_ptr<SimLink>> SimNetwork::living_links() {
  std::vector<std::shared_ptr<SimLink>> living;
  for (const auto& [number, link] : links_) living.push_back(link);
  return living;
}

void SimNetwork::block(const std::string& a, const std::string& b) { blocked_.insert(pair_of(a, b)); }

void SimNetwork::unblock(const std::string& a, const std::string& b) {
  blocked_.erase(pair_of(a, b));
  for (const auto& link : living_links()) {
    if (pair_of(link->ends[0].host, link->ends[1].host) == pair_of(a, b)) resume(link);
  }
}

void SimNetwork::partition(const std::set<std::string>& side) {
  for (const auto& [n, a] : transports_) {
    for (const auto& [m, b] : transports_) {
      if (side.count(a->host_) != 0 && side.count(b->host_) == 0) block(a->host_, b->host_);
    }
  }
}

void SimNetwork::heal() {
  blocked_.clear();
  for (const auto& link : living_links()) resume(link);
}

void SimNetwork::cut(const std::string& a, const std::string& b) {
  for (const auto& link : living_links()) {
    if (pair_of(link->ends[0].host, link->ends[1].host) == pair_of(a, b)) break_link(link, "the connection was cut");
  }
}

void SimNetwork::crash(const std::string& host) {
  for (const auto& [number, transport] : std::map(transports_)) {
    if (transport->host_ == host) forget(*transport, "the peer died");
  }
}

// The transport is heard of no more; the other ends of its links learn it as soon as the way is open.
void SimNetwork::forget(SimTransport& transport, const std::string& why) {
  std::erase_if(listeners_, [&](const auto& entry) { return entry.second == &transport; });
  transports_.erase(transport.number_);
  for (const auto& [id, entry] : std::exchange(transport.links_, {})) {
    const auto& [link, side] = entry;
    link->ends[side].transport = nullptr;
    for (auto& pipe : link->ends[side].out) pipe.queue.clear();
    break_link(link, why);
  }
}

void SimNetwork::dial(const std::shared_ptr<SimLink>& link, const std::string& address, TimePoint deadline) {
  const auto fail = [this, link](Status why) { end(*link, 0, std::move(why)); };
  at(deadline, [link, address, fail] {
    if (!link->made) fail(timed_out("no connection to " + address + " within the time allowed"));
  });
  after(draw_delay(), [this, link, address, deadline, fail] {
    if (link->ends[0].transport == nullptr || blocked(*link) || now() >= deadline) return;
    const auto listener = listeners_.find(address);
    if (listener == listeners_.end()) {
      after(draw_delay(),
            [address, fail] { fail(unavailable("cannot connect to " + address + ": nobody listens there")); });
      return;
    }
    link->made = true;
    listener->second->add_end(link, 1);
    const TimePoint answered = std::min(now() + draw_delay(), deadline);
    for (auto& pipe : link->ends[1].out) pipe.last_arrival = answered;  // nothing overtakes the answer
    at(answered, [this, link] {
      SimLink::End& us = link->ends[0];
      if (us.transport == nullptr) return;
      us.transport->handler_->on_connected(us.id);
      for (const Lane lane : {Lane::kControl, Lane::kData}) transmit(link, 0, lane);
    });
    SimLink::End& them = link->ends[1];
    them.transport->handler_->on_accepted(them.id, link->ends[0].host);
  });
}

// Puts the pipe's next message on the line, when it is free.
void SimNetwork::transmit(const std::shared_ptr<SimLink>& link, std::size_t from, Lane lane) {
  SimLink::End& end = link->ends[from];
  SimLink::Pipe& pipe = end.out[static_cast<std::size_t>(lane)];
  if (!link->made || pipe.sending || pipe.queue.empty() || end.transport == nullptr || blocked(*link)) return;
  pipe.sending = true;
  const auto& next = pipe.queue.front().message;
  const auto bytes = next.head.size() + (next.payload != nullptr ? next.payload->view().size() : 0);
  const Duration takes(static_cast<Duration::rep>(1e6 * static_cast<double>(bytes) / options_.bytes_per_second));
  after(takes, [this, link, from, lane] {
    SimLink::End& sender = link->ends[from];
    SimLink::Pipe& line = sender.out[static_cast<std::size_t>(lane)];
    line.sending = false;
    if (sender.transport == nullptr || line.queue.empty()) return;
    SimLink::Pipe::Outgoing outgoing = std::move(line.queue.front());
    line.queue.pop_front();
    if (BufferPtr& payload = outgoing.message.payload; payload != nullptr) {
      BufferPtr copy = pool_->take(payload->view().size());  // after on_sent the sender may write to its own
      if (!payload->view().empty()) std::memcpy(copy->bytes().data(), payload->view().data(), payload->view().size());
      payload = std::move(copy);
    }
    ++line.on_the_way;
    schedule_arrival(link, 1 - from, std::move(outgoing.message));
    if (outgoing.token != 0) sender.transport->handler_->on_sent(sender.id, outgoing.token);
    transmit(link, from, lane);
  });
}

void SimNetwork::schedule_arrival(const std::shared_ptr<SimLink>& link, std::size_t to, TransportMessage message) {
  SimLink::Pipe& pipe = link->ends[1 - to].out[static_cast<std::size_t>(message.lane)];
  pipe.last_arrival = std::max(pipe.last_arrival, now() + draw_delay());
  at(pipe.last_arrival, [this, link, to, message = std::move(message)] { hand_over(link, to, message); });
}

void SimNetwork::hand_over(const std::shared_ptr<SimLink>& link, std::size_t to, TransportMessage message) {
  SimLink::Pipe& pipe = link->ends[1 - to].out[static_cast<std::size_t>(message.lane)];
  if (blocked(*link) || !pipe.held.empty()) {
    pipe.held.push_back(std::move(message));
    return;
  }
  --pipe.on_the_way;
  SimLink::End& end = link->ends[to];
  if (end.transport != nullptr) end.transport->handler_->on_message(end.id, std::move(message));
  try_finish(link);
}

void SimNetwork::resume(const std::shared_ptr<SimLink>& link) {
  if (blocked(*link)) return;
  for (const std::size_t from : {0, 1}) {
    for (auto& pipe : link->ends[from].out) {
      for (auto& message : std::exchange(pipe.held, {})) schedule_arrival(link, 1 - from, std::move(message));
    }
    for (const Lane lane : {Lane::kControl, Lane::kData}) transmit(link, from, lane);
  }
  try_finish(link);
  if (!link->broken.empty()) break_link(link, link->broken);
}

void SimNetwork::close(const std::shared_ptr<SimLink>& link, std::size_t side) {
  if (link->closing) return;
  link->closing = true;
  link->closer = side;
  if (!link->made) {
    after(Duration(0), [this, link, side] { end(*link, side, Status()); });
    return;
  }
  for (auto& pipe : link->ends[1 - side].out) {
    while (pipe.queue.size() > (pipe.sending ? 1U : 0U)) pipe.queue.pop_back();  // nothing new to the closer
  }
  after(kCloseLimit, [this, link, side] {
    end(*link, side, timed_out("closing: the peer did not take the messages that were queued"));
    break_link(link, "the connection was closed");
  });
  try_finish(link);
}

// A closing link is over when everything on the way has arrived.
void SimNetwork::try_finish(const std::shared_ptr<SimLink>& link) {
  if (!link->closing || link->ending || !link->made || blocked(*link)) return;
  for (const auto& end : link->ends) {
    for (const auto& pipe : end.out) {
      if (!pipe.idle()) return;
    }
  }
  link->ending = true;
  const std::size_t closer = link->closer;
  after(draw_delay(), [this, link, closer] { end(*link, 1 - closer, Status()); });
  after(draw_delay() + options_.max_delay, [this, link, closer] { end(*link, closer, Status()); });
}

void SimNetwork::break_link(const std::shared_ptr<SimLink>& link, const std::string& why) {
  link->broken = why;
  if (blocked(*link)) return;
  for (const std::size_t side : {0, 1}) {
    after(draw_delay(), [this, link, side, why] {
      end(*link, side, unavailable("the link to " + link->ends[1 - side].host + " broke: " + why));
    });
  }
}

void SimNetwork::end(SimLink& link, std::size_t side, Status why) {
  SimLink::End& end = link.ends[side];
  SimTransport* transport = std::exchange(end.transport, nullptr);
  if (link.ends[1 - side].transport == nullptr) links_.erase(link.number);
  if (transport == nullptr) return;
  transport->links_.erase(end.id);
  for (auto& pipe : end.out) pipe.queue.clear();
  transport->handler_->on_closed(end.id, std::move(why));
}

std::unique_ptr<Transport> make_sim_transport(std::shared_ptr<SimNetwork> network, std::string host) {
  return std::make_unique<SimTransport>(std::move(network), std::move(host));
}

}  // namespace collab
