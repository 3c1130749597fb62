#include "transport/gloo/gloo_transport.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/gloo/gloo_peer.h"

namespace collab {
namespace {

constexpr auto kCloseLimit = std::chrono::seconds(5);
constexpr auto kGoneLimit = std::chrono::seconds(2);  // to tell the others that this transport ends
// The most arrived messages that may wait for the handler. Beyond this, the lane receives nothing.
constexpr std::size_t kInboxBytes = kMaxPayloadBytes;
constexpr std::size_t kInboxMessages = 4096;

//   dialled:  connecting ──(welcome, or the first message)──▶ open, pending messages leave      accepted: open
//   open ──close()──▶ closing: byes follow the queues of both lanes; over when both are sent
//   open or closing ──(byes on both lanes)──▶ over
struct Link {
  int rank = 0;
  std::uint64_t remote = 0;  // the other end's id; 0 until known
  bool connecting = false;
  bool closing = false;
  std::deque<std::pair<TransportMessage, std::uint64_t>> pending;  // sent before it was open
  int byes_sent = 0;
  int byes_arrived = 0;
  TimePoint deadline = kNever;  // of the dial, or of the closing
};

struct Event {
  enum class Kind : std::uint8_t { kFrame, kSent, kClosed };
  Kind kind = Kind::kFrame;
  LinkId link;  // for kSent and kClosed
  int rank = 0;
  GlooFrame frame;
  TransportMessage message;
  std::uint64_t token = 0;
  Status why;
  [[nodiscard]] std::size_t bytes() const { return message.bytes(); }
};

class GlooTransport final : public Transport, public GlooSink {
 public:
  explicit GlooTransport(GlooOptions options);
  ~GlooTransport() override;

  [[nodiscard]] std::string name() const override { return "gloo"; }
  [[nodiscard]] Abilities abilities() const override { return {.between_hosts = true, .sees_peer_death = true}; }
  Status start(TransportHandler* handler) override;
  Result<std::string> listen(const std::string& address) override;
  LinkId connect(const std::string& address, Duration timeout) override;
  void send(LinkId link, TransportMessage message, std::uint64_t token) override;
  void close(LinkId link) override;

 private:
  // From the peers' threads.
  void frame_arrived(int rank, Lane lane, const GlooFrame& frame, TransportMessage message) override;
  bool still_wanted(const GlooFrame& frame) override;
  void frame_sent(Lane lane, const GlooFrame& frame, std::uint64_t token) override;
  void peer_broken(int rank, Status why) override;

  // On the transport's thread. `lock` is held on entry and exit, but not while the handler runs.
  using Lock = std::unique_lock<std::mutex>;
  void run();
  std::optional<Event> next(Lock& lock);
  void deliver(Event event, Lock& lock);
  void deliver_frame(Event event, Lock& lock);
  void accept(const Event& hello, Lock& lock);
  void opened(LinkId id, Link& link, std::uint64_t remote, Lock& lock);
  void end(LinkId id, Status why, Lock& lock);

  void post_closed(LinkId link, Status why);
  void post_message(Link& link, LinkId id, TransportMessage message, std::uint64_t token);
  void post_byes(Link& link, LinkId id);
  void post_frame(const Link& link, LinkId id, Lane lane, GlooFrame::Kind kind);
  GlooPeer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }

  const std::shared_ptr<GlooGroup> group_ = std::make_shared<GlooGroup>();
  const std::shared_ptr<BufferPool> pool_;
  const SteadyClock clock_;
  TransportHandler* handler_ = nullptr;
  std::thread thread_;

  std::mutex mutex_;               // guards the members below; locked before a peer's mutex
  std::condition_variable wake_;   // the transport's thread
  std::condition_variable space_;  // receivers
  std::deque<Event> urgent_;
  std::deque<Event> bulk_;  // data, and the ends of links: an end comes after all data sent before it
  std::size_t bulk_bytes_ = 0;
  std::map<LinkId, Link> links_;
  std::map<int, Status> broken_;
  bool listening_ = false;
  bool stopping_ = false;
  std::uint64_t next_link_ = 1;

  std::vector<std::unique_ptr<GlooPeer>> peers_;  // by rank; fixed after the constructor
};

GlooTransport::GlooTransport(GlooOptions options) : pool_(options.pool ? options.pool : make_buffer_pool()) {
  group_->backend = std::move(options.backend);
  for (int rank = 0; rank < group_->backend->getSize(); ++rank) {
    peers_.push_back(std::make_unique<GlooPeer>(group_, pool_, rank, this));
  }
}

GlooTransport::~GlooTransport() {
  std::vector<int> told;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, link] : links_) {
      const bool tell = broken_.count(link.rank) == 0 && link.rank != group_->backend->getRank();
      if (tell && std::count(told.begin(), told.end(), link.rank) == 0) told.push_back(link.rank);
    }
    links_.clear();
    stopping_ = true;
  }
  wake_.notify_all();
  space_.notify_all();
  if (thread_.joinable()) thread_.join();
  GlooFrame gone;
  gone.kind = GlooFrame::Kind::kGone;
  const TimePoint deadline = clock_.now() + kGoneLimit;
  for (const int rank : told) peer(rank).post(Lane::kControl, gone, {}, 0);
  for (const int rank : told) peer(rank).drain_control(std::max(deadline - clock_.now(), Duration(0)));
  for (const auto& peer : peers_) peer->stop();
}

Status GlooTransport::start(TransportHandler* handler) {
  if (handler_ != nullptr) return invalid_argument("the gloo transport was started twice [link.gloo-started-twice]");
  handler_ = handler;
  thread_ = std::thread([this] { run(); });
  for (const auto& peer : peers_) peer->start();
  return {};
}

Result<std::string> GlooTransport::listen(const std::string& address) {
  const std::string own = "gloo:" + std::to_string(group_->backend->getRank());
  if (address.find(':') == std::string::npos) {
    return invalid_argument("cannot listen on \"" + address + "\": expected " + own +
                            " or host:port [link.gloo-listen-address]");
  }
  if (address.rfind("gloo:", 0) == 0 && address != own) {
    return unavailable("cannot listen on " + address + ": it is in use by another rank; this one is " + own +
                       " [link.gloo-in-use]");
  }
  const std::lock_guard lock(mutex_);
  listening_ = true;
  return own;
}

LinkId GlooTransport::connect(const std::string& address, Duration timeout) {
  const std::lock_guard lock(mutex_);
  const LinkId id(next_link_++);
  int rank = -1;
  const char* last = address.data() + address.size();
  const bool number = address.rfind("gloo:", 0) == 0 && std::from_chars(address.data() + 5, last, rank).ptr == last &&
                      address.size() > 5;
  Link& link = links_[id];
  link.connecting = true;
  if (!number || rank < 0 || rank >= group_->backend->getSize()) {
    link.rank = group_->backend->getRank();
    post_closed(id, invalid_argument("cannot connect to \"" + address + "\": expected gloo:RANK with a rank below " +
                                     std::to_string(group_->backend->getSize()) + " [link.gloo-dial-address]"));
    return id;
  }
  link.rank = rank;
  link.deadline = clock_.now() + timeout;
  if (const auto why = broken_.find(rank); why != broken_.end()) {
    post_closed(id, why->second);
  } else {
    post_frame(link, id, Lane::kControl, GlooFrame::Kind::kHello);
  }
  wake_.notify_one();  // for the deadline
  return id;
}

void GlooTransport::send(LinkId id, TransportMessage message, std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(id);
  if (found == links_.end() || found->second.closing) return;
  Link& link = found->second;
  if (link.connecting) {
    link.pending.emplace_back(std::move(message), token);
  } else {
    post_message(link, id, std::move(message), token);
  }
}

void GlooTransport::post_message(Link& link, LinkId id, TransportMessage message, std::uint64_t token) {
  const std::size_t payload = message.payload ? message.payload->view().size() : 0;
  if (message.head.size() > kMaxHeadBytes || payload > kMaxPayloadBytes) {
    return post_closed(
        id, invalid_argument("a message of " + std::to_string(message.head.size()) + " + " + std::to_string(payload) +
                             " bytes is over the transport's limits [link.gloo-too-long]"));
  }
  GlooFrame frame;
  frame.to = link.remote;
  frame.from = id.value;
  frame.head_bytes = static_cast<std::uint32_t>(message.head.size());
  frame.has_payload = message.payload ? 1 : 0;
  frame.payload_bytes = static_cast<std::uint32_t>(payload);
  const Lane lane = message.lane;
  peer(link.rank).post(lane, frame, std::move(message), token);
}

void GlooTransport::close(LinkId id) {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(id);
  if (found == links_.end() || found->second.closing) return;
  found->second.closing = true;
  if (!found->second.connecting) post_byes(found->second, id);
}

void GlooTransport::post_byes(Link& link, LinkId id) {
  link.deadline = clock_.now() + kCloseLimit;
  post_frame(link, id, Lane::kControl, GlooFrame::Kind::kBye);
  post_frame(link, id, Lane::kData, GlooFrame::Kind::kBye);
  wake_.notify_one();
}

void GlooTransport::post_frame(const Link& link, LinkId id, Lane lane, GlooFrame::Kind kind) {
  GlooFrame frame;
  frame.kind = kind;
  frame.to = link.remote;
  frame.from = id.value;
  peer(link.rank).post(lane, frame, {}, 0);
}

void GlooTransport::post_closed(LinkId link, Status why) {
  Event event;
  event.kind = Event::Kind::kClosed;
  event.link = link;
  event.why = std::move(why);
  bulk_.push_back(std::move(event));
  wake_.notify_one();
}

void GlooTransport::frame_arrived(int rank, Lane lane, const GlooFrame& frame, TransportMessage message) {
  Event event;
  event.rank = rank;
  event.frame = frame;
  event.message = std::move(message);
  Lock lock(mutex_);
  if (lane == Lane::kControl) {
    space_.wait(lock, [this] { return stopping_ || urgent_.size() < kInboxMessages; });
    urgent_.push_back(std::move(event));
  } else {
    space_.wait(lock, [this] { return stopping_ || (bulk_bytes_ < kInboxBytes && bulk_.size() < kInboxMessages); });
    bulk_bytes_ += event.bytes();
    bulk_.push_back(std::move(event));
  }
  wake_.notify_one();
}

bool GlooTransport::still_wanted(const GlooFrame& frame) {
  if (frame.kind != GlooFrame::Kind::kMessage) return true;
  const std::lock_guard lock(mutex_);
  return links_.count(LinkId(frame.from)) != 0;
}

void GlooTransport::frame_sent(Lane /*lane*/, const GlooFrame& frame, std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(LinkId(frame.from));
  if (found == links_.end()) return;
  if (frame.kind == GlooFrame::Kind::kBye && ++found->second.byes_sent == 2) post_closed(found->first, Status());
  if (frame.kind != GlooFrame::Kind::kMessage || token == 0) return;
  Event event;
  event.kind = Event::Kind::kSent;
  event.link = found->first;
  event.token = token;
  urgent_.push_back(std::move(event));
  wake_.notify_one();
}

void GlooTransport::peer_broken(int rank, Status why) {
  const std::lock_guard lock(mutex_);
  if (!broken_.emplace(rank, why).second) return;
  for (const auto& [id, link] : links_) {
    if (link.rank == rank) post_closed(id, why);
  }
}

void GlooTransport::run() {
  Lock lock(mutex_);
  while (auto event = next(lock)) deliver(std::move(*event), lock);
}

// The next event, or a deadline that has passed. Nothing when the transport stops.
std::optional<Event> GlooTransport::next(Lock& lock) {
  while (!stopping_) {
    for (auto* queue : {&urgent_, &bulk_}) {
      if (queue->empty()) continue;
      Event event = std::move(queue->front());
      queue->pop_front();
      if (queue == &bulk_) bulk_bytes_ -= event.bytes();
      space_.notify_all();
      return event;
    }
    TimePoint first = kNever;
    for (const auto& [id, link] : links_) {
      if (link.deadline > clock_.now()) {
        first = std::min(first, link.deadline);
        continue;
      }
      Event late;
      late.kind = Event::Kind::kClosed;
      late.link = id;
      late.why = timed_out(
          link.connecting
              ? "cannot connect to gloo:" + std::to_string(link.rank) + ": no answer in time [link.gloo-no-answer]"
              : "closing: the peer did not take the messages that were queued [link.gloo-not-delivered]");
      return late;
    }
    if (first == kNever) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, std::chrono::steady_clock::time_point(first.time_since_epoch()));
    }
  }
  return std::nullopt;
}

void GlooTransport::deliver(Event event, Lock& lock) {
  switch (event.kind) {
    case Event::Kind::kFrame: return deliver_frame(std::move(event), lock);
    case Event::Kind::kClosed: return end(event.link, std::move(event.why), lock);
    case Event::Kind::kSent:
      if (links_.count(event.link) == 0) return;
      lock.unlock();
      handler_->on_sent(event.link, event.token);
      lock.lock();
  }
}

void GlooTransport::deliver_frame(Event event, Lock& lock) {
  if (event.frame.kind == GlooFrame::Kind::kHello) return accept(event, lock);
  if (event.frame.kind == GlooFrame::Kind::kGone) {
    const Status why = unavailable("the transport of rank " + std::to_string(event.rank) + " ended [link.gloo-ended]");
    for (const auto& [id, link] : links_) {
      if (link.rank == event.rank) post_closed(id, why);
    }
    return;
  }
  const LinkId id(event.frame.to);
  auto found = links_.find(id);
  // The link has ended, or the peer made the number up. If a peer answers a dial that was given up, we tell it so.
  if (found == links_.end() || found->second.rank != event.rank) {
    if (event.frame.kind != GlooFrame::Kind::kWelcome) return;
    Link late;
    late.rank = event.rank;
    late.remote = event.frame.from;
    post_frame(late, id, Lane::kControl, GlooFrame::Kind::kBye);
    return post_frame(late, id, Lane::kData, GlooFrame::Kind::kBye);
  }
  if (event.frame.kind == GlooFrame::Kind::kRefuse) {
    return end(id,
               unavailable("cannot connect to gloo:" + std::to_string(event.rank) +
                           ": no process listens there [link.gloo-nobody]"),
               lock);
  }
  // A message on the data lane may overtake the welcome.
  if (found->second.connecting) {
    opened(id, found->second, event.frame.from, lock);
    found = links_.find(id);
    if (found == links_.end()) return;
  }
  if (event.frame.kind == GlooFrame::Kind::kBye && ++found->second.byes_arrived == 2) {
    return post_closed(id, Status());  // behind the data that arrived before
  }
  if (event.frame.kind != GlooFrame::Kind::kMessage) return;
  lock.unlock();
  handler_->on_message(id, std::move(event.message));
  lock.lock();
}

void GlooTransport::accept(const Event& hello, Lock& lock) {
  Link link;
  link.rank = hello.rank;
  link.remote = hello.frame.from;
  const LinkId id(next_link_++);
  if (!listening_) return post_frame(link, id, Lane::kControl, GlooFrame::Kind::kRefuse);
  links_.emplace(id, link);
  post_frame(link, id, Lane::kControl, GlooFrame::Kind::kWelcome);
  lock.unlock();
  handler_->on_accepted(id, "gloo:" + std::to_string(hello.rank));
  lock.lock();
}

void GlooTransport::opened(LinkId id, Link& link, std::uint64_t remote, Lock& lock) {
  link.connecting = false;
  link.remote = remote;
  link.deadline = kNever;
  for (auto& [message, token] : std::exchange(link.pending, {})) post_message(link, id, std::move(message), token);
  if (link.closing) post_byes(link, id);
  lock.unlock();
  handler_->on_connected(id);
  lock.lock();
}

void GlooTransport::end(LinkId id, Status why, Lock& lock) {
  if (links_.erase(id) == 0) return;
  lock.unlock();
  handler_->on_closed(id, std::move(why));
  lock.lock();
}

}  // namespace

Result<std::unique_ptr<Transport>> make_gloo_transport(GlooOptions options) {
  if (!options.backend) {
    return invalid_argument(
        "the gloo transport needs a process group: pass transport={'kind': 'gloo', 'backend': ...} "
        "[link.gloo-no-group]");
  }
  return std::unique_ptr<Transport>(std::make_unique<GlooTransport>(std::move(options)));
}

}  // namespace collab
