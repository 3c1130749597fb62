// The connections of one link: one for control and several for data, each at its index. Also knows how long the link
// has been without any.
//
// Threads: the transport's IO thread. Ownership: shares the connections with the operations in progress. The engine's
// Dialler (dials and failures) and Greeter (attach and detach) change it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/tcp/connection/tcp_connection.h"

namespace collab::tcp {

class LinkConnections {
 public:
  // Counts the control connection's place, which always exists.
  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] const ConnectionPtr& at(std::size_t index) const { return places_[index]; }  // null: none
  [[nodiscard]] bool attached(std::size_t index) const {
    return places_[index] != nullptr && places_[index]->state() == Connection::State::kAttached;
  }
  [[nodiscard]] std::uint16_t attached_data() const;
  [[nodiscard]] std::size_t data() const;  // attached, or being dialled
  [[nodiscard]] bool alone() const;        // no connection is attached
  // The connection that carries control messages: the control connection if attached, otherwise any. Null: none.
  [[nodiscard]] Connection* control() const;
  [[nodiscard]] Connection* named(ConnectionId name) const;

  void grow(std::size_t places);  // to at least this many
  void put(std::size_t index, ConnectionPtr connection);
  ConnectionPtr take(std::size_t index);

  // A connection ended with this many bytes in flight; for log messages.
  void note_cut(std::uint64_t bytes);
  // A connection attached. Returns a report of the absence if the link was alone before.
  struct Absence {
    Duration lasted{0};
    int cut_connections = 0;
    std::uint64_t cut_bytes = 0;  // approximate: headers and records count as sent
  };
  std::optional<Absence> end_absence(TimePoint now);
  // The last connection failed. `by_peer`: the other side closed it, and it was not silent.
  void begin_absence(TimePoint now, bool by_peer);
  [[nodiscard]] std::optional<TimePoint> alone_since() const { return alone_since_; }
  [[nodiscard]] bool ended_by_peer() const { return ended_by_peer_; }
  // The peer was heard, so the peer also knows that a connection is attached.
  void answered() { answered_ = true; }
  void note_fault(std::string fault) { last_fault_ = std::move(fault); }
  [[nodiscard]] const std::string& last_fault() const { return last_fault_; }

 private:
  std::vector<ConnectionPtr> places_ = std::vector<ConnectionPtr>(1);
  std::optional<TimePoint> alone_since_;
  int cut_connections_ = 0;  // since a connection last attached
  std::uint64_t cut_bytes_ = 0;
  bool answered_ = false;  // heard since the link was last alone
  bool ended_by_peer_ = false;
  std::string last_fault_;
};

}  // namespace collab::tcp
