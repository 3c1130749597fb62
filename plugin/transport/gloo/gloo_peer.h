// One other rank of the group: two lanes of blocking sends and receives, each on a thread of its own.
//
// Threads: post() and stop() from any thread. The sink is called from the peer's threads and may block them. This is
// the back-pressure: while the sink blocks, the lane receives nothing.
// Ownership: the transport owns its peers and is their sink; the peer shares the backend.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collab/transport.h"
#include "transport/gloo/gloo_frame.h"

namespace collab {

class GlooSink {
 public:
  virtual ~GlooSink() = default;
  virtual void frame_arrived(int rank, Lane lane, const GlooFrame& frame, TransportMessage message) = 0;
  // Asked just before sending: a message of a link that has closed meanwhile is dropped.
  virtual bool still_wanted(const GlooFrame& frame) = 0;
  virtual void frame_sent(Lane lane, const GlooFrame& frame, std::uint64_t token) = 0;
  virtual void peer_broken(int rank, Status why) = 0;
};

// The backend, and the mutex that keeps threads from calling it at the same time.
struct GlooGroup {
  c10::intrusive_ptr<c10d::Backend> backend;
  std::mutex issue;
};

class GlooPeer {
 public:
  GlooPeer(std::shared_ptr<GlooGroup> group, std::shared_ptr<BufferPool> pool, int rank, GlooSink* sink);
  ~GlooPeer() { stop(); }
  GlooPeer(const GlooPeer&) = delete;
  GlooPeer& operator=(const GlooPeer&) = delete;

  void start();
  void post(Lane lane, const GlooFrame& frame, TransportMessage message, std::uint64_t token);
  // Waits until all posted control messages are sent, at most `limit`.
  void drain_control(Duration limit);
  // Gives up what is in progress and joins the threads. Idempotent.
  void stop();

 private:
  struct Outgoing {
    GlooFrame frame;
    TransportMessage message;
    std::uint64_t token = 0;
  };
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  struct LaneState {
    std::deque<Outgoing> queue;
    bool sending = false;
    std::thread sender;
    std::thread receiver;
    WorkPtr waiting_send;  // for stop() to abort
    WorkPtr waiting_receive;
  };

  [[nodiscard]] bool is_self() const;
  [[nodiscard]] LaneState& lane_state(Lane lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  void send_loop(Lane lane);
  void receive_loop(Lane lane);
  void transmit(Lane lane, const Outgoing& out);
  // False: stopped. Throws what Gloo throws.
  bool wait_for(WorkPtr LaneState::*slot, Lane lane, const WorkPtr& work);
  bool receive_bytes(Lane lane, std::span<std::byte> bytes);
  WorkPtr issue_send(Lane lane, std::span<const std::byte> bytes);

  const std::shared_ptr<GlooGroup> group_;
  const std::shared_ptr<BufferPool> pool_;
  const int rank_;
  GlooSink* const sink_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::array<LaneState, 2> lanes_;
  bool stopping_ = false;
};

}  // namespace collab
