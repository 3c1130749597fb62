// What the user's caps leave to each link (COLLAB_MAX_MBIT_UP, COLLAB_MAX_MBIT_DOWN).
//
// What is sent is counted before it goes. What comes is held back by its senders: each peer is told how much, a part of
// the cap by how many send just now. Not to read is the last resort: what a sender has handed to its system stands
// there, looks lost to it, and is sent again.
#include <algorithm>
#include <cmath>

#include "transport/tcp/tcp_engine.h"

namespace collab::tcp {
namespace {

constexpr double kAllotted = 0.97;  // of the cap: headers and TLS come on top
constexpr double kWorthTelling = 0.02;
constexpr Duration kLately = std::chrono::seconds(1);

}  // namespace

bool TcpEngine::capped(const TcpLink& link) const { return up_.capped() || link.allowed.capped(); }

bool TcpEngine::may_send(TcpLink& link) {
  if (link.silent) return false;
  const TimePoint time = now();
  const bool up = up_.open(time);
  if (link.allowed.open(time) && up) return true;
  if (!link.outbox(Lane::kData).empty()) wait_for_bucket(std::max(up_.opens_at(time), link.allowed.opens_at(time)));
  return false;
}

bool TcpEngine::may_read(Connection& from, std::size_t bytes) {
  if (down_.capped()) down_.take(bytes);
  if (from.state() != Connection::State::kAttached) return true;
  if (TcpLink* const link = find(from.link); link != nullptr && link->unhandled->is_full()) {
    from.pause = Connection::Pause::kUnhandled;
    return false;
  }
  if (!down_.capped() || from.index == 0 || down_.open(now())) return true;
  from.pause = Connection::Pause::kCap;
  paused_.push_back(from.weak_from_this());
  wait_for_bucket(down_.opens_at(now()));
  return false;
}

void TcpEngine::wait_for_bucket(TimePoint until) {
  if (until >= bucket_due_) return;
  bucket_due_ = until;
  bucket_timer_.expires_after(std::max<Duration>(until - now(), std::chrono::milliseconds(1)));
  bucket_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || stopped_) return;
    bucket_due_ = kNever;
    go_on_reading();
    std::vector<LinkId> ids;
    for (const auto& [id, link] : links_) ids.push_back(id);
    for (const LinkId id : ids) {
      if (TcpLink* const link = find(id); link != nullptr) pump(*link);
    }
  });
}

// One after the other: each may take much at once.
void TcpEngine::go_on_reading() {
  const TimePoint time = now();
  while (!paused_.empty() && down_.open(time)) {
    const ConnectionPtr connection = paused_.front().lock();
    paused_.pop_front();
    if (connection == nullptr) continue;
    read_on(*connection);
    break;
  }
  if (!paused_.empty()) wait_for_bucket(std::max(down_.opens_at(time), time + std::chrono::milliseconds(1)));
}

void TcpEngine::read_on(Connection& connection) {
  connection.pause = Connection::Pause::kNone;
  connection.last_heard = now();
  connection.resume_reading();
}

void TcpEngine::has_room(TcpLink& link) {
  for (const Slot& slot : link.slots) {
    if (slot.connection != nullptr && slot.connection->pause == Connection::Pause::kUnhandled)
      read_on(*slot.connection);
  }
}

void TcpEngine::allot(TimePoint time) {
  if (!down_.capped()) return;
  const auto sends = [&](const TcpLink& link) { return time - link.data_came < kLately; };
  double senders = 0;
  for (const auto& [id, link] : links_) senders += sends(*link) ? 1 : 0;
  for (const auto& [id, link] : links_) {
    Connection* const control = link->control();
    if (link->state != TcpLink::State::kOpen || control == nullptr) continue;
    const double allowance = kAllotted * down_.rate() / (sends(*link) ? senders : senders + 1);
    const auto told = static_cast<double>(link->allowance);
    if (std::abs(allowance - told) <= kWorthTelling * told) continue;
    link->allowance = static_cast<std::uint64_t>(allowance);
    control->send(encode_allow(std::max<std::uint64_t>(1, link->allowance)));
    control->flush();
  }
}

}  // namespace collab::tcp
