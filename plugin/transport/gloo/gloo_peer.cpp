#include "transport/gloo/gloo_peer.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace collab {
namespace {

// A wait that times out breaks the whole Gloo context. So the protocol's heartbeats judge silence. A connection that is
// closed ends the wait at once.
constexpr auto kIdleLimit = std::chrono::hours(24 * 365);

at::Tensor bytes_tensor(const std::byte* bytes, std::size_t count) {
  return at::from_blob(const_cast<std::byte*>(bytes), {static_cast<int64_t>(count)}, at::TensorOptions(at::kByte));
}

int tag_of(Lane lane) { return static_cast<int>(lane); }

Status broken(int rank, const std::string& why) {
  return unavailable("the connection to rank " + std::to_string(rank) + " of the Gloo group broke: " + why +
                     " [link.gloo-broken]");
}

}  // namespace

GlooPeer::GlooPeer(std::shared_ptr<GlooGroup> group, std::shared_ptr<BufferPool> pool, int rank, GlooSink* sink)
    : group_(std::move(group)), pool_(std::move(pool)), rank_(rank), sink_(sink) {}

bool GlooPeer::is_self() const { return rank_ == group_->backend->getRank(); }

void GlooPeer::start() {
  const std::lock_guard lock(mutex_);
  for (const Lane lane : {Lane::kControl, Lane::kData}) {
    if (!is_self()) lane_state(lane).receiver = std::thread([this, lane] { receive_loop(lane); });
  }
}

void GlooPeer::post(Lane lane, const GlooFrame& frame, TransportMessage message, std::uint64_t token) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    LaneState& state = lane_state(lane);
    state.queue.push_back({frame, std::move(message), token});
    if (!state.sender.joinable()) state.sender = std::thread([this, lane] { send_loop(lane); });
  }
  changed_.notify_all();
}

void GlooPeer::drain_control(Duration limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] {
    const LaneState& state = lane_state(Lane::kControl);
    return stopping_ || (state.queue.empty() && !state.sending);
  });
}

void GlooPeer::stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (LaneState& state : lanes_) {
      for (const WorkPtr& work : {state.waiting_send, state.waiting_receive}) {
        if (work) work->abort();
      }
      state.queue.clear();
      if (state.sender.joinable()) threads.push_back(std::move(state.sender));
      if (state.receiver.joinable()) threads.push_back(std::move(state.receiver));
    }
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

bool GlooPeer::wait_for(WorkPtr LaneState::*slot, Lane lane, const WorkPtr& work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      work->abort();
      return false;
    }
    lane_state(lane).*slot = work;
  }
  bool done = false;
  std::exception_ptr error;
  try {
    done = work->wait(kIdleLimit);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  lane_state(lane).*slot = nullptr;
  if (stopping_) return false;
  if (error) std::rethrow_exception(error);
  return done;
}

GlooPeer::WorkPtr GlooPeer::issue_send(Lane lane, std::span<const std::byte> bytes) {
  std::vector<at::Tensor> tensors{bytes_tensor(bytes.data(), bytes.size())};
  const std::lock_guard lock(group_->issue);
  return group_->backend->send(tensors, rank_, tag_of(lane));
}

bool GlooPeer::receive_bytes(Lane lane, std::span<std::byte> bytes) {
  if (bytes.empty()) return true;
  std::vector<at::Tensor> tensors{bytes_tensor(bytes.data(), bytes.size())};
  WorkPtr work;
  {
    const std::lock_guard lock(group_->issue);
    work = group_->backend->recv(tensors, rank_, tag_of(lane));
  }
  return wait_for(&LaneState::waiting_receive, lane, work);
}

void GlooPeer::transmit(Lane lane, const Outgoing& out) {
  if (is_self()) {
    TransportMessage copy;
    copy.lane = lane;
    copy.head = out.message.head;
    if (out.message.payload) {
      const auto bytes = out.message.payload->view();
      copy.payload = pool_->take(bytes.size());
      if (!bytes.empty()) std::memcpy(copy.payload->bytes().data(), bytes.data(), bytes.size());
    }
    sink_->frame_arrived(rank_, lane, out.frame, std::move(copy));
    return;
  }
  std::vector<WorkPtr> parts{issue_send(lane, std::as_bytes(std::span(&out.frame, 1)))};
  if (!out.message.head.empty()) parts.push_back(issue_send(lane, out.message.head));
  if (out.frame.payload_bytes > 0) parts.push_back(issue_send(lane, out.message.payload->view()));
  for (const WorkPtr& part : parts) {
    if (!wait_for(&LaneState::waiting_send, lane, part)) return;
  }
}

void GlooPeer::send_loop(Lane lane) {
  LaneState& state = lane_state(lane);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !state.queue.empty(); });
    if (stopping_) return;
    Outgoing out = std::move(state.queue.front());
    state.queue.pop_front();
    state.sending = true;
    lock.unlock();
    try {
      if (sink_->still_wanted(out.frame)) {
        transmit(lane, out);
        out.message = {};  // releases the buffer before its owner hears of it
        sink_->frame_sent(lane, out.frame, out.token);
      }
    } catch (const std::exception& e) {
      sink_->peer_broken(rank_, broken(rank_, e.what()));
    }
    out = {};
    lock.lock();
    state.sending = false;
    changed_.notify_all();
  }
}

void GlooPeer::receive_loop(Lane lane) {
  try {
    while (true) {
      GlooFrame frame;
      if (!receive_bytes(lane, std::as_writable_bytes(std::span(&frame, 1)))) return;
      if (!frame.sound()) {
        return sink_->peer_broken(
            rank_, corrupt("rank " + std::to_string(rank_) +
                           " of the Gloo group sent bytes that are not a frame of this transport [link.gloo-frame]"));
      }
      TransportMessage message;
      message.lane = lane;
      message.head.resize(frame.head_bytes);
      if (!receive_bytes(lane, message.head)) return;
      if (frame.has_payload == 1) {
        message.payload = pool_->take(frame.payload_bytes);
        if (!receive_bytes(lane, message.payload->bytes().first(frame.payload_bytes))) return;
      }
      sink_->frame_arrived(rank_, lane, frame, std::move(message));
    }
  } catch (const std::exception& e) {
    sink_->peer_broken(rank_, broken(rank_, e.what()));
  }
}

}  // namespace collab
