// The state of one link: its connections, its two lanes, and how far it is in opening and closing.
//
//   dialled:   resolving ──▶ connecting ──(all hellos sent, welcome came)──▶ open
//   accepted:                connecting ──(all hellos came, welcome sent)──▶ open
//   open ──close() or a bye──▶ closing: queues run dry, bye goes out; ends when each side has taken all the
//   other sent and said so. A connection that breaks before that ends the link with the reason.
//
// Threads: the progress thread only. Ownership: the engine's UcxLinks owns links. Links share connections, and
// connections their worker, with the operations in progress on them.
#pragma once

#include <ucp/api/ucp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collab/transport.h"
#include "transport/ucx/ucx_api.h"
#include "transport/ucx/ucx_closing.h"
#include "transport/ucx/ucx_lane.h"
#include "transport/ucx/ucx_resolver.h"

namespace collab {

inline constexpr Duration kCloseLimit = std::chrono::seconds(5);  // for a closing link without a sign of life

// A UCX worker. Over shared memory, all peers of a worker write into one queue, and a peer killed while writing leaves
// that queue stuck. So each link has its own worker, and only that link is hurt. A worker ends with its last
// connection.
struct UcxWorker {
  const UcxApi& api;
  ucp_worker_h handle = nullptr;
  int wake_fd = -1;
  std::uint64_t client_id = 0;  // of the dialler's worker; groups the accepted connections of a link
  explicit UcxWorker(const UcxApi& functions) : api(functions) {}
  ~UcxWorker() {
    if (handle != nullptr) api.worker_destroy(handle);
  }
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
};
using UcxWorkerPtr = std::shared_ptr<UcxWorker>;

// One UCX endpoint; over TCP, one connection. UcxEndpoints opens and closes it.
class UcxConnection {
 public:
  UcxConnection(UcxWorkerPtr worker, ucp_ep_h endpoint, std::string peer)
      : worker_(std::move(worker)), endpoint_(endpoint), peer_(std::move(peer)) {}

  [[nodiscard]] const UcxWorkerPtr& worker() const { return worker_; }
  [[nodiscard]] ucp_ep_h endpoint() const { return endpoint_; }
  [[nodiscard]] bool closed() const { return endpoint_ == nullptr; }
  ucp_ep_h take_endpoint() { return std::exchange(endpoint_, nullptr); }
  [[nodiscard]] const std::string& peer() const { return peer_; }

  [[nodiscard]] LinkId link() const { return link_; }
  [[nodiscard]] bool stranger() const { return link_ == LinkId(); }  // accepted, and its hello has not come
  [[nodiscard]] TimePoint deadline() const { return deadline_; }     // of the hello
  void wait_until(TimePoint deadline) { deadline_ = deadline; }
  void belong_to(LinkId link) {
    link_ = link;
    deadline_ = kNever;
  }

  // Counts the messages in flight.
  void begin(std::size_t bytes) {
    ++messages_;
    bytes_ += bytes;
  }
  void end(std::size_t bytes) {
    --messages_;
    bytes_ -= bytes;
  }
  [[nodiscard]] std::size_t messages_in_flight() const { return messages_; }
  [[nodiscard]] std::size_t bytes_in_flight() const { return bytes_; }

 private:
  const UcxWorkerPtr worker_;
  ucp_ep_h endpoint_;
  const std::string peer_;
  LinkId link_;
  TimePoint deadline_ = kNever;
  std::size_t messages_ = 0;
  std::size_t bytes_ = 0;
};
using UcxConnectionPtr = std::shared_ptr<UcxConnection>;

// The addresses that a dial tries in turn, all from one worker. Belongs to UcxDialler.
class UcxDial {
 public:
  void found(SocketAddresses addresses) { addresses_ = std::move(addresses); }
  [[nodiscard]] bool more() const { return next_ < addresses_.size(); }
  const SocketAddress& next() { return addresses_[next_++]; }
  void use(UcxWorkerPtr worker) { worker_ = std::move(worker); }
  [[nodiscard]] const UcxWorkerPtr& worker() const { return worker_; }  // null before the first address

 private:
  UcxWorkerPtr worker_;
  SocketAddresses addresses_;
  std::size_t next_ = 0;
};

class UcxLink {
 public:
  enum class State : std::uint8_t { kResolving, kConnecting, kOpen };
  using Token = std::array<std::uint64_t, 2>;
  using Connections = std::vector<UcxConnectionPtr>;

  UcxLink(LinkId id, bool dialled, std::string peer, const Token& token, TimePoint deadline)
      : id_(id), dialled_(dialled), peer_(std::move(peer)), token_(token), deadline_(deadline) {}

  [[nodiscard]] LinkId id() const { return id_; }
  [[nodiscard]] bool dialled() const { return dialled_; }
  [[nodiscard]] const std::string& peer() const { return peer_; }  // for messages to people
  [[nodiscard]] const Token& token() const { return token_; }      // drawn by the dialler; groups the connections

  [[nodiscard]] bool connecting() const { return state_ == State::kConnecting; }
  [[nodiscard]] bool open() const { return state_ == State::kOpen; }
  void connect() { state_ = State::kConnecting; }
  void opened() {
    state_ = State::kOpen;
    deadline_ = kNever;
  }
  // The deadline for opening, later for closing.
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  void close(TimePoint now) { deadline_ = now + kCloseLimit; }
  // The peer was heard.
  void go_on(TimePoint now) {
    if (closing.begun()) close(now);
  }

  // The first connection carries control messages. On the accepting side, connections are null until their hello.
  [[nodiscard]] const Connections& connections() const { return connections_; }
  [[nodiscard]] const UcxConnectionPtr& control() const { return connections_.front(); }
  void add(UcxConnectionPtr connection) { connections_.push_back(std::move(connection)); }
  void expect(std::size_t connections) { connections_.resize(connections); }
  void put(std::size_t index, UcxConnectionPtr connection) { connections_[index] = std::move(connection); }
  [[nodiscard]] bool complete() const { return std::count(connections_.begin(), connections_.end(), nullptr) == 0; }
  Connections take_connections() { return std::exchange(connections_, {}); }

  [[nodiscard]] UcxLane& lane(Lane which) { return lanes[static_cast<std::size_t>(which)]; }

  std::array<UcxLane, 2> lanes;
  UcxClosing closing;
  UcxDial dial;

 private:
  const LinkId id_;
  State state_ = State::kResolving;
  const bool dialled_;
  const std::string peer_;
  const Token token_;
  TimePoint deadline_;
  Connections connections_;
};

}  // namespace collab
