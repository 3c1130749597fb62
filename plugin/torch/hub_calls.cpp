#include "torch/hub_calls.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/digest.h"

namespace collab::torch_adapter {
namespace {

[[nodiscard]] MeetingCalls::ConstBytes bytes_in(const protocol::Payload& payload) {
  if (payload.bytes == 0) return {};
  return payload.buffer->view().subspan(payload.offset, payload.bytes);
}

[[nodiscard]] MeetingCalls::ConstBytes piece_of(MeetingCalls::ConstBytes bytes, std::size_t offset, std::size_t size) {
  if (offset >= bytes.size()) return {};
  return bytes.subspan(offset, std::min(size, bytes.size() - offset));
}

void check_bytes(const MeetingCalls::Call& call, std::size_t from, std::size_t expected, std::size_t came) {
  TORCH_CHECK(came == expected, call.operation, " ", call.shape, ": expected ", expected, " bytes of the group's rank ",
              from, ", got ", came, "; the ranks' tensors differ in size or type");
}

}  // namespace

MeetingCalls::Bytes bytes_of(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

MeetingCalls::MeetingCalls(std::shared_ptr<MeetingSeat> seat, std::uint64_t group, std::vector<RankId> members,
                           std::size_t rank)
    : seat_(std::move(seat)), group_(group), members_(std::move(members)), rank_(rank) {
  seat_->open({group_, members_, {}, 0});
}

MeetingCalls::~MeetingCalls() { close(); }

void MeetingCalls::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, group] : pairs_) seat_->close(group);
  seat_->close(group_);
}

std::size_t MeetingCalls::chunk_bytes(std::size_t bringers, bool split) const {
  return protocol::piece_bytes(seat_->ranks(), members_.size(), bringers, split);
}

protocol::MeetingRequest MeetingCalls::request(const Call& call, wire::Absence absence, std::size_t root) const {
  protocol::MeetingRequest made;
  made.group = group_;
  made.call = call.number;
  made.operation = call.operation;
  made.shape = call.shape;
  made.absence = absence;
  made.root = static_cast<std::uint32_t>(root);
  made.timeout = call.deadline.left();
  return made;
}

protocol::Payload MeetingCalls::payload_of(ConstBytes bytes) const {
  if (bytes.empty()) return {};
  BufferPtr buffer = seat_->take(bytes.size());
  std::memcpy(buffer->bytes().data(), bytes.data(), bytes.size());
  return {buffer, 0, bytes.size()};
}

protocol::MeetingExchanged MeetingCalls::exchange(protocol::MeetingRequest request) const {
  protocol::MeetingExchanged outcome = seat_->exchange(std::move(request));
  TORCH_CHECK(outcome.status.ok(), outcome.status.message());
  return outcome;
}

MeetingCalls::Living MeetingCalls::gather(const Call& call, ConstBytes mine, wire::Absence absence, bool wants,
                                          const Sink& sink) {
  Living living(members_.size(), true);
  const std::size_t chunk = chunk_bytes(members_.size(), false);
  std::size_t offset = 0;
  do {
    const ConstBytes piece = piece_of(mine, offset, chunk);
    protocol::MeetingRequest step = request(call, absence, 0);
    step.wants = wants;
    step.payload = payload_of(piece);
    const protocol::MeetingExchanged outcome = exchange(std::move(step));
    for (const std::uint32_t member : outcome.absent) living[member] = false;
    for (std::size_t from = 0; wants && from < members_.size(); ++from) {
      if (!living[from]) continue;
      const ConstBytes part = from == rank_ ? piece : bytes_in(outcome.parts[from]);
      check_bytes(call, from, piece.size(), part.size());
      sink(from, offset, part);
    }
    offset += chunk;
  } while (offset < mine.size());
  return living;
}

void MeetingCalls::broadcast(const Call& call, std::size_t root, Bytes bytes) {
  const std::size_t chunk = chunk_bytes(members_.size(), false);
  std::size_t offset = 0;
  do {
    const std::size_t size = piece_of(bytes, offset, chunk).size();
    protocol::MeetingRequest step = request(call, wire::Absence::kNeedsRoot, root);
    step.wants = rank_ != root;
    if (rank_ == root) step.payload = payload_of(bytes.subspan(offset, size));
    const protocol::MeetingExchanged outcome = exchange(std::move(step));
    if (rank_ != root) {
      const ConstBytes part = bytes_in(outcome.parts[root]);
      check_bytes(call, root, size, part.size());
      if (size > 0) std::memcpy(bytes.data() + offset, part.data(), size);
    }
    offset += chunk;
  } while (offset < bytes.size());
}

void MeetingCalls::scatter(const Call& call, std::size_t root, const std::vector<ConstBytes>& parts, Bytes out) {
  const std::size_t chunk = chunk_bytes(1, true);
  std::size_t offset = 0;
  do {
    const std::size_t size = piece_of(out, offset, chunk).size();
    protocol::MeetingRequest step = request(call, wire::Absence::kNeedsRoot, root);
    step.wants = rank_ != root;
    if (rank_ == root) {
      BufferPtr all = seat_->take(std::max<std::size_t>(1, size * members_.size()));
      for (std::size_t to = 0; to < members_.size(); ++to) {
        if (size > 0) std::memcpy(all->bytes().data() + to * size, parts[to].data() + offset, size);
      }
      step.splits.assign(members_.size(), size);
      if (size > 0) step.payload = {all, 0, size * members_.size()};
    }
    const protocol::MeetingExchanged outcome = exchange(std::move(step));
    const ConstBytes part = rank_ == root ? parts[root].subspan(offset, size) : bytes_in(outcome.parts[root]);
    check_bytes(call, root, size, part.size());
    if (size > 0) std::memcpy(out.data() + offset, part.data(), size);
    offset += chunk;
  } while (offset < out.size());
}

void MeetingCalls::all_to_all(const Call& call, const std::vector<ConstBytes>& in, const std::vector<Bytes>& out,
                              std::size_t longest) {
  const std::size_t chunk = chunk_bytes(members_.size(), true);
  std::size_t offset = 0;
  do {
    protocol::MeetingRequest step = request(call, wire::Absence::kFails, 0);
    std::size_t total = 0;
    for (const ConstBytes& part : in) {
      step.splits.push_back(piece_of(part, offset, chunk).size());
      total += step.splits.back();
    }
    if (total > 0) {
      BufferPtr all = seat_->take(total);
      std::size_t at = 0;
      for (std::size_t to = 0; to < in.size(); ++to) {
        const ConstBytes piece = piece_of(in[to], offset, chunk);
        if (!piece.empty()) std::memcpy(all->bytes().data() + at, piece.data(), piece.size());
        at += piece.size();
      }
      step.payload = {all, 0, total};
    }
    const protocol::MeetingExchanged outcome = exchange(std::move(step));
    for (std::size_t from = 0; from < out.size(); ++from) {
      const std::size_t size = piece_of(out[from], offset, chunk).size();
      const ConstBytes part = from == rank_ ? piece_of(in[from], offset, chunk) : bytes_in(outcome.parts[from]);
      check_bytes(call, from, size, part.size());
      if (size > 0) std::memcpy(out[from].data() + offset, part.data(), size);
    }
    offset += chunk;
  } while (offset < longest);
}

MeetingCalls::Living MeetingCalls::barrier(const Call& call) {
  return gather(call, {}, wire::Absence::kGoesOn, false, {});
}

void MeetingCalls::pass(const Call& call, std::size_t bytes) {
  const std::size_t chunk = chunk_bytes(members_.size(), false);
  std::size_t offset = 0;
  do {
    protocol::MeetingRequest step = request(call, wire::Absence::kGoesOn, 0);
    step.wants = false;
    step.absent = true;
    (void)exchange(std::move(step));
    offset += chunk;
  } while (offset < bytes);
}

// ---- point to point: a group of two for each direction and tag -----------------------------------------

GroupId MeetingCalls::pair(std::size_t from, std::size_t to, std::uint32_t tag) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [place, fresh] = pairs_.try_emplace({from, to, tag});
  if (fresh) {
    const std::array<std::uint64_t, 4> key{group_.value, members_[from].value, members_[to].value, tag};
    place->second = GroupId(hash64(std::as_bytes(std::span(key))));
    seat_->open({place->second, {members_[from], members_[to]}, group_, tag});
  }
  return place->second;
}

void MeetingCalls::send(const Call& call, std::size_t to, std::uint32_t tag, ConstBytes bytes) {
  const std::size_t chunk = chunk_bytes(members_.size(), false);
  std::size_t offset = 0;
  do {
    protocol::MeetingRequest step = request(call, wire::Absence::kFails, 0);
    step.group = pair(rank_, to, tag);
    step.wants = false;
    step.payload = payload_of(piece_of(bytes, offset, chunk));
    (void)exchange(std::move(step));
    offset += chunk;
  } while (offset < bytes.size());
}

void MeetingCalls::receive(const Call& call, std::size_t from, std::uint32_t tag, Bytes bytes) {
  const std::size_t chunk = chunk_bytes(members_.size(), false);
  std::size_t offset = 0;
  do {
    const std::size_t size = piece_of(bytes, offset, chunk).size();
    protocol::MeetingRequest step = request(call, wire::Absence::kFails, 0);
    step.group = pair(from, rank_, tag);
    const protocol::MeetingExchanged outcome = exchange(std::move(step));
    const ConstBytes part = bytes_in(outcome.parts[0]);
    check_bytes(call, from, size, part.size());
    if (size > 0) std::memcpy(bytes.data() + offset, part.data(), size);
    offset += chunk;
  } while (offset < bytes.size());
}

std::size_t MeetingCalls::seek(const Call& call, std::uint32_t tag) {
  const Result<std::uint32_t> from = seat_->seek(group_, tag, call.deadline.left());
  TORCH_CHECK(from.ok(), from.status().message());
  return *from;
}

}  // namespace collab::torch_adapter
