#include "transport/tcp/engine/tcp_engine.h"

#include <algorithm>
#include <set>
#include <type_traits>
#include <utility>

namespace collab::tcp {
namespace {

// Passes the decoded frame to `take`, which returns a Status or void.
template <typename Frame, typename Take>
Status with(const Result<Frame>& decoded, const Take& take) {
  if (!decoded.ok()) return decoded.status();
  if constexpr (std::is_void_v<std::invoke_result_t<Take, const Frame&>>) {
    take(*decoded);
    return {};
  } else {
    return take(*decoded);
  }
}

}  // namespace

TcpEngine::TcpEngine(TcpOptions options, std::shared_ptr<TlsKeys> keys)
    : all_(
          std::move(options), std::move(keys), *this, [this] { run_commands(); }, [this] { tick(); }),
      work_(boost::asio::make_work_guard(all_.context.io)) {}

TcpEngine::~TcpEngine() {
  all_.mailbox->post({.kind = Command::Kind::kStop});
  all_.mailbox->shut();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    this->stop();
  }
}

Status TcpEngine::start(TransportHandler* handler) {
  if (in_child() || all_.context.handler != nullptr) {
    return invalid_argument("a tcp transport starts once, in one process [tcp.started-twice]");
  }
  all_.context.handler = handler;
  thread_ = std::thread([this] { all_.context.io.run(); });
  return {};
}

LinkId TcpEngine::connect(const std::string& address, Duration timeout) {
  const LinkId id = all_.links.next_id();
  if (in_child()) return id;
  const TimePoint deadline = all_.now() + std::max(timeout, Duration(1));
  all_.mailbox->post({.kind = Command::Kind::kConnect, .link = id, .address = address, .deadline = deadline});
  return id;
}

void TcpEngine::send(LinkId link, TransportMessage message, std::uint64_t token) {
  if (in_child()) return;
  all_.mailbox->post({.kind = Command::Kind::kSend, .link = link, .message = std::move(message), .token = token});
}

void TcpEngine::close(LinkId link) {
  if (in_child()) return;
  all_.mailbox->post({.kind = Command::Kind::kClose, .link = link});
}

TcpCounters TcpEngine::counters() const {
  const TcpContext::Counters& done = all_.context.counters;
  return {done.opened, done.refused, done.again, done.twice, done.bytes, done.resumed};
}

// ---- commands --------------------------------------------------------------------------------------

void TcpEngine::run_commands() {
  std::set<LinkId> dirty;
  all_.mailbox->take(running_);
  for (Command& command : running_) {
    run(command);
    if (all_.context.stopped) break;
    dirty.insert(command.link);
  }
  running_.clear();
  for (const LinkId id : dirty) {
    if (TcpLink* const link = all_.links.find(id); link != nullptr) all_.striping.pump(*link);
  }
}

void TcpEngine::run(Command& command) {
  TcpLink* const link = all_.links.find(command.link);
  switch (command.kind) {
    case Command::Kind::kConnect: return all_.dialler.begin(command.link, command.address, command.deadline);
    case Command::Kind::kSend:
      if (link != nullptr) all_.sessions.send(*link, std::move(command.message), command.token);
      return;
    case Command::Kind::kClose:
      if (link != nullptr) all_.sessions.close(*link);
      return;
    case Command::Kind::kResolved: return all_.dialler.looked_up(command.link, std::move(command.endpoints));
    case Command::Kind::kRoom:
      if (link != nullptr) all_.caps.resume_unhandled(*link);
      return;
    case Command::Kind::kStop: return stop();
  }
}

void TcpEngine::stop() {
  all_.context.stopped = true;
  all_.links.stop();
  all_.pending.stop();
  all_.context.io.stop();
}

// ---- events of connections -------------------------------------------------------------------------

Result<std::optional<std::span<std::byte>>> TcpEngine::on_segment_begin(Connection& from, const SegmentHeader& header) {
  return all_.sessions.on_segment_begin(from, header);
}

Status TcpEngine::on_segment_end(Connection& from, const SegmentHeader& header, bool placed) {
  return placed ? all_.sessions.on_segment_end(from, header) : Status();
}

void TcpEngine::on_segment_written(Connection& from, Lane lane, std::uint64_t number) {
  all_.sessions.on_segment_written(from, lane, number);
}

Status TcpEngine::on_frame(Connection& from, FrameType type, std::span<const std::byte> body) {
  switch (type) {
    case FrameType::kHello:
      return with(decode_hello(body), [&](const Hello& hello) { return all_.greeter.on_hello(from, hello); });
    case FrameType::kWelcome:
      return with(decode_welcome(body), [&](const Id& process) { return all_.greeter.on_welcome(from, process); });
    case FrameType::kRefuse:
      return with(decode_refuse(body), [&](const Refuse& refusal) { all_.greeter.on_refuse(from, refusal); });
    default: break;  // a frame that belongs to a link
  }
  if (from.state() != Connection::State::kAttached) return corrupt("it did not begin with a greeting");
  TcpLink* const link = all_.links.find(from.slot.link());
  return link != nullptr ? on_link_frame(*link, from, type, body) : Status();
}

Status TcpEngine::on_link_frame(TcpLink& link, Connection& from, FrameType type, std::span<const std::byte> body) {
  switch (type) {
    case FrameType::kAck:
      return with(decode_ack(body), [&](const Arrivals& of) { return all_.sessions.on_ack(link, from, of); });
    case FrameType::kPing:
      return with(decode_ping(body), [&](std::uint64_t stamp) { return all_.liveness.on_ping(from, stamp); });
    case FrameType::kPong:
      return with(decode_pong(body), [&](const Pong& pong) { all_.liveness.on_pong(link, from, pong); });
    case FrameType::kWant:
      return with(decode_want(body), [&](std::uint16_t wanted) { all_.number.on_want(link, wanted); });
    case FrameType::kBye:
      return with(decode_bye(body), [&](const Bye& bye) { return all_.sessions.on_bye(link, bye); });
    case FrameType::kAbort:
      return with(decode_abort(body), [&](const std::string& reason) {
        all_.links.end(link, unavailable(link.peer() + " ended the link: " + reason + " [tcp.ended-by-peer]"));
      });
    case FrameType::kAllow:
      return with(decode_allow(body),
                  [&](std::uint64_t rate) { link.caps.allow(static_cast<double>(rate), all_.now()); });
    case FrameType::kHello:
    case FrameType::kWelcome:
    case FrameType::kRefuse:
    case FrameType::kSegment: break;
  }
  return internal_error("a frame that belongs elsewhere");
}

void TcpEngine::on_reading_paused(Connection& from) {
  all_.liveness.heard(from);
  all_.liveness.answer(from);
  TcpLink* const link = all_.links.find(from.slot.link());
  if (link == nullptr) return;
  all_.sessions.acknowledge_soon(*link);
  all_.striping.pump(*link);
}

void TcpEngine::on_send_queue_empty(Connection& from) {
  if (TcpLink* const link = all_.links.find(from.slot.link()); link != nullptr) all_.striping.pump(*link);
}

void TcpEngine::failed(const ConnectionPtr& from, Fault fault, const Status& why) {
  if (all_.context.stopped) return;
  TcpLink* const link = all_.links.find(from->slot.link());
  if (link == nullptr) return all_.pending.failed(from, fault, why);
  if (!link->open()) return all_.dialler.opening_failed(*link, fault, why);
  all_.dialler.failed(*link, from->slot.index(), fault, why);
}

// ---- ticks -----------------------------------------------------------------------------------------

void TcpEngine::tick() {
  const TimePoint now = all_.now();
  // If this thread was held up, the peers' bytes still wait to be read, and no peer is at fault.
  const bool held_up = all_.upkeep.begin_tick(now);
  for (const LinkId id : all_.links.ids()) {
    TcpLink* const link = all_.links.find(id);
    if (link == nullptr) continue;
    if (held_up) Liveness::reset_silence(*link, now);
    tick_link(*link, now);
  }
  all_.tokens.tick(now);
  all_.balance.tick(now);
  all_.caps.tick(now);
  all_.upkeep.trim_idle(now);
  all_.pending.tick(now);
  all_.upkeep.keep_ticking();
}

void TcpEngine::tick_link(TcpLink& link, TimePoint now) {
  if (!link.open()) return all_.dialler.check_opening(link, now);
  all_.liveness.tick(link, now);
  if (!link.ended()) all_.sessions.check_closing(link, now);
  if (link.ended()) return;
  all_.dialler.redial(link, now);
  all_.pacing.tick(link, now);
  if (!link.session.outbox(Lane::kData).empty()) all_.striping.pump(link);  // to resend hanging data
}

}  // namespace collab::tcp
