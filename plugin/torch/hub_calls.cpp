#include "torch/hub_calls.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/digest.h"

namespace collab::torch_adapter {
namespace {

[[nodiscard]] HubCalls::ConstBytes bytes_in(const protocol::Payload& payload) {
  if (payload.bytes == 0) return {};
  return payload.buffer->view().subspan(payload.offset, payload.bytes);
}

[[nodiscard]] HubCalls::ConstBytes part_of(HubCalls::ConstBytes bytes, std::size_t offset, std::size_t size) {
  if (offset >= bytes.size()) return {};
  return bytes.subspan(offset, std::min(size, bytes.size() - offset));
}

void check_bytes(const HubCalls::Call& call, std::size_t from, std::size_t expected, std::size_t came) {
  TORCH_CHECK(came == expected, call.operation, " ", call.shape, ": expected ", expected, " bytes of the group's rank ",
              from, ", got ", came, "; the ranks' tensors differ in size or type [hub.sizes-differ]");
}

}  // namespace

HubCalls::Bytes bytes_of(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

HubCalls::HubCalls(std::shared_ptr<HubLink> hub_link, std::uint64_t group, std::vector<RankId> members,
                   std::size_t rank)
    : hub_link_(std::move(hub_link)), group_(group), members_(std::move(members)), rank_(rank) {
  hub_link_->open({group_, members_, {}, 0});
}

HubCalls::~HubCalls() { close(); }

void HubCalls::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  for (const GroupId group : std::exchange(letters_, {})) hub_link_->close(group);
  hub_link_->close(group_);
}

std::size_t HubCalls::chunk_bytes(std::size_t contributors, bool split) const {
  return protocol::step_bytes(hub_link_->ranks(), members_.size(), contributors, split);
}

protocol::HubRequest HubCalls::request(const Call& call, wire::Absence absence, std::size_t root) const {
  protocol::HubRequest made;
  made.group = group_;
  made.call = call.number;
  made.operation = call.operation;
  made.shape = call.shape;
  made.absence = absence;
  made.root = static_cast<std::uint32_t>(root);
  made.timeout = call.deadline.left();
  return made;
}

protocol::Payload HubCalls::payload_of(ConstBytes bytes) const {
  if (bytes.empty()) return {};
  BufferPtr buffer = hub_link_->take(bytes.size());
  std::memcpy(buffer->bytes().data(), bytes.data(), bytes.size());
  return {buffer, 0, bytes.size()};
}

protocol::HubExchanged HubCalls::exchange(protocol::HubRequest request) const {
  protocol::HubExchanged result = hub_link_->exchange(std::move(request));
  TORCH_CHECK(result.status.ok(), result.status.message());
  return result;
}

HubCalls::Living HubCalls::gather(const Call& call, ConstBytes mine, wire::Absence absence, bool wants,
                                  const Sink& sink) {
  Living living(members_.size(), true);
  const std::size_t chunk = chunk_bytes(members_.size(), false);
  std::size_t offset = 0;
  do {
    const ConstBytes own = part_of(mine, offset, chunk);
    protocol::HubRequest step = request(call, absence, 0);
    step.wants = wants;
    step.payload = payload_of(own);
    const protocol::HubExchanged result = exchange(std::move(step));
    for (const std::uint32_t member : result.absent) living[member] = false;
    for (std::size_t from = 0; wants && from < members_.size(); ++from) {
      if (!living[from]) continue;
      const ConstBytes part = from == rank_ ? own : bytes_in(result.parts[from]);
      check_bytes(call, from, own.size(), part.size());
      sink(from, offset, part);
    }
    offset += chunk;
  } while (offset < mine.size());
  return living;
}

void HubCalls::broadcast(const Call& call, std::size_t root, Bytes bytes) {
  const std::size_t chunk = chunk_bytes(members_.size(), false);
  std::size_t offset = 0;
  do {
    const std::size_t size = part_of(bytes, offset, chunk).size();
    protocol::HubRequest step = request(call, wire::Absence::kNeedsRoot, root);
    step.wants = rank_ != root;
    if (rank_ == root) step.payload = payload_of(bytes.subspan(offset, size));
    const protocol::HubExchanged result = exchange(std::move(step));
    if (rank_ != root) {
      const ConstBytes part = bytes_in(result.parts[root]);
      check_bytes(call, root, size, part.size());
      if (size > 0) std::memcpy(bytes.data() + offset, part.data(), size);
    }
    offset += chunk;
  } while (offset < bytes.size());
}

void HubCalls::scatter(const Call& call, std::size_t root, const std::vector<ConstBytes>& parts, Bytes out) {
  const std::size_t chunk = chunk_bytes(1, true);
  std::size_t offset = 0;
  do {
    const std::size_t size = part_of(out, offset, chunk).size();
    protocol::HubRequest step = request(call, wire::Absence::kNeedsRoot, root);
    step.wants = rank_ != root;
    if (rank_ == root) {
      BufferPtr all = hub_link_->take(std::max<std::size_t>(1, size * members_.size()));
      for (std::size_t to = 0; to < members_.size(); ++to) {
        if (size > 0) std::memcpy(all->bytes().data() + to * size, parts[to].data() + offset, size);
      }
      step.splits.assign(members_.size(), size);
      if (size > 0) step.payload = {all, 0, size * members_.size()};
    }
    const protocol::HubExchanged result = exchange(std::move(step));
    const ConstBytes part = rank_ == root ? parts[root].subspan(offset, size) : bytes_in(result.parts[root]);
    check_bytes(call, root, size, part.size());
    if (size > 0) std::memcpy(out.data() + offset, part.data(), size);
    offset += chunk;
  } while (offset < out.size());
}

void HubCalls::all_to_all(const Call& call, const std::vector<ConstBytes>& in, const std::vector<Bytes>& out,
                          std::size_t longest) {
  const std::size_t chunk = chunk_bytes(members_.size(), true);
  std::size_t offset = 0;
  do {
    protocol::HubRequest step = request(call, wire::Absence::kFails, 0);
    std::size_t total = 0;
    for (const ConstBytes& part : in) {
      step.splits.push_back(part_of(part, offset, chunk).size());
      total += step.splits.back();
    }
    if (total > 0) {
      BufferPtr all = hub_link_->take(total);
      std::size_t at = 0;
      for (std::size_t to = 0; to < in.size(); ++to) {
        const ConstBytes part = part_of(in[to], offset, chunk);
        if (!part.empty()) std::memcpy(all->bytes().data() + at, part.data(), part.size());
        at += part.size();
      }
      step.payload = {all, 0, total};
    }
    const protocol::HubExchanged result = exchange(std::move(step));
    for (std::size_t from = 0; from < out.size(); ++from) {
      const std::size_t size = part_of(out[from], offset, chunk).size();
      const ConstBytes part = from == rank_ ? part_of(in[from], offset, chunk) : bytes_in(result.parts[from]);
      check_bytes(call, from, size, part.size());
      if (size > 0) std::memcpy(out[from].data() + offset, part.data(), size);
    }
    offset += chunk;
  } while (offset < longest);
}

HubCalls::Living HubCalls::barrier(const Call& call) { return gather(call, {}, wire::Absence::kProceeds, false, {}); }

void HubCalls::pass(const Call& call, std::size_t bytes) {
  const std::size_t chunk = chunk_bytes(members_.size(), false);
  std::size_t offset = 0;
  do {
    protocol::HubRequest step = request(call, wire::Absence::kProceeds, 0);
    step.wants = false;
    step.absent = true;
    (void)exchange(std::move(step));
    offset += chunk;
  } while (offset < bytes);
}

// ---- point to point ------------------------------------------------------------------------------------

HubCalls::Letter::Letter(HubCalls& calls, std::size_t from, std::size_t to, std::uint32_t tag) : calls_(calls) {
  const std::lock_guard<std::mutex> lock(calls_.mutex_);
  TORCH_CHECK(!calls_.closed_, "collab: send or receive on a process group that has been shut down [hub.group-ended]");
  const std::vector<RankId>& members = calls_.members_;
  const std::array<std::uint64_t, 5> key{calls_.group_.value, members[from].value, members[to].value, tag,
                                         ++calls_.counted_[{from, to, tag}]};
  group_ = GroupId(hash64(std::as_bytes(std::span(key))));
  calls_.letters_.insert(group_);
  calls_.hub_link_->open({group_, {members[from], members[to]}, calls_.group_, tag});
}

HubCalls::Letter::~Letter() {
  const std::lock_guard<std::mutex> lock(calls_.mutex_);
  if (calls_.letters_.erase(group_) > 0) calls_.hub_link_->close(group_);
}

void HubCalls::send(const Call& call, std::size_t to, std::uint32_t tag, ConstBytes bytes) {
  const std::size_t chunk = chunk_bytes(members_.size(), false);
  const Letter letter(*this, rank_, to, tag);
  std::size_t offset = 0;
  do {
    protocol::HubRequest step = request(call, wire::Absence::kFails, 0);
    step.group = letter.group();
    step.wants = false;
    step.payload = payload_of(part_of(bytes, offset, chunk));
    (void)exchange(std::move(step));
    offset += chunk;
  } while (offset < bytes.size());
}

void HubCalls::receive(const Call& call, std::size_t from, std::uint32_t tag, Bytes bytes) {
  const std::size_t chunk = chunk_bytes(members_.size(), false);
  const Letter letter(*this, from, rank_, tag);
  std::size_t offset = 0;
  do {
    const std::size_t size = part_of(bytes, offset, chunk).size();
    protocol::HubRequest step = request(call, wire::Absence::kFails, 0);
    step.group = letter.group();
    const protocol::HubExchanged result = exchange(std::move(step));
    const ConstBytes part = bytes_in(result.parts[0]);
    check_bytes(call, from, size, part.size());
    if (size > 0) std::memcpy(bytes.data() + offset, part.data(), size);
    offset += chunk;
  } while (offset < bytes.size());
}

std::size_t HubCalls::resolve(const Call& call, std::uint32_t tag) {
  const Result<std::uint32_t> from = hub_link_->resolve(group_, tag, call.deadline.left());
  TORCH_CHECK(from.ok(), from.status().message());
  return *from;
}

}  // namespace collab::torch_adapter
