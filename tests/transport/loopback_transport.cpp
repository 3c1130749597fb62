#include "tests/transport/loopback_transport.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace collab::testing {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;
constexpr auto kCloseLimit = std::chrono::seconds(5);

struct Inbox;

// The two ends of one link. An end's inbox is null once its transport has forgotten the link.
struct Channel {
  std::array<Inbox*, 2> inbox{};
  std::array<LinkId, 2> id{};
  bool closing = false;
};

struct Event {
  enum class Kind : std::uint8_t { kAccepted, kConnected, kMessage, kSent, kClosed };
  Kind kind = Kind::kMessage;
  LinkId link;
  std::string peer;          // kAccepted
  TransportMessage message;  // kMessage
  std::uint64_t token = 0;   // kMessage, kSent
  Status why;                // kClosed
};

// What waits for one transport's thread. `bulk` holds data and the ends of links: an end is seen after
// everything that was sent before it.
struct Inbox {
  std::condition_variable wake;
  std::deque<Event> urgent;
  std::deque<Event> bulk;
  bool stop = false;
};

void post(Inbox* inbox, Event event) {
  if (inbox == nullptr) return;
  const bool bulk =
      event.kind == Event::Kind::kClosed || (event.kind == Event::Kind::kMessage && event.message.lane == Lane::kData);
  (bulk ? inbox->bulk : inbox->urgent).push_back(std::move(event));
  inbox->wake.notify_one();
}

Event closed(LinkId link, Status why) {
  Event event;
  event.kind = Event::Kind::kClosed;
  event.link = link;
  event.why = std::move(why);
  return event;
}

}  // namespace

struct LoopbackHub::State {
  struct Listener {
    Inbox* inbox = nullptr;
    class LoopbackTransport* transport = nullptr;
  };
  std::mutex mutex;
  std::map<std::string, Listener> listeners;
  std::uint32_t next_port = 1;
};

LoopbackHub::LoopbackHub() : state_(std::make_unique<State>()) {}
LoopbackHub::~LoopbackHub() = default;

class LoopbackTransport final : public Transport {
 public:
  explicit LoopbackTransport(std::shared_ptr<LoopbackHub> hub) : hub_(std::move(hub)), state_(*hub_->state_) {}
  ~LoopbackTransport() override;

  [[nodiscard]] std::string name() const override { return "loopback"; }
  [[nodiscard]] Abilities abilities() const override { return {.sees_peer_death = true}; }
  Status start(TransportHandler* handler) override;
  Result<std::string> listen(const std::string& address) override;
  LinkId connect(const std::string& address, Duration timeout) override;
  void send(LinkId link, TransportMessage message, std::uint64_t token) override;
  void close(LinkId link) override;

 private:
  struct Link {
    std::shared_ptr<Channel> channel;
    std::size_t side = 0;
    [[nodiscard]] std::size_t other() const { return 1 - side; }
  };

  LinkId add_link(std::shared_ptr<Channel> channel, std::size_t side);
  void run();
  std::optional<Event> next(std::unique_lock<std::mutex>& lock);
  void deliver(Event event, std::unique_lock<std::mutex>& lock);
  void deliver_message(Event event, const Link& link, std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<LoopbackHub> hub_;
  LoopbackHub::State& state_;
  const std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  TransportHandler* handler_ = nullptr;
  std::thread thread_;

  // Guarded by state_.mutex.
  Inbox inbox_;
  std::unordered_map<LinkId, Link> links_;
  std::vector<std::pair<SteadyTime, LinkId>> closing_;
  std::vector<std::string> listening_;
  std::uint64_t next_link_ = 1;
};

LoopbackTransport::~LoopbackTransport() {
  {
    const std::lock_guard lock(state_.mutex);
    inbox_.stop = true;
    for (auto& [id, link] : links_) {
      Channel& channel = *link.channel;
      channel.inbox[link.side] = nullptr;
      post(channel.inbox[link.other()], closed(channel.id[link.other()], unavailable("the peer's transport ended")));
    }
    for (const auto& address : listening_) state_.listeners.erase(address);
    inbox_.wake.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

Status LoopbackTransport::start(TransportHandler* handler) {
  if (handler_ != nullptr) return invalid_argument("the loopback transport was started twice");
  handler_ = handler;
  thread_ = std::thread([this] { run(); });
  return {};
}

Result<std::string> LoopbackTransport::listen(const std::string& address) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return invalid_argument("cannot listen on \"" + address + "\": expected name:port");
  }
  const std::lock_guard lock(state_.mutex);
  std::string bound = address;
  if (address.substr(colon + 1) == "0") {
    do {
      bound = address.substr(0, colon + 1) + std::to_string(state_.next_port++);
    } while (state_.listeners.count(bound) != 0);
  }
  if (!state_.listeners.emplace(bound, LoopbackHub::State::Listener{&inbox_, this}).second) {
    return unavailable("cannot listen on " + bound + ": the port is in use; choose another, or port 0");
  }
  listening_.push_back(bound);
  return bound;
}

LinkId LoopbackTransport::add_link(std::shared_ptr<Channel> channel, std::size_t side) {
  const LinkId id(next_link_++);
  channel->inbox[side] = &inbox_;
  channel->id[side] = id;
  links_.emplace(id, Link{std::move(channel), side});
  return id;
}

LinkId LoopbackTransport::connect(const std::string& address, Duration /*timeout: answers at once*/) {
  const std::lock_guard lock(state_.mutex);
  auto channel = std::make_shared<Channel>();
  const LinkId ours = add_link(channel, 0);
  const auto listener = state_.listeners.find(address);
  if (listener == state_.listeners.end()) {
    post(&inbox_, closed(ours, unavailable("cannot connect to " + address + ": nobody listens there")));
    return ours;
  }
  Event accepted;
  accepted.kind = Event::Kind::kAccepted;
  accepted.link = listener->second.transport->add_link(channel, 1);
  accepted.peer = "loopback link " + std::to_string(ours.value) + " to " + address;
  Event connected;
  connected.kind = Event::Kind::kConnected;
  connected.link = ours;
  post(&inbox_, std::move(connected));
  post(listener->second.inbox, std::move(accepted));
  return ours;
}

void LoopbackTransport::send(LinkId link, TransportMessage message, std::uint64_t token) {
  const std::lock_guard lock(state_.mutex);
  const auto found = links_.find(link);
  if (found == links_.end() || found->second.channel->closing) return;
  const Link& end = found->second;
  Event event;
  event.link = end.channel->id[end.other()];
  event.message = std::move(message);
  event.token = token;
  post(end.channel->inbox[end.other()], std::move(event));
}

void LoopbackTransport::close(LinkId link) {
  const std::lock_guard lock(state_.mutex);
  const auto found = links_.find(link);
  if (found == links_.end() || found->second.channel->closing) return;
  const Link& end = found->second;
  end.channel->closing = true;
  if (Inbox* peer = end.channel->inbox[end.other()]; peer != nullptr) {
    post(peer, closed(end.channel->id[end.other()], Status()));  // answered when all before it is delivered
    closing_.emplace_back(std::chrono::steady_clock::now() + kCloseLimit, link);
    inbox_.wake.notify_one();
  } else {
    post(&inbox_, closed(link, Status()));
  }
}

void LoopbackTransport::run() {
  std::unique_lock lock(state_.mutex);
  while (auto event = next(lock)) deliver(std::move(*event), lock);
}

// The next event, or nothing when the transport ends.
std::optional<Event> LoopbackTransport::next(std::unique_lock<std::mutex>& lock) {
  while (!inbox_.stop) {
    for (auto* queue : {&inbox_.urgent, &inbox_.bulk}) {
      if (queue->empty()) continue;
      Event event = std::move(queue->front());
      queue->pop_front();
      return event;
    }
    if (closing_.empty()) {
      inbox_.wake.wait(lock);
      continue;
    }
    const auto [deadline, link] = closing_.front();
    if (std::chrono::steady_clock::now() >= deadline) {
      closing_.erase(closing_.begin());
      return closed(link, timed_out("closing: the peer did not take the messages that were queued"));
    }
    inbox_.wake.wait_until(lock, deadline);
  }
  return std::nullopt;
}

void LoopbackTransport::deliver(Event event, std::unique_lock<std::mutex>& lock) {
  const auto found = links_.find(event.link);
  if (found == links_.end()) return;  // it closed while the event waited
  const Link link = found->second;
  switch (event.kind) {
    case Event::Kind::kMessage: deliver_message(std::move(event), link, lock); return;
    case Event::Kind::kClosed: {
      Channel& channel = *link.channel;
      channel.closing = true;
      channel.inbox[link.side] = nullptr;
      post(channel.inbox[link.other()], closed(channel.id[link.other()], event.why));
      links_.erase(found);
      std::erase_if(closing_, [&](const auto& entry) { return entry.second == event.link; });
      lock.unlock();
      handler_->on_closed(event.link, std::move(event.why));
      break;
    }
    case Event::Kind::kAccepted:
      lock.unlock();
      handler_->on_accepted(event.link, event.peer);
      break;
    case Event::Kind::kConnected:
      lock.unlock();
      handler_->on_connected(event.link);
      break;
    case Event::Kind::kSent:
      lock.unlock();
      handler_->on_sent(event.link, event.token);
      break;
  }
  lock.lock();
}

void LoopbackTransport::deliver_message(Event event, const Link& link, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  TransportMessage message;
  message.lane = event.message.lane;
  message.head = std::move(event.message.head);
  if (event.message.payload != nullptr) {
    const auto from = event.message.payload->view();
    message.payload = pool_->take(from.size());
    if (!from.empty()) std::memcpy(message.payload->bytes().data(), from.data(), from.size());
    event.message.payload.reset();
  }
  if (event.token != 0) {
    lock.lock();
    Event sent;
    sent.kind = Event::Kind::kSent;
    sent.link = link.channel->id[link.other()];
    sent.token = event.token;
    post(link.channel->inbox[link.other()], std::move(sent));
    lock.unlock();
  }
  handler_->on_message(event.link, std::move(message));
  lock.lock();
}

std::unique_ptr<Transport> make_loopback_transport(std::shared_ptr<LoopbackHub> hub) {
  return std::make_unique<LoopbackTransport>(std::move(hub));
}

}  // namespace collab::testing
