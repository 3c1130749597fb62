#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/transport/conformance.h"

namespace collab::testing {

class Recorder::Call {
 public:
  explicit Call(std::atomic<int>& inside) : inside_(inside) {
    if (inside_.fetch_add(1) != 0) ADD_FAILURE() << "two handler calls of one transport overlap";
  }
  ~Call() { inside_.fetch_sub(1); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  std::atomic<int>& inside_;
};

void Recorder::on_authenticated(LinkId link, const std::vector<std::string>& names) {
  const Call call(inside_);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(std::ranges::count(accepted_, link) + std::ranges::count(connected_, link), 0) << "proved too late";
  authenticated_[link] = names;
}

void Recorder::on_accepted(LinkId link, const std::string& peer) {
  const Call call(inside_);
  EXPECT_FALSE(peer.empty());
  {
    const std::lock_guard lock(mutex_);
    accepted_.push_back(link);
  }
  if (when_accepted) when_accepted(link);
}

void Recorder::on_connected(LinkId link) {
  const Call call(inside_);
  {
    const std::lock_guard lock(mutex_);
    connected_.push_back(link);
  }
  if (when_connected) when_connected(link);
}

void Recorder::on_message(LinkId link, TransportMessage message) {
  const Call call(inside_);
  if (when_message) when_message(link, message);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(closed_.count(link), 0U) << "a message after on_closed";
  ++messages_;
  if (handles) message.unhandled.reset();
  if (keep_messages) received_.push_back({link, std::move(message)});
}

void Recorder::on_sent(LinkId link, std::uint64_t token) {
  const Call call(inside_);
  if (when_sent) when_sent(link, token);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(closed_.count(link), 0U) << "on_sent after on_closed";
  tokens_.push_back(token);
}

void Recorder::on_closed(LinkId link, Status why) {
  const Call call(inside_);
  const std::lock_guard lock(mutex_);
  EXPECT_TRUE(closed_.emplace(link, std::move(why)).second) << "on_closed twice";
}

std::vector<LinkId> Recorder::accepted() const {
  const std::lock_guard lock(mutex_);
  return accepted_;
}
std::vector<std::string> Recorder::proved(LinkId link) const {
  const std::lock_guard lock(mutex_);
  const auto found = authenticated_.find(link);
  return found == authenticated_.end() ? std::vector<std::string>() : found->second;
}
void Recorder::forget() {
  std::vector<Received> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(received_);
}
bool Recorder::connected(LinkId link) const {
  const std::lock_guard lock(mutex_);
  return std::count(connected_.begin(), connected_.end(), link) == 1;
}
std::size_t Recorder::messages() const {
  const std::lock_guard lock(mutex_);
  return messages_;
}
std::size_t Recorder::sent() const {
  const std::lock_guard lock(mutex_);
  return tokens_.size();
}
std::vector<Recorder::Received> Recorder::received() const {
  const std::lock_guard lock(mutex_);
  return received_;
}
std::vector<std::uint64_t> Recorder::tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}
std::optional<Status> Recorder::closed(LinkId link) const {
  const std::lock_guard lock(mutex_);
  const auto found = closed_.find(link);
  return found != closed_.end() ? std::optional(found->second) : std::nullopt;
}
std::size_t Recorder::closed_count() const {
  const std::lock_guard lock(mutex_);
  return closed_.size();
}

void Gate::wait() {
  std::unique_lock lock(mutex_);
  opened_.wait(lock, [this] { return open_; });
}
void Gate::open() {
  {
    const std::lock_guard lock(mutex_);
    open_ = true;
  }
  opened_.notify_all();
}

void TransportConformance::SetUp() {
  world_ = GetParam().make_world();
  pool_ = make_buffer_pool();
}

void TransportConformance::TearDown() {
  gate_.open();
  peers_.clear();
  world_.reset();
}

Peer& TransportConformance::add(const std::string& host, const std::function<void(Recorder&)>& prepare) {
  Peer& peer = *peers_.emplace_back(std::make_unique<Peer>());
  if (prepare) prepare(peer.seen);
  peer.transport = world_->make(host);
  const Status started = peer.transport->start(&peer.seen);
  EXPECT_TRUE(started.ok()) << started.to_string();
  return peer;
}

Peer& TransportConformance::add_listening(const std::string& host, const std::function<void(Recorder&)>& prepare) {
  Peer& peer = add(host, prepare);
  auto bound = peer.transport->listen(world_->any_port(host));
  EXPECT_TRUE(bound.ok()) << bound.status().to_string();
  if (bound.ok()) peer.address = *bound;
  return peer;
}

TransportConformance::Linked TransportConformance::link(Peer& from, Peer& to) {
  const std::size_t before = to.seen.accepted().size();
  const LinkId ours = from.transport->connect(to.address, std::chrono::seconds(10));
  EXPECT_TRUE(until(
      [&] { return from.seen.closed(ours) || (from.seen.connected(ours) && to.seen.accepted().size() > before); }));
  if (const auto why = from.seen.closed(ours)) ADD_FAILURE() << "no link: " << why->to_string();
  const auto accepted = to.seen.accepted();
  return {ours, accepted.empty() ? LinkId() : accepted.back()};
}

bool TransportConformance::until(const std::function<bool()>& holds, Duration limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (GetParam().threads) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    } else if (!world_->step()) {
      return holds();
    }
  }
  return true;
}

namespace {

// Eight bytes at a time: the suite moves hundreds of megabytes.
void fill(std::span<std::byte> bytes, std::uint64_t number) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(number)) {
    const std::uint64_t word = (number + 1) * 0x9E37'79B9'7F4A'7C15 + i;
    std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), bytes.size() - i));
  }
}

std::optional<std::size_t> first_difference(std::span<const std::byte> bytes, std::uint64_t number) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(number)) {
    const std::uint64_t word = (number + 1) * 0x9E37'79B9'7F4A'7C15 + i;
    if (std::memcmp(bytes.data() + i, &word, std::min(sizeof(word), bytes.size() - i)) != 0) return i;
  }
  return std::nullopt;
}

}  // namespace

// The head opens with the message's number when it is long enough to hold it.
TransportMessage make_message(BufferPool& pool, Lane lane, std::uint64_t number, std::size_t head_bytes,
                              std::size_t payload_bytes) {
  TransportMessage message;
  message.lane = lane;
  message.head.resize(head_bytes);
  if (head_bytes >= sizeof(number)) {
    std::memcpy(message.head.data(), &number, sizeof(number));
    fill(std::span(message.head).subspan(sizeof(number)), number);
  }
  if (payload_bytes != 0) {
    message.payload = pool.take(payload_bytes);
    fill(message.payload->bytes(), number);
  }
  return message;
}

std::uint64_t number_of(const TransportMessage& message) {
  std::uint64_t number = ~std::uint64_t{0};
  if (message.head.size() >= sizeof(number)) std::memcpy(&number, message.head.data(), sizeof(number));
  return number;
}

::testing::AssertionResult follows_pattern(const TransportMessage& message) {
  const std::uint64_t number = number_of(message);
  if (message.head.size() > sizeof(number)) {
    if (const auto at = first_difference(std::span(message.head).subspan(sizeof(number)), number)) {
      return ::testing::AssertionFailure() << "the head of message " << number << " differs after byte " << *at;
    }
  }
  const auto bytes = message.payload != nullptr ? message.payload->view() : std::span<const std::byte>();
  if (const auto at = first_difference(bytes, number)) {
    return ::testing::AssertionFailure() << "the payload of message " << number << " differs after byte " << *at;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace collab::testing
