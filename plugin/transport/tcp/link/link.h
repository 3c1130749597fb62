// The state of one link: a session that outlives its connections.
//
//   dialled:   resolving ──▶ dialling ──(welcome)──▶ open
//   accepted:                  (hello that opens)──▶ open
//
//   open ◀──a connection attaches── alone ──COLLAB_LINK_GRACE──▶ ended, with the reason
//     └──the last connection fails──▶ ┘ ├──the peer's port refuses twice, or a dialler that had closed all its
//                                       │  connections does not redial: the process is gone──▶ ended
//                                       └──the peer no longer knows the link──▶ ended
//   open ──close() or a bye──▶ closing: queues run dry, bye goes out; a bye sent and one received──▶ ended, ok
//
// Its parts have private fields. The header of each part says which parts of the engine change it.
//
// Threads: the IO thread only. Ownership: the engine's Links owns links; a link shares its connections.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "transport/tcp/link/connection_number.h"
#include "transport/tcp/link/link_caps.h"
#include "transport/tcp/link/link_connections.h"
#include "transport/tcp/link/link_pacing.h"
#include "transport/tcp/link/link_session.h"
#include "transport/tcp/link/redial.h"
#include "transport/tcp/link/rotation.h"

namespace collab::tcp {

// The smoothed round trip; 0: not measured yet. Liveness measures it.
class RoundTrip {
 public:
  [[nodiscard]] Duration value() const { return value_; }
  void note(Duration took) { value_ = value_ == Duration(0) ? took : (7 * value_ + took) / 8; }

 private:
  Duration value_{0};
};

// At which data connection the next pump starts, and whether a pump is posted. Belongs to Striping.
class Turn {
 public:
  [[nodiscard]] std::size_t take() { return next_++; }
  [[nodiscard]] bool post() { return !std::exchange(posted_, true); }  // false: already posted
  void begin() { posted_ = false; }

 private:
  std::size_t next_ = 0;
  bool posted_ = false;
};

class TcpLink {
 public:
  enum class State : std::uint8_t { kResolving, kDialling, kOpen };

  TcpLink(LinkId id, ConnectionNumber connection_number, const std::shared_ptr<BufferPool>& pool,
          const std::shared_ptr<UnfinishedShare>& share, std::shared_ptr<Unhandled> unhandled,
          std::shared_ptr<ControlBytes> control)
      : session(pool, share, std::move(unhandled), std::move(control)), number(connection_number), id_(id) {}

  [[nodiscard]] LinkId id() const { return id_; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool open() const { return state_ == State::kOpen; }
  [[nodiscard]] bool dialled() const { return dialled_; }
  [[nodiscard]] const std::string& peer() const { return peer_; }  // for messages to people
  [[nodiscard]] const Id& name() const { return name_; }           // the link's name on the wire
  [[nodiscard]] const Id& process() const { return process_; }     // the peer's process, once known
  [[nodiscard]] bool ended() const { return ended_; }

  void dial(const std::string& address, const Id& name) {
    dialled_ = true;
    peer_ = address;
    name_ = name;
  }
  void found() { state_ = State::kDialling; }
  void welcomed(const Id& process) {
    process_ = process;
    state_ = State::kOpen;
  }
  void accept(std::string peer, const Id& name, const Id& process) {
    peer_ = std::move(peer);
    name_ = name;
    welcomed(process);
  }
  void end() { ended_ = true; }

  LinkConnections connections;
  Redial redial;
  LinkSession session;
  RoundTrip round_trip;
  LinkPacing pacing;
  Rotation rotation;
  LinkCaps caps;
  ConnectionNumber number;
  Turn turn;

 private:
  LinkId id_;
  State state_ = State::kResolving;
  bool dialled_ = false;
  std::string peer_;
  Id name_{};
  Id process_{};
  bool ended_ = false;
};

}  // namespace collab::tcp
