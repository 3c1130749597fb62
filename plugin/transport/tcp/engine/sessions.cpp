#include "transport/tcp/engine/sessions.h"

#include <utility>

#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {
namespace {

constexpr Duration kAckDelay = std::chrono::milliseconds(5);

}  // namespace

Sessions::Sessions(EngineParts& all) : all_(all), ack_timer_(all.context.io) {}

// ---- receiving -----------------------------------------------------------------------------------

Result<std::optional<std::span<std::byte>>> Sessions::on_segment_begin(Connection& from, const SegmentHeader& header) {
  TcpLink* const link = all_.links.find(from.slot.link());
  if (link == nullptr) return std::optional<std::span<std::byte>>();
  link->connections.answered();
  const auto place = link->session.begin(header, from.name);
  if (!place.ok()) return place.status();
  if (!place->has_value()) {
    ++all_.context.counters.twice;
    return std::optional<std::span<std::byte>>();
  }
  if ((*place)->taken_from != 0) {
    if (Connection* const before = link->connections.named((*place)->taken_from)) before->forget_place();
  }
  return std::optional((*place)->data);
}

Status Sessions::on_segment_end(Connection& from, const SegmentHeader& header) {
  TcpLink* const link = all_.links.find(from.slot.link());
  if (link == nullptr) return {};
  std::vector<TransportMessage> messages;
  COLLAB_RETURN_IF_ERROR(link->session.end(header, messages));
  if (header.lane == Lane::kData) link->caps.data_received(all_.now());
  if (link->session.left()) return {};  // the messages no longer matter, and do not keep the link open
  const LinkId id = link->id();
  for (TransportMessage& message : messages) all_.context.handler->on_message(id, std::move(message));
  return {};
}

void Sessions::on_segment_written(Connection& from, Lane lane, std::uint64_t number) {
  TcpLink* const link = all_.links.find(from.slot.link());
  if (link == nullptr) return;
  Outbox& out = link->session.outbox(lane);
  out.written(from.name, number);
  std::vector<std::uint64_t> tokens;
  out.take_tokens(tokens);
  deliver(*link, tokens);
}

void Sessions::deliver(const TcpLink& link, std::vector<std::uint64_t>& tokens) {
  for (const std::uint64_t token : tokens) all_.context.handler->on_sent(link.id(), token);
  tokens.clear();
}

// ---- acknowledging -------------------------------------------------------------------------------

void Sessions::acknowledge_soon(TcpLink& link) {
  if (!link.session.ack_due()) return;
  if (link.session.ack_at_once()) {
    acknowledge(link);
  } else {
    acknowledge_later();
  }
}

void Sessions::acknowledge(TcpLink& link) {
  Connection* const control = link.connections.control();
  if (control == nullptr || control->overfull()) return;  // the next greeting acknowledges instead
  control->send(encode(link.session.arrivals()));
  link.session.acknowledged();
  control->flush();
}

void Sessions::acknowledge_later() {
  if (std::exchange(ack_waiting_, true)) return;
  ack_timer_.expires_after(kAckDelay);
  ack_timer_.async_wait([this](const boost::system::error_code& error) {
    ack_waiting_ = false;
    if (error || all_.context.stopped) return;
    for (const auto& [id, link] : all_.links.all()) {
      if (link->session.ack_due()) acknowledge(*link);
    }
  });
}

Status Sessions::on_ack(TcpLink& link, Connection& from, const Arrivals& arrivals) {
  from.slot.release();
  std::vector<std::uint64_t> tokens;
  const Result<LinkSession::Progress> progress = link.session.acknowledge(arrivals, tokens, all_.now());
  if (!progress.ok()) return progress.status();
  if (progress->any) link.session.go_on(all_.now());
  if (progress->data) link.pacing.data_arrived(all_.now());
  deliver(link, tokens);
  return {};  // on_reading_paused() pumps the link later
}

// ---- closing -------------------------------------------------------------------------------------

void Sessions::send(TcpLink& link, TransportMessage message, std::uint64_t token) {
  if (link.session.closing()) return;
  const Status fits = link.session.push(std::move(message), token, link.peer());
  if (!fits.ok()) all_.links.end_with_reason(link, fits);
}

// If the link is not open yet, its queue is sent once it is, within the time limit of the dial.
void Sessions::close(TcpLink& link) {
  link.session.leave();
  begin_closing(link);
}

void Sessions::begin_closing(TcpLink& link) {
  if (link.session.closing()) return;
  link.session.close(all_.now());
  if (link.open()) all_.striping.pump(link);
}

void Sessions::go_on_closing(TcpLink& link) {
  if (link.ended() || !link.session.closing()) return;
  if (link.session.may_say_bye()) {
    Connection* const control = link.connections.control();
    if (control == nullptr) return;
    link.session.mark_bye_sent();
    control->send(encode(link.session.bye()));
    control->flush();
  }
  if (link.session.over()) all_.links.end(link, {});
}

Status Sessions::on_bye(TcpLink& link, const Bye& bye) {
  COLLAB_RETURN_IF_ERROR(link.session.receive_bye(bye));
  if (!link.session.closing()) {
    begin_closing(link);
  } else {
    go_on_closing(link);
  }
  return {};
}

void Sessions::check_closing(TcpLink& link, TimePoint now) {
  if (!link.session.closing() || !link.session.close_timed_out(now)) return;
  all_.links.end(link, link.session.all_arrived()
                           ? Status()
                           : timed_out("what was queued when the link to " + link.peer() +
                                       " was closed could not be delivered in time [tcp.not-delivered]"));
}

}  // namespace collab::tcp
