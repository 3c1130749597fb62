#include "transport/tcp/link/link_connections.h"

#include <utility>

namespace collab::tcp {

std::uint16_t LinkConnections::attached_data() const {
  std::uint16_t count = 0;
  for (std::size_t i = 1; i < size(); ++i) count = static_cast<std::uint16_t>(count + attached(i));
  return count;
}

std::size_t LinkConnections::data() const {
  std::size_t count = 0;
  for (std::size_t i = 1; i < size(); ++i) count += places_[i] != nullptr ? 1 : 0;
  return count;
}

bool LinkConnections::alone() const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (attached(i)) return false;
  }
  return true;
}

Connection* LinkConnections::control() const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (attached(i) && !places_[i]->slot.held()) return places_[i].get();
  }
  return nullptr;
}

Connection* LinkConnections::named(ConnectionId name) const {
  for (const ConnectionPtr& connection : places_) {
    if (connection != nullptr && connection->name == name) return connection.get();
  }
  return nullptr;
}

void LinkConnections::grow(std::size_t places) {
  if (places_.size() < places) places_.resize(places);
}

void LinkConnections::put(std::size_t index, ConnectionPtr connection) { places_[index] = std::move(connection); }

ConnectionPtr LinkConnections::take(std::size_t index) { return std::exchange(places_[index], nullptr); }

void LinkConnections::note_cut(std::uint64_t bytes) {
  cut_bytes_ += bytes;
  ++cut_connections_;
}

std::optional<LinkConnections::Absence> LinkConnections::end_absence(TimePoint now) {
  Absence absence{Duration(0), std::exchange(cut_connections_, 0), std::exchange(cut_bytes_, 0)};
  if (!alone_since_) return std::nullopt;
  absence.lasted = now - *std::exchange(alone_since_, std::nullopt);
  answered_ = false;
  return absence;
}

void LinkConnections::begin_absence(TimePoint now, bool by_peer) {
  alone_since_ = now;
  // Unchanged until the peer is heard again. A connection that the peer was still dialling when it closed the others is
  // no sign of life.
  ended_by_peer_ = by_peer && (answered_ || ended_by_peer_);
}

}  // namespace collab::tcp
