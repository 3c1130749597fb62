#include "transport/tcp/engine/caps.h"

#include <algorithm>

#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {
namespace {

constexpr double kAllotted = 0.97;  // of the cap: headers and TLS come on top

}  // namespace

Caps::Caps(EngineParts& all)
    : all_(all),
      up_(all.context.options.max_mbit_up * 1e6 / 8),
      down_(all.context.options.max_mbit_down * 1e6 / 8),
      timer_(all.context.io) {}

bool Caps::admit_send(TcpLink& link) {
  const TimePoint now = all_.now();
  const bool up = up_.open(now);
  if (link.caps.open(now) && up) return true;
  if (!link.session.outbox(Lane::kData).empty()) {
    wait_for_bucket(std::max(up_.opens_at(now), link.caps.opens_at(now)));
  }
  return false;
}

void Caps::sent(TcpLink& link, std::size_t bytes) {
  up_.take(bytes);
  link.caps.take(bytes);
}

bool Caps::admit_read(Connection& from, std::size_t bytes) {
  if (down_.capped()) down_.take(bytes);
  if (from.state() != Connection::State::kAttached) return true;
  if (TcpLink* const link = all_.links.find(from.slot.link()); link != nullptr && link->session.check_full()) {
    from.pause(Connection::Pause::kUnhandled);
    return false;
  }
  if (!down_.capped() || from.slot.index() == 0 || down_.open(all_.now())) return true;
  from.pause(Connection::Pause::kCap);
  paused_.push_back(from.weak_from_this());
  wait_for_bucket(down_.opens_at(all_.now()));
  return false;
}

void Caps::wait_for_bucket(TimePoint until) {
  if (until >= due_) return;
  due_ = until;
  timer_.expires_after(std::max<Duration>(until - all_.now(), std::chrono::milliseconds(1)));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || all_.context.stopped) return;
    due_ = kNever;
    go_on_reading();
    for (const LinkId id : all_.links.ids()) {
      if (TcpLink* const link = all_.links.find(id); link != nullptr) all_.striping.pump(*link);
    }
  });
}

// Resumes one connection at a time, as each may read much at once.
void Caps::go_on_reading() {
  const TimePoint now = all_.now();
  while (!paused_.empty() && down_.open(now)) {
    const ConnectionPtr connection = paused_.front().lock();
    paused_.pop_front();
    if (connection == nullptr) continue;
    read_on(*connection);
    break;
  }
  if (!paused_.empty()) wait_for_bucket(std::max(down_.opens_at(now), now + std::chrono::milliseconds(1)));
}

void Caps::read_on(Connection& connection) {
  all_.liveness.heard(connection);
  connection.resume_reading();
}

void Caps::resume_unhandled(TcpLink& link) {
  for (std::size_t i = 0; i < link.connections.size(); ++i) {
    const ConnectionPtr connection = link.connections.at(i);
    if (connection != nullptr && connection->paused() == Connection::Pause::kUnhandled) read_on(*connection);
  }
}

// An allowance sent over an earlier control connection may be lost, so it is sent again.
void Caps::control_attached(TcpLink& link, TimePoint now) {
  link.caps.forget_told();
  tick(now);
}

void Caps::tick(TimePoint now) {
  for (const LinkId id : all_.links.ids()) {  // unhandled messages of other links may be handled by now
    TcpLink* const link = all_.links.find(id);
    if (link != nullptr && !link->session.check_full()) resume_unhandled(*link);
  }
  if (!down_.capped()) return;
  double senders = 0;
  for (const auto& [id, link] : all_.links.all()) senders += link->caps.sends(now) ? 1 : 0;
  for (const auto& [id, link] : all_.links.all()) {
    Connection* const control = link->connections.control();
    if (!link->open() || control == nullptr) continue;
    const double allowance = kAllotted * down_.rate() / (link->caps.sends(now) ? senders : senders + 1);
    const auto told = link->caps.tell(allowance);
    if (!told) continue;
    control->send(encode_allow(*told));
    control->flush();
  }
}

}  // namespace collab::tcp
