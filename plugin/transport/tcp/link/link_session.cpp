#include "transport/tcp/link/link_session.h"

#include <utility>

namespace collab::tcp {
namespace {

constexpr std::uint64_t kAckBytes = std::uint64_t{512} << 10;  // received bytes that are acknowledged at once
constexpr Duration kCloseLimit = std::chrono::seconds(5);      // without progress

}  // namespace

LinkSession::LinkSession(const std::shared_ptr<BufferPool>& pool, const std::shared_ptr<UnfinishedShare>& share,
                         std::shared_ptr<Unhandled> unhandled, std::shared_ptr<ControlBytes> control)
    : control_(std::move(control)),
      unhandled_(std::move(unhandled)),
      in_{Inbox(Lane::kControl, pool, share), Inbox(Lane::kData, pool, share)} {}

Status LinkSession::push(TransportMessage message, std::uint64_t token, const std::string& peer) {
  if (message.head.size() > kMaxHeadBytes || message.payload_bytes() > kMaxPayloadBytes) {
    return invalid_argument("a message larger than a transport carries [tcp.message-size]");
  }
  const bool control = message.lane == Lane::kControl;
  Outbox& out = outbox(message.lane);
  if (control) {
    control_.count(out.held());
    const std::size_t more = message.head.size() + kMessageCost;
    if (!control_.has_room(more)) {
      return unavailable(peer + " asks for more than it reads: " + std::to_string(control_.most(more) >> 20) +
                         " MiB of control messages wait [tcp.slow-reader]");
    }
  }
  out.push(std::move(message), token);
  if (control) control_.count(out.held());
  return {};
}

Result<LinkSession::Progress> LinkSession::acknowledge(const Arrivals& arrivals, std::vector<std::uint64_t>& tokens,
                                                       TimePoint now) {
  Progress progress;
  for (const Lane lane : {Lane::kControl, Lane::kData}) {
    Outbox& out = outbox(lane);
    const std::uint64_t before = out.bytes_arrived();
    COLLAB_RETURN_IF_ERROR(out.acknowledge(arrivals[static_cast<std::size_t>(lane)], tokens, now));
    if (lane == Lane::kControl) control_.count(out.held());
    if (out.bytes_arrived() == before) continue;
    progress.any = true;
    progress.data = progress.data || lane == Lane::kData;
  }
  return progress;
}

Result<std::optional<Inbox::Place>> LinkSession::begin(const SegmentHeader& header, ConnectionId carrier) {
  auto place = in_[static_cast<std::size_t>(header.lane)].begin(header, carrier);
  if (place.ok() && !place->has_value()) ack_due_ = true;
  return place;
}

Status LinkSession::end(const SegmentHeader& header, std::vector<TransportMessage>& messages) {
  COLLAB_RETURN_IF_ERROR(in_[static_cast<std::size_t>(header.lane)].end(header, messages));
  ack_due_ = true;
  bytes_unacknowledged_ += header.length + kSegmentHeaderBytes;
  for (TransportMessage& message : messages) {
    message.unhandled = unhandled_->hold(message.bytes() + kMessageCost);
  }
  return {};
}

bool LinkSession::ack_at_once() const { return bytes_unacknowledged_ >= kAckBytes; }

void LinkSession::acknowledged() {
  ack_due_ = false;
  bytes_unacknowledged_ = 0;
}

std::uint64_t LinkSession::lose(ConnectionId carrier, std::vector<std::uint64_t>& tokens) {
  std::uint64_t bytes = 0;
  for (Outbox& out : out_) {
    bytes += out.lost(carrier);
    out.take_tokens(tokens);
  }
  for (Inbox& in : in_) in.lost(carrier);
  return bytes;
}

void LinkSession::close(TimePoint now) {
  closing_ = true;
  close_by_ = now + kCloseLimit;
}

void LinkSession::go_on(TimePoint now) {
  if (closing_) close_by_ = now + kCloseLimit;
}

Status LinkSession::receive_bye(const Bye& bye) {
  for (std::size_t lane = 0; lane < in_.size(); ++lane) {
    const std::uint64_t arrived = in_[lane].arrivals().below;
    if (arrived == bye.segments[lane]) continue;
    return corrupt("it says goodbye after " + std::to_string(bye.segments[lane]) + " segments, but " +
                   std::to_string(arrived) + " have arrived");
  }
  bye_received_ = true;
  return {};
}

}  // namespace collab::tcp
