// The connections of one link: one for control and several for data, each at its index. Also since when there is none.
//
// Threads: the transport's IO thread. Ownership: shares the connections with the operations in progress. The engine's
// Dialler changes it (dials and failures), and its Greeter (connections that attach and detach).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/tcp/connection/tcp_connection.h"

namespace collab::tcp {

class LinkConnections {
 public:
  // The control connection always has a place.
  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] const ConnectionPtr& at(std::size_t index) const { return places_[index]; }  // null: none
  [[nodiscard]] bool attached(std::size_t index) const {
    return places_[index] != nullptr && places_[index]->state() == Connection::State::kAttached;
  }
  [[nodiscard]] std::uint16_t attached_data() const;
  [[nodiscard]] std::size_t data() const;  // attached, or being dialled
  [[nodiscard]] bool alone() const;        // none is attached
  // The connection that carries control: the control connection, otherwise any. Null: there is none.
  [[nodiscard]] Connection* control() const;
  [[nodiscard]] Connection* named(ConnectionId name) const;

  void grow(std::size_t places);  // to at least so many
  void put(std::size_t index, ConnectionPtr connection);
  ConnectionPtr take(std::size_t index);

  // Something ended with this many bytes on their way; for messages to people.
  void note_cut(std::uint64_t bytes);
  // A connection attached. Gives what there is to report if the link was alone before.
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
  // The peer was heard, so it knows too that it has a connection.
  void answered() { answered_ = true; }
  void note_fault(std::string fault) { last_fault_ = std::move(fault); }
  [[nodiscard]] const std::string& last_fault() const { return last_fault_; }

 private:
  std::vector<ConnectionPtr> places_ = std::vector<ConnectionPtr>(1);
  std::optional<TimePoint> alone_since_;
  int cut_connections_ = 0;  // since the last one attached
  std::uint64_t cut_bytes_ = 0;
  bool answered_ = false;  // since it was last alone
  bool ended_by_peer_ = false;
  std::string last_fault_;
};

}  // namespace collab::tcp
