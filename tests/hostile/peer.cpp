#include "tests/hostile/peer.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace collab::hostile {
namespace {

constexpr Duration kDialLimit = std::chrono::seconds(3);
constexpr Duration kSendLimit = std::chrono::milliseconds(500);
constexpr std::size_t kWindowBytes = std::size_t{64} << 20;  // of a link
constexpr std::size_t kCostOfMessage = 4096;                 // so that there are at most so many small ones
constexpr std::size_t kKept = 256;                           // messages that were not asked for
constexpr std::size_t kMostLines = 20;
constexpr std::size_t kMostWords = 120;

}  // namespace

std::uint64_t& Counts::entry(std::map<std::string, std::uint64_t>& in, const std::string& words) {
  std::string key;
  bool quoted = false;
  for (const char c : words) {
    if (c == '"') quoted = !quoted;
    if (quoted && c != '"') continue;
    const bool number = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!number) {
      key += c;
    } else if (key.empty() || key.back() != '#') {
      key += '#';
    }
    if (key.size() >= kMostWords) break;
  }
  if (in.size() >= kMostLines && !in.contains(key)) key = "others";
  return in[key];
}

Result<std::unique_ptr<Peer>> Peer::make(const TcpOptions& options, Counts& counts) {
  Result<std::unique_ptr<Transport>> transport = make_tcp_transport(options);
  if (!transport.ok()) return transport.status();
  std::unique_ptr<Peer> peer(new Peer(counts));
  peer->transport_ = std::move(*transport);
  COLLAB_RETURN_IF_ERROR(peer->transport_->start(peer.get()));
  return peer;
}

Peer::~Peer() { transport_.reset(); }

std::optional<LinkId> Peer::dial(const std::string& address) {
  const LinkId link = transport_->connect(address, kDialLimit);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kDialLimit + kSendLimit, [&] { return lines_[link].connected || lines_[link].closed; });
  Line& line = lines_[link];
  if (line.connected && !line.closed) {
    ++counts_.opened;
    return link;
  }
  ++counts_.failed;
  lines_.erase(link);
  return std::nullopt;
}

bool Peer::is_open(LinkId link) {
  const std::lock_guard lock(mutex_);
  const auto line = lines_.find(link);
  return line != lines_.end() && !line->second.closed;
}

void Peer::close(LinkId link) {
  {
    const std::lock_guard lock(mutex_);
    lines_[link].ours = true;
  }
  transport_->close(link);
}

bool Peer::send(LinkId link, const wire::Message& message, BufferPtr payload) {
  Result<std::vector<std::byte>> head = wire::try_encode(message);
  if (!head.ok()) return false;  // a drawn message that breaks a rule
  const Lane lane = payload != nullptr ? Lane::kData : Lane::kControl;
  return send_frame(link, std::move(*head), std::move(payload), lane);
}

bool Peer::send_frame(LinkId link, std::vector<std::byte> head, BufferPtr payload, Lane lane) {
  const std::size_t bytes = head.size() + (payload != nullptr ? payload->view().size() : 0);
  std::uint64_t token = 0;
  {
    std::unique_lock lock(mutex_);
    const auto has_room = [&] { return lines_[link].closed || lines_[link].waits < kWindowBytes; };
    if (!changed_.wait_for(lock, kSendLimit, has_room) || lines_[link].closed) return false;
    token = next_token_++;
    costs_[token] = bytes + kCostOfMessage;
    lines_[link].waits += bytes + kCostOfMessage;
    ++counts_.messages;
    counts_.bytes += bytes;
  }
  transport_->send(link, {.lane = lane, .head = std::move(head), .payload = std::move(payload)}, token);
  return true;
}

std::optional<wire::Message> Peer::next(LinkId link, Duration limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::max(limit, Duration(0)),
                    [&] { return lines_[link].closed || !lines_[link].came.empty(); });
  std::deque<wire::Message>& came = lines_[link].came;
  if (came.empty()) return std::nullopt;
  wire::Message message = std::move(came.front());
  came.pop_front();
  return message;
}

void Peer::on_connected(LinkId link) {
  const std::lock_guard lock(mutex_);
  lines_[link].connected = true;
  changed_.notify_all();
}

void Peer::on_message(LinkId link, TransportMessage message) {
  Result<wire::Message> decoded = wire::decode(message.head);
  const std::lock_guard lock(mutex_);
  if (!decoded.ok()) return;
  const auto* refuse = std::get_if<wire::Refuse>(&*decoded);
  counts_.answered(refuse != nullptr ? "Refuse: " + refuse->reason : std::string(wire::name_of(*decoded)));
  Line& line = lines_[link];
  if (line.came.size() >= kKept) line.came.pop_front();
  line.came.push_back(std::move(*decoded));
  changed_.notify_all();
}

void Peer::on_sent(LinkId link, std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  const auto cost = costs_.find(token);
  if (cost == costs_.end()) return;
  lines_[link].waits -= std::min(lines_[link].waits, cost->second);
  costs_.erase(cost);
  changed_.notify_all();
}

void Peer::on_closed(LinkId link, Status why) {
  const std::lock_guard lock(mutex_);
  Line& line = lines_[link];
  line.closed = true;
  if (line.connected && !line.ours) counts_.ended(why.ok() ? "ended well" : why.message());
  changed_.notify_all();
}

}  // namespace collab::hostile
