#include "transport/tcp/session/tcp_outbox.h"

#include <algorithm>
#include <utility>

namespace collab::tcp {
void Outbox::push(TransportMessage message, std::uint64_t token) {
  unarrived_.pushed(message.bytes(), message.more);
  auto entry = std::make_shared<Message>();
  entry->content = std::make_shared<TransportMessage>(std::move(message));
  entry->token = token;
  entry->number = next_message_++;
  queue_.push_back(std::move(entry));
}

bool Outbox::ready() const {
  return !again_.empty() || (!queue_.empty() && segments_.size() < kWindowSegments && window_bytes_ < kWindowBytes);
}

std::optional<std::uint64_t> Outbox::cut() {
  const std::shared_ptr<Message> message = queue_.front();
  const std::size_t head = message->content->head.size();
  const std::size_t total = head + message->content->payload_bytes();
  const std::size_t end = message->cut < head ? head : total;
  Segment segment;
  segment.message = message;
  segment.offset = message->cut;
  segment.length = static_cast<std::uint32_t>(std::min(segment_bytes_, end - message->cut));
  message->cut += segment.length;
  ++message->pending;
  message->all_cut = message->cut == total;
  if (message->all_cut) queue_.pop_front();
  window_bytes_ += segment.length;
  segments_.push_back(std::move(segment));
  return first_ + segments_.size() - 1;
}

std::optional<Outbox::Piece> Outbox::next(ConnectionId carrier, TimePoint now) {
  if (!ready()) return std::nullopt;
  std::optional<std::uint64_t> number;
  if (!again_.empty()) {
    number = *again_.begin();
    again_.erase(again_.begin());
    ++sent_again_;
  } else {
    number = cut();
  }
  Segment& segment = segments_[*number - first_];
  segment.copies = {Copy{carrier, true}, segment.copies[0]};
  segment.sent = now;
  return piece(*number);
}

std::optional<Outbox::Piece> Outbox::second_copy(ConnectionId carrier, TimePoint since) {
  for (next_second_copy_ = std::max(next_second_copy_, first_); next_second_copy_ < segments(); ++next_second_copy_) {
    Segment& segment = segments_[next_second_copy_ - first_];
    const bool once = segment.copies[0].carrier != 0 && segment.copies[1].carrier == 0;
    if (segment.arrived || !once) continue;
    if (segment.sent >= since || segment.copies[0].carrier == carrier) return std::nullopt;
    segment.copies[1] = {carrier, true};
    ++sent_again_;
    return piece(next_second_copy_++);
  }
  return std::nullopt;
}

Outbox::Piece Outbox::piece(std::uint64_t number) const {
  const Segment& segment = segments_[number - first_];
  const TransportMessage& content = *segment.message->content;
  Piece piece;
  piece.header.lane = lane_;
  piece.header.number = number;
  piece.header.message = segment.message->number;
  piece.header.head_bytes = static_cast<std::uint32_t>(content.head.size());
  piece.header.payload_bytes = static_cast<std::uint32_t>(content.payload_bytes());
  piece.header.offset = segment.offset;
  piece.header.length = segment.length;
  if (segment.length > 0) {
    const bool in_head = segment.offset < content.head.size();
    const std::span<const std::byte> part =
        in_head ? std::span<const std::byte>(content.head) : content.payload->view();
    piece.data = part.subspan(in_head ? segment.offset : segment.offset - content.head.size(), segment.length);
  }
  piece.owner = segment.message->content;
  return piece;
}

// Called when a segment has arrived and no connection reads it any more.
void Outbox::settle(Segment& segment) {
  Message& message = *segment.message;
  if (--message.pending == 0 && message.all_cut) {
    unarrived_.message_done();
    if (message.token != 0) due_.push_back(message.token);
  }
  segment.message.reset();
}

void Outbox::drop_settled() {
  while (!segments_.empty() && segments_.front().arrived && segments_.front().message == nullptr) {
    window_bytes_ -= segments_.front().length;
    segments_.pop_front();
    ++first_;
  }
}

void Outbox::written(ConnectionId carrier, std::uint64_t number) {
  if (number < first_ || number - first_ >= segments_.size()) return;
  Segment& segment = segments_[number - first_];
  const bool was_reading = segment.reading();
  for (Copy& copy : segment.copies) {
    if (copy.carrier == carrier) copy.reading = false;
  }
  if (segment.arrived && was_reading && !segment.reading()) settle(segment);
  drop_settled();
}

std::uint64_t Outbox::lost(ConnectionId carrier) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    Segment& segment = segments_[i];
    if (segment.message == nullptr) continue;
    const bool was_reading = segment.reading();
    if (segment.copies[0].carrier == carrier) {
      segment.copies = {segment.copies[1], Copy()};
    } else if (segment.copies[1].carrier == carrier) {
      segment.copies[1] = {};
    } else {
      continue;
    }
    // Even if there is another copy: the peer may have dropped that copy in favour of the lost one.
    if (!segment.arrived) {
      if (again_.insert(first_ + i).second) bytes += segment.length;
    } else if (was_reading && !segment.reading()) {
      settle(segment);
    }
  }
  drop_settled();
  return bytes;
}

Status Outbox::acknowledge(const LaneArrivals& arrivals, std::vector<std::uint64_t>& tokens, TimePoint now) {
  std::uint64_t end = arrivals.below;  // the end of the reported segments
  for (std::size_t word = arrivals.beyond.size(); word-- > 0;) {
    if (arrivals.beyond[word] == 0) continue;
    std::uint64_t top = 63;
    while (((arrivals.beyond[word] >> top) & 1U) == 0) --top;
    end = std::max(end, arrivals.below + word * 64 + top + 1);
    break;
  }
  if (end > segments()) {
    return corrupt("segment " + std::to_string(end - 1) + " is acknowledged, but only " + std::to_string(segments()) +
                   " were sent");
  }
  for (std::uint64_t number = first_; number < end; ++number) {
    Segment& segment = segments_[number - first_];
    if (segment.arrived || !arrivals.has(number)) continue;
    segment.arrived = true;
    const Duration took = now - segment.sent;
    usual_ = usual_ == Duration(0) ? took : (7 * usual_ + took) / 8;
    unarrived_.arrived(segment.length);
    again_.erase(number);
    if (!segment.reading()) settle(segment);
  }
  drop_settled();
  take_tokens(tokens);
  return {};
}

void Outbox::take_tokens(std::vector<std::uint64_t>& tokens) {
  tokens.insert(tokens.end(), due_.begin(), due_.end());
  due_.clear();
}

}  // namespace collab::tcp
