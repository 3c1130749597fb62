// What the engine knows of one link: a session that outlives its connections.
//
//   dialled:   resolving ──▶ dialling ──(welcome)──▶ open
//   accepted:                  (hello that opens)──▶ open
//
//   open ◀──a connection attaches── alone ──COLLAB_LINK_GRACE──▶ ended, with the reason
//     └──the last connection fails──▶ ┘ ├──the peer's port refuses twice, or a dialler that had closed all its
//                                       │  connections does not redial: the process is gone──▶ ended
//                                       └──the peer knows the link no more──▶ ended
//   open ──close() or a bye──▶ closing: queues run dry, bye goes out; a bye sent and one received──▶ ended, ok
//
// Threads: the IO thread only. Ownership: the engine owns links; a link shares its connections with it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collab/transport.h"
#include "transport/tcp/tcp_connection.h"
#include "transport/tcp/tcp_inbox.h"
#include "transport/tcp/tcp_outbox.h"
#include "transport/tcp/tcp_pace.h"
#include "transport/tcp/tcp_unhandled.h"

namespace collab::tcp {

// Of more data connections than these each is slow, and holds little at a time.
inline constexpr std::size_t kFewCarriers = 8;
inline constexpr std::size_t kShifts = 3;
inline constexpr std::size_t kSmallSegmentBytes = std::size_t{16} << 10;

struct Slot {
  ConnectionPtr connection;  // attached, or being dialled
  TimePoint redial_at = kNever;
  Duration back_off{0};
  [[nodiscard]] bool attached() const {
    return connection != nullptr && connection->state() == Connection::State::kAttached;
  }
};

struct TcpLink {
  enum class State : std::uint8_t { kResolving, kDialling, kOpen };

  TcpLink(LinkId own_id, const std::shared_ptr<BufferPool>& pool, const std::shared_ptr<UnfinishedShare>& share,
          std::shared_ptr<Unhandled> not_handled, ConnectionSearch connection_search)
      : id(own_id),
        search(connection_search),
        unhandled(std::move(not_handled)),
        in{Inbox(Lane::kControl, pool, share), Inbox(Lane::kData, pool, share)} {}

  LinkId id;
  State state = State::kResolving;
  bool dialled = false;
  std::string peer;  // for messages to people
  Id session{};
  Id process{};  // the peer's, once known

  // Dialling.
  Endpoints endpoints;
  std::size_t next_endpoint = 0;
  TimePoint deadline = kNever;  // for opening, then for closing
  int refused_ports = 0;        // redials of the control connection in a row that met no listener

  // Connections: the control connection and those for data.
  std::vector<Slot> slots = std::vector<Slot>(1);
  ConnectionSearch search;
  LinkPace pace;
  Silence silence;
  bool silent = false;  // nothing more is sent meanwhile
  Backlog backlog;
  double behind = 0;                        // other links, see Remaining
  TokenBucket allowed{0};                   // what the peer would have come, at most
  std::uint64_t allowance = 0;              // that the peer was told; 0: nothing yet
  TimePoint data_came{};                    // last
  std::optional<Duration> way_out;          // the shortest since the last tick, in clocks that differ by a constant
  std::uint64_t delivered = 0, resent = 0;  // bytes of data connections, as the kernel counts
  std::uint16_t wish = 0;                   // that the dialler was told; 0: none
  std::uint16_t peer_wants = 1;
  std::size_t turn = 0;   // where the next round over the data connections begins
  std::size_t shift = 0;  // of the data connections, see carriers()
  TimePoint shift_since{};
  TimePoint data_arrived{};  // at the peer, as last heard
  TimePoint alone_since = kNever;
  int cut_connections = 0;      // that ended with bytes on their way, since the last one attached
  std::uint64_t cut_bytes = 0;  // about so many: headers and records count as sent
  bool answered = false;        // since it was last alone: the dialler, too, knows it has a connection
  bool ended_by_peer = false;   // and not by silence
  std::string last_fault;
  Duration round_trip{0};  // smoothed; 0: not measured yet

  // Messages.
  std::array<Outbox, 2> out{Outbox(Lane::kControl), Outbox(Lane::kData)};
  std::shared_ptr<Unhandled> unhandled;
  std::array<Inbox, 2> in;
  bool ack_due = false;
  std::uint64_t bytes_unacknowledged = 0;  // arrived since the last acknowledgement
  bool was_backlogged = false;
  bool pump_posted = false;

  // Closing.
  bool ended = false;
  bool closing = false;
  bool bye_sent = false;
  bool bye_came = false;

  [[nodiscard]] Outbox& outbox(Lane lane) { return out[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] Inbox& inbox(Lane lane) { return in[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] std::uint16_t attached_data() const {
    std::uint16_t count = 0;
    for (std::size_t i = 1; i < slots.size(); ++i) count = static_cast<std::uint16_t>(count + slots[i].attached());
    return count;
  }
  [[nodiscard]] bool alone() const {
    for (const Slot& slot : slots) {
      if (slot.attached()) return false;
    }
    return true;
  }
  // Data stands in line for connections that are there.
  [[nodiscard]] bool waits() const { return was_backlogged && !alone(); }
  // The connections that data goes to now, among the first `most` data connections: a third of them where their
  // congestion control needs a rest, and otherwise all.
  [[nodiscard]] std::vector<Connection*> carriers(std::size_t most) const {
    std::vector<Connection*> all, on_shift;
    for (std::size_t i = 1; i < slots.size() && i <= most; ++i) {
      if (!slots[i].attached() || slots[i].connection->held) continue;
      all.push_back(slots[i].connection.get());
      if (all.back()->rests && i % kShifts == shift % kShifts) on_shift.push_back(all.back());
    }
    return on_shift.empty() ? all : on_shift;
  }
  // Carries control: the control connection, else any.
  [[nodiscard]] Connection* control() const {
    for (const Slot& slot : slots) {
      if (slot.attached() && !slot.connection->held) return slot.connection.get();
    }
    return nullptr;
  }
};

}  // namespace collab::tcp
