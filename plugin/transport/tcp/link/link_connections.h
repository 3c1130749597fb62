// The connections of one link: the control connection and those for data, each at its index; and when there was none.
//
// Threads: the transport's IO thread. Ownership: shares the connections with the operations under way. Who changes it:
// the engine's Dialler (what is dialled, and fails) and Greeter (what attaches and detaches).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/tcp/connection/tcp_connection.h"

namespace collab::tcp {

class LinkConnections {
 public:
  // The control connection's place is always there.
  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] const ConnectionPtr& at(std::size_t index) const { return places_[index]; }  // null: none
  [[nodiscard]] bool attached(std::size_t index) const {
    return places_[index] != nullptr && places_[index]->state() == Connection::State::kAttached;
  }
  [[nodiscard]] std::uint16_t attached_data() const;
  [[nodiscard]] std::size_t data() const;  // attached, or under way
  [[nodiscard]] bool alone() const;        // none is attached
  // Carries control: the control connection, else any. Null: there is none.
  [[nodiscard]] Connection* control() const;
  [[nodiscard]] Connection* named(Carrier name) const;

  void grow(std::size_t places);  // at least
  void put(std::size_t index, ConnectionPtr connection);
  ConnectionPtr take(std::size_t index);

  // What ended with this many bytes on their way, for people.
  void note_cut(std::uint64_t bytes);
  // One attached. What there is to tell, where the link was alone before.
  struct Absence {
    Duration lasted{0};
    int cut_connections = 0;
    std::uint64_t cut_bytes = 0;  // about so many: headers and records count as sent
  };
  std::optional<Absence> end_absence(TimePoint now);
  // The last one failed; `by_peer`: closed by the other side, and not by silence.
  void begin_absence(TimePoint now, bool by_peer);
  [[nodiscard]] std::optional<TimePoint> alone_since() const { return alone_since_; }
  [[nodiscard]] bool ended_by_peer() const { return ended_by_peer_; }
  // The peer was heard: it, too, knows that it has a connection.
  void answered() { answered_ = true; }
  void note_fault(std::string words) { last_fault_ = std::move(words); }
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
