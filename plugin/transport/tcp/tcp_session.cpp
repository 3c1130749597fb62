// What travels on a link's connections.
#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "core/base/log.h"
#include "transport/tcp/tcp_engine.h"

namespace collab::tcp {
namespace {

namespace asio = boost::asio;
constexpr std::size_t kMostFilled = 4 * kMaxSegmentBytes;  // handed to a connection at once
constexpr Duration kQuick = std::chrono::milliseconds(5);
constexpr Duration kSlow = std::chrono::milliseconds(20);
constexpr std::size_t kFillSegments = 64;
constexpr int kFillsInTurn = 64;                               // then other links have their turn
constexpr std::uint64_t kAckBytes = std::uint64_t{512} << 10;  // acknowledged at once
constexpr Duration kAckDelay = std::chrono::milliseconds(5);   // else after this
constexpr std::int64_t kFarApart = std::int64_t{1} << 60;      // of clocks, in microseconds
constexpr Duration kCloseLimit = std::chrono::seconds(5);      // without progress

// After this a segment hangs: its connection has lost something, or is slower than the others. Where a queue holds all
// of them up, or a thin line takes its time, none does. Of many connections, as where losses slow each of them down,
// some always hang, and the usual is no measure.
Duration patience_of(TcpLink& link, std::size_t carriers) {
  const Duration usual = carriers > kFewCarriers ? Duration(0) : link.outbox(Lane::kData).usual();
  return 2 * std::max(link.round_trip, usual) + std::chrono::milliseconds(50);
}

}  // namespace

// ---- receiving -----------------------------------------------------------------------------------

Result<std::optional<std::span<std::byte>>> TcpEngine::segment_begins(Connection& from, const SegmentHeader& header) {
  TcpLink* const link = find(from.link);
  if (link == nullptr) return std::optional<std::span<std::byte>>();
  link->answered = true;
  const auto place = link->inbox(header.lane).begin(header, from.name);
  if (!place.ok()) return place.status();
  if (!place->has_value()) {
    ++counters_.twice;
    link->ack_due = true;
    return std::optional<std::span<std::byte>>();
  }
  if ((*place)->taken_from != 0) {
    for (const Slot& slot : link->slots) {
      if (slot.connection != nullptr && slot.connection->name == (*place)->taken_from) slot.connection->forget_place();
    }
  }
  return std::optional((*place)->data);
}

Status TcpEngine::segment_ended(Connection& from, const SegmentHeader& header, bool placed) {
  TcpLink* const link = find(from.link);
  if (link == nullptr || !placed) return {};
  std::vector<TransportMessage> messages;
  COLLAB_RETURN_IF_ERROR(link->inbox(header.lane).end(header, messages));
  link->ack_due = true;
  link->bytes_unacknowledged += header.length + kSegmentHeaderBytes;
  if (header.lane == Lane::kData) link->data_came = now();
  if (link->closing) link->deadline = now() + kCloseLimit;
  const LinkId id = link->id;
  for (TransportMessage& message : messages) {
    const std::size_t payload = message.payload != nullptr ? message.payload->view().size() : 0;
    message.unhandled = link->unhandled->hold(message.head.size() + payload + kMessageCost);
    handler_->on_message(id, std::move(message));
  }
  return {};
}

Status TcpEngine::frame_came(Connection& from, FrameType type, std::span<const std::byte> body) {
  switch (type) {
    case FrameType::kHello: {
      const Result<Hello> hello = decode_hello(body);
      return hello.ok() ? on_hello(from, *hello) : hello.status();
    }
    case FrameType::kWelcome: {
      const Result<Id> process = decode_welcome(body);
      return process.ok() ? on_welcome(from, *process) : process.status();
    }
    case FrameType::kRefuse: {
      const Result<Refuse> refusal = decode_refuse(body);
      if (!refusal.ok()) return refusal.status();
      on_refuse(from, *refusal);
      return {};
    }
    case FrameType::kSegment:
    case FrameType::kAck:
    case FrameType::kPing:
    case FrameType::kPong:
    case FrameType::kWant:
    case FrameType::kBye:
    case FrameType::kAbort:
    case FrameType::kAllow: break;
  }
  if (from.state() != Connection::State::kAttached) return corrupt("it did not begin with a greeting");
  TcpLink* const link = find(from.link);
  return link != nullptr ? link_frame_came(*link, from, type, body) : Status();
}

Status TcpEngine::link_frame_came(TcpLink& link, Connection& from, FrameType type, std::span<const std::byte> body) {
  switch (type) {
    case FrameType::kAck: {
      const Result<Arrivals> arrivals = decode_ack(body);
      return arrivals.ok() ? on_ack(link, from, *arrivals) : arrivals.status();
    }
    case FrameType::kPing: {
      const Result<std::uint64_t> stamp = decode_ping(body);
      if (!stamp.ok()) return stamp.status();
      if (from.overfull()) return corrupt("it asks for signs of life and does not read them");
      from.send(encode(Pong{*stamp, stamp_of(now())}));
      from.flush();
      return {};
    }
    case FrameType::kPong: {
      const Result<Pong> pong = decode_pong(body);
      if (!pong.ok()) return pong.status();
      on_pong(link, from, *pong);
      return {};
    }
    case FrameType::kWant: {
      const Result<std::uint16_t> wish = decode_want(body);
      if (!wish.ok()) return wish.status();
      link.peer_wants = *wish;
      if (options_.connections == 0) dial_missing(link);
      return {};
    }
    case FrameType::kBye: {
      const Result<Bye> bye = decode_bye(body);
      return bye.ok() ? on_bye(link, *bye) : bye.status();
    }
    case FrameType::kAbort: {
      const Result<std::string> words = decode_abort(body);
      if (!words.ok()) return words.status();
      end_link(link, unavailable(link.peer + " ended the link: " + *words));
      return {};
    }
    case FrameType::kAllow: {
      const Result<std::uint64_t> rate = decode_allow(body);
      if (!rate.ok()) return rate.status();
      link.allowed.set(static_cast<double>(*rate), now());
      return {};
    }
    case FrameType::kHello:
    case FrameType::kWelcome:
    case FrameType::kRefuse:
    case FrameType::kSegment: break;
  }
  return internal_error("a frame that belongs elsewhere");
}

void TcpEngine::reading_paused(Connection& from) {
  from.last_heard = now();
  TcpLink* const link = find(from.link);
  if (link == nullptr) return;
  if (link->ack_due) {
    if (link->bytes_unacknowledged >= kAckBytes) {
      acknowledge(*link);
    } else {
      acknowledge_later();
    }
  }
  pump(*link);
}

// ---- sending -------------------------------------------------------------------------------------

void TcpEngine::ran_dry(Connection& from) {
  if (TcpLink* const link = find(from.link); link != nullptr) pump(*link);
}

void TcpEngine::segment_written(Connection& from, Lane lane, std::uint64_t number) {
  TcpLink* const link = find(from.link);
  if (link == nullptr) return;
  Outbox& out = link->outbox(lane);
  out.written(from.name, number);
  std::vector<std::uint64_t> tokens;
  out.take_tokens(tokens);
  deliver_tokens(*link, tokens);
}

void TcpEngine::deliver_tokens(TcpLink& link, std::vector<std::uint64_t>& tokens) {
  for (const std::uint64_t token : tokens) handler_->on_sent(link.id, token);
  tokens.clear();
}

// Hands one connection a batch; false when it or the lane has enough. Data that has hung for longer than `patience`
// goes over this one as well.
bool TcpEngine::fill(TcpLink& link, Connection& connection, Lane lane, Duration patience) {
  if (!connection.idle() || connection.state() != Connection::State::kAttached) return false;
  Outbox& out = link.outbox(lane);
  const bool data = lane == Lane::kData;
  if (data && !may_send(link)) return false;
  // A connection that drains quickly is given more at once; a slow one must not hold much.
  const Duration drained = now() - connection.filled_at;
  if (drained < kQuick) connection.fill_bytes = std::min(2 * connection.fill_bytes, kMostFilled);
  if (drained > kSlow) connection.fill_bytes = kSmallSegmentBytes;
  connection.filled_at += drained;
  std::size_t bytes = 0;
  std::size_t segments = 0;
  const std::uint64_t again = out.sent_again();
  const std::size_t most = std::min(data && capped(link) ? kMaxSegmentBytes : kMostFilled, connection.fill_bytes);
  while (bytes < most && segments < kFillSegments) {
    std::optional<Outbox::Piece> piece = out.next(connection.name, connection.filled_at);
    if (!piece && data) piece = out.hung(connection.name, connection.filled_at - patience);
    if (!piece) break;
    bytes += piece->data.size() + kSegmentHeaderBytes;
    ++segments;
    connection.send(std::move(*piece));
  }
  if (segments == 0) return false;
  counters_.bytes += bytes;
  counters_.again += out.sent_again() - again;
  if (data) {
    up_.take(bytes);
    link.allowed.take(bytes);
  }
  connection.flush();
  return connection.idle();
}

// Control first, on its own connection; data to whichever connection is free.
void TcpEngine::pump(TcpLink& link) {
  if (link.ended || link.state != TcpLink::State::kOpen) return;
  Connection* const control = link.control();
  if (control == nullptr) return;
  int fills = 0;
  while (fills++ < kFillsInTurn && fill(link, *control, Lane::kControl, {})) {
  }
  std::vector<Connection*> carriers = link.carriers(in_use(link));
  if (carriers.empty()) carriers.push_back(control);
  const Duration patience = patience_of(link, carriers.size());
  link.outbox(Lane::kData).cut_at(slow(link, carriers.size()) ? kSmallSegmentBytes : kMaxSegmentBytes);
  const std::size_t first = link.turn++;
  for (std::size_t i = 0; i < carriers.size(); ++i) {
    Connection& carrier = *carriers[(first + i) % carriers.size()];
    while (fills++ < kFillsInTurn && fill(link, carrier, Lane::kData, patience)) {
    }
  }
  if (fills >= kFillsInTurn) pump_later(link);
  if (link.closing) go_on_closing(link);
}

void TcpEngine::pump_later(TcpLink& link) {
  if (std::exchange(link.pump_posted, true)) return;
  asio::post(io_, [this, id = link.id] {
    TcpLink* const again = find(id);
    if (again == nullptr || stopped_) return;
    again->pump_posted = false;
    pump(*again);
  });
}

// ---- acknowledging -------------------------------------------------------------------------------

void TcpEngine::acknowledge(TcpLink& link) {
  Connection* const control = link.control();
  if (control == nullptr || control->overfull()) return;  // the next greeting says it
  control->send(encode(Arrivals{link.in[0].arrivals(), link.in[1].arrivals()}));
  link.ack_due = false;
  link.bytes_unacknowledged = 0;
  control->flush();
}

void TcpEngine::acknowledge_later() {
  if (std::exchange(ack_waiting_, true)) return;
  ack_timer_.expires_after(kAckDelay);
  ack_timer_.async_wait([this](const boost::system::error_code& error) {
    ack_waiting_ = false;
    if (error || stopped_) return;
    for (const auto& [id, link] : links_) {
      if (link->ack_due) acknowledge(*link);
    }
  });
}

Status TcpEngine::on_ack(TcpLink& link, Connection& from, const Arrivals& arrivals) {
  from.held = false;
  std::vector<std::uint64_t> tokens;
  for (std::size_t lane = 0; lane < link.out.size(); ++lane) {
    const std::uint64_t before = link.out[lane].bytes_arrived();
    COLLAB_RETURN_IF_ERROR(link.out[lane].acknowledge(arrivals[lane], tokens, now()));
    if (link.out[lane].bytes_arrived() == before) continue;
    if (link.closing) link.deadline = now() + kCloseLimit;
    if (lane == static_cast<std::size_t>(Lane::kData)) link.data_arrived = now();
  }
  deliver_tokens(link, tokens);
  return {};  // the reader pumps once it has read all
}

void TcpEngine::on_pong(TcpLink& link, Connection& from, const Pong& pong) {
  const auto way = static_cast<std::int64_t>(pong.clock - pong.stamp);
  if (from.index == 0 && -kFarApart < way && way < kFarApart) {  // behind no data of its own
    link.way_out = std::min(link.way_out.value_or(Duration::max()), Duration(way));
  }
  if (!from.pinged || stamp_of(*from.pinged) != pong.stamp) return;
  const Duration took = now() - *from.pinged;
  from.pinged.reset();
  link.answered = true;
  if (from.index != 0 && link.round_trip != Duration(0)) return;  // behind data
  link.round_trip = link.round_trip == Duration(0) ? took : (7 * link.round_trip + took) / 8;
}

// ---- closing -------------------------------------------------------------------------------------

void TcpEngine::begin_close(TcpLink& link) {
  link.closing = true;
  if (link.state != TcpLink::State::kOpen) return;  // what is queued goes once it is open, within the dial's time
  link.deadline = now() + kCloseLimit;
  pump(link);
}

void TcpEngine::go_on_closing(TcpLink& link) {
  if (link.ended) return;
  if (!link.bye_sent && link.outbox(Lane::kControl).empty() && link.outbox(Lane::kData).empty()) {
    Connection* const control = link.control();
    if (control == nullptr) return;
    link.bye_sent = true;
    control->send(encode(Bye{{link.out[0].segments(), link.out[1].segments()}}));
    control->flush();
  }
  if (link.bye_sent && link.bye_came) end_link(link, {});
}

Status TcpEngine::on_bye(TcpLink& link, const Bye& bye) {
  for (std::size_t lane = 0; lane < link.in.size(); ++lane) {
    if (link.in[lane].arrivals().below != bye.segments[lane]) {
      return corrupt("it says goodbye after " + std::to_string(bye.segments[lane]) + " segments, and " +
                     std::to_string(link.in[lane].arrivals().below) + " have arrived");
    }
  }
  link.bye_came = true;
  if (!link.closing) {
    begin_close(link);
  } else {
    go_on_closing(link);
  }
  return {};
}

}  // namespace collab::tcp
