#include "transport/tcp/session/tcp_inbox.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace collab::tcp {
namespace {

constexpr std::size_t kPageBytes = 4096;  // touching one byte costs a page

std::string name_of(const SegmentHeader& header) {
  return "segment " + std::to_string(header.number) + " of message " + std::to_string(header.message);
}

// A segment never reaches from the head into the payload.
bool in_head(const SegmentHeader& header) { return header.offset < header.head_bytes; }

std::vector<std::byte> joined(const std::map<std::uint32_t, std::vector<std::byte>>& parts, std::size_t bytes) {
  std::vector<std::byte> whole;
  whole.reserve(bytes);
  for (const auto& [offset, part] : parts) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

}  // namespace

bool UnfinishedShare::take(std::size_t bytes) {
  if (held_ + bytes > kMaxUnfinishedBytes) return false;
  if (all_->held + bytes > all_->most && held_ + bytes > all_->most / all_->links) return false;
  held_ += bytes;
  all_->held += bytes;
  return true;
}

bool UnfinishedShare::announce(std::size_t bytes) {
  if (announced_ + bytes > kMaxAssemblyBytes) return false;
  announced_ += bytes;
  return true;
}

void UnfinishedShare::finished(std::size_t announced, std::size_t taken) {
  announced_ -= announced;
  held_ -= taken;
  all_->held -= taken;
}

bool Inbox::has(std::uint64_t number) const {
  return number < below_ || (number - below_ < beyond_.size() && beyond_[number - below_]);
}

Result<Inbox::Assembly*> Inbox::assembly_of(const SegmentHeader& header) {
  if (header.message < next_message_ || header.message - next_message_ >= kWindowSegments) {
    return corrupt(name_of(header) + " is outside the window");
  }
  const std::size_t total = std::size_t{header.head_bytes} + header.payload_bytes;
  const auto found = unfinished_.find(header.message);
  if (found == unfinished_.end()) {
    if (!share_->announce(total)) return corrupt(name_of(header) + " begins more messages than the window allows");
    Assembly assembly;
    assembly.total = total;
    assembly.head_bytes = header.head_bytes;
    assembly.message.lane = lane_;
    if (header.payload_bytes > 0) assembly.message.payload = pool_->take(header.payload_bytes);
    return &unfinished_.emplace(header.message, std::move(assembly)).first->second;
  }
  Assembly& assembly = found->second;
  if (assembly.total != total || assembly.head_bytes != header.head_bytes) {
    return corrupt(name_of(header) + " gives the message another size than the segments before it");
  }
  return &assembly;
}

// Each byte of a message belongs to one segment, so no segment writes into a complete message.
Status Inbox::note_begun(Assembly& assembly, const SegmentHeader& header) {
  const auto after = assembly.begun.lower_bound(header.offset);
  if (after != assembly.begun.end() && after->first == header.offset && assembly.total > 0) {
    return after->second == header ? Status() : corrupt(name_of(header) + " overlaps another");
  }
  const bool into_next = after != assembly.begun.end() && after->first < header.offset + header.length;
  const bool from_before =
      after != assembly.begun.begin() && std::prev(after)->first + std::prev(after)->second.length > header.offset;
  if (into_next || from_before) return corrupt(name_of(header) + " overlaps another");
  const std::size_t costs = std::max<std::size_t>(header.length, kPageBytes);
  if (!share_->take(costs)) {
    return corrupt(name_of(header) + " begins more than may be unfinished (" +
                   std::to_string(kMaxUnfinishedBytes >> 20) + " MiB of a link, less while all links hold more than " +
                   std::to_string(share_->in_all() >> 20) + " MiB)");
  }
  assembly.held += costs;
  assembly.begun.emplace(header.offset, header);
  if (in_head(header)) assembly.head[header.offset].resize(header.length);
  return {};
}

Result<std::optional<Inbox::Place>> Inbox::begin(const SegmentHeader& header, ConnectionId carrier) {
  if (has(header.number)) return std::optional<Place>();
  if (header.number - below_ >= kWindowSegments) return corrupt(name_of(header) + " is beyond the window");
  const Result<Assembly*> assembly = assembly_of(header);
  if (!assembly.ok()) return assembly.status();
  COLLAB_RETURN_IF_ERROR(note_begun(**assembly, header));
  Place place;
  if (const auto [at, fresh] = under_way_.try_emplace(header.number, carrier); !fresh) {
    place.taken_from = std::exchange(at->second, carrier);
  }
  if (header.length > 0) {
    place.data = in_head(header)
                     ? std::span<std::byte>((*assembly)->head.at(header.offset))
                     : (*assembly)->message.payload->bytes().subspan(header.offset - header.head_bytes, header.length);
  }
  return std::optional<Place>(place);
}

Status Inbox::end(const SegmentHeader& header, std::vector<TransportMessage>& messages) {
  under_way_.erase(header.number);
  const auto found = unfinished_.find(header.message);
  if (found == unfinished_.end() || has(header.number)) return corrupt(name_of(header) + " ended twice");
  const std::uint64_t at = header.number - below_;
  if (at >= beyond_.size()) beyond_.resize(at + 1, false);
  beyond_[at] = true;
  while (!beyond_.empty() && beyond_.front()) {
    beyond_.pop_front();
    ++below_;
  }
  found->second.have += header.length;
  for (auto first = unfinished_.find(next_message_);
       first != unfinished_.end() && first->second.have == first->second.total;
       first = unfinished_.find(next_message_)) {
    Assembly& whole = first->second;
    share_->finished(whole.total, whole.held);
    if (whole.head.size() == 1) {
      whole.message.head = std::move(whole.head.begin()->second);
    } else {
      whole.message.head = joined(whole.head, whole.head_bytes);
    }
    messages.push_back(std::move(whole.message));
    unfinished_.erase(first);
    ++next_message_;
  }
  return {};
}

void Inbox::lost(ConnectionId carrier) {
  std::erase_if(under_way_, [&](const auto& entry) { return entry.second == carrier; });
}

LaneArrivals Inbox::arrivals() const {
  LaneArrivals arrivals;
  arrivals.below = below_;
  arrivals.beyond.resize((beyond_.size() + 63) / 64);
  for (std::size_t i = 0; i < beyond_.size(); ++i) {
    if (beyond_[i]) arrivals.beyond[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  return arrivals;
}

}  // namespace collab::tcp
