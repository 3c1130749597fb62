#include "transport/tcp/connection/tcp_connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/tcp/connection/tcp_kernel.h"

namespace collab::tcp {
namespace {

namespace asio = boost::asio;
constexpr std::size_t kParts = 64;  // pieces per write

}  // namespace

Connection::Connection(ConnectionContext& context, ConnectionId own_name)
    : name(own_name), context_(context), socket_(context.io) {}

void Connection::dial(const Endpoint& to) {
  security_.dial();
  if (const auto error = socket_.open(to, context_.socket)) {
    fail(Fault::kNoAnswer, unavailable("no socket: " + error.message()));
    return;
  }
  socket_.connect([self = shared_from_this()](const boost::system::error_code& failure) {
    if (!self->life_.is(State::kConnecting)) return;
    if (!failure) {
      self->connected();
      return;
    }
    const bool nobody = failure == asio::error::connection_refused;
    self->fail(nobody ? Fault::kRefusedPort : Fault::kNoAnswer,
               unavailable(nobody ? "nobody listens there (connection refused)" : failure.message()));
  });
}

void Connection::connected() {
  socket_.connected();
  life_.secure();
  if (const Status begun = security_.begin(context_.keys.get()); !begun.ok()) {
    fail(Fault::kNotAllowed, begun);
    return;
  }
  if (security_.clear()) life_.greet();
  wait_to_read();
  flush();
}

void Connection::accept(asio::ip::tcp::socket socket, const Endpoint& from) {
  socket_.adopt(std::move(socket), from, context_.socket);
  life_.secure();
  wait_to_read();
}

void Connection::close() {
  if (life_.is(State::kClosed)) return;
  life_.close();
  if (const auto last = socket_.is_open() ? kernel_figures(handle()) : std::nullopt) {
    never_sent_ = last->unsent_bytes + queue_.bytes();
  }
  socket_.close();
  queue_.clear();
  decoder_.forget_place();
}

void Connection::fail(Fault fault, Status why) {
  if (life_.is(State::kClosed)) return;
  close();
  asio::post(context_.io, [self = shared_from_this(), fault, why = std::move(why)] {
    self->context_.owner.failed(self, fault, why);
  });
}

void Connection::drain() {
  if (life_.ends()) return;
  life_.drain();
  decoder_.forget_place();
  queue_.drop_segments();
  flush();
  finish_drain();
}

void Connection::finish_drain() {
  if (life_.is(State::kDraining) && idle()) socket_.shut();
}

// ---- reading -------------------------------------------------------------------------------------

void Connection::wait_to_read() {
  if (life_.is(State::kClosed)) return;
  socket_.wait_to_read([self = shared_from_this()] {
    if (!self->life_.is(State::kClosed)) self->read_ready();
  });
}

void Connection::resume_reading() {
  pause_ = Pause::kNone;
  if (!life_.is(State::kConnecting)) wait_to_read();
}

void Connection::read_ready() {
  turn_.begin();
  while (turn_.has_budget() && !life_.is(State::kClosed)) {
    const std::size_t now = read_some();
    if (now == 0) break;
    turn_.took(now, decoder_.take_count());
    if (!context_.owner.admit_read(*this, now)) {
      context_.owner.on_reading_paused(*this);
      return;
    }
  }
  if (life_.is(State::kClosed)) return;
  turn_.end();
  context_.owner.on_reading_paused(*this);
  if (security_.has_outgoing()) flush();
  wait_to_read();
}

// The number of bytes read; 0: none are available now, or the connection has ended.
std::size_t Connection::receive(std::span<std::byte> first, std::span<std::byte> second) {
  const NonblockingSocket::IoResult got = socket_.receive(first, second);
  if (got.error) ended(*got.error);
  return got.bytes;
}

void Connection::ended(int error) {
  if (life_.is(State::kDraining)) {
    fail(Fault::kEndedByPeer, unavailable("ended"));
    return;
  }
  const bool greeted = life_.is(State::kAttached);
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN) {
    fail(Fault::kNoAnswer, unavailable(std::strerror(error)));
  } else if (greeted) {
    fail(Fault::kEndedByPeer,
         unavailable(error == 0 ? "the other side closed the connection" : std::string(std::strerror(error))));
  } else {
    fail(Fault::kEndedByPeer, unavailable("the other side closed the connection before it said who it is"));
  }
}

std::span<std::byte> Connection::raw() const { return std::span(context_.raw).first(turn_.most(context_.raw.size())); }

std::size_t Connection::read_some() {
  if (life_.is(State::kDraining)) return receive(context_.raw, {});
  return security_.known_clear() ? read_clear() : read_tls();
}

std::size_t Connection::read_clear() {
  const std::span<std::byte> room = decoder_.room();
  const std::size_t got = receive(room, raw());
  if (got == 0) return 0;
  const std::size_t placed = std::min(room.size(), got);
  Status sound = placed > 0 ? decoder_.filled(placed, *this) : Status();
  if (sound.ok()) sound = decoder_.feed(std::span(context_.raw).first(got - placed), *this);
  if (!sound.ok()) broken(sound);
  return got;
}

// Reads TLS, or the first byte, which tells whether the connection uses TLS.
std::size_t Connection::read_tls() {
  const std::size_t got = receive(raw(), {});
  if (got == 0) return 0;
  if (!security_.settled() && !settle_first_byte(context_.raw[0])) return 0;
  const std::span<const std::byte> bytes = std::span(context_.raw).first(got);
  if (security_.clear()) {
    if (const Status sound = decoder_.feed(bytes, *this); !sound.ok()) broken(sound);
    return got;
  }
  security_.tls()->incoming(bytes);
  if (const Status sound = decode_tls(); !sound.ok()) broken(sound);
  return got;
}

// False: the connection is given up.
bool Connection::settle_first_byte(std::byte first) {
  switch (security_.settle(first, context_.keys.get())) {
    case SecurityLayer::FirstByte::kProceeds: return true;
    case SecurityLayer::FirstByte::kClear: life_.greet(); return true;
    case SecurityLayer::FirstByte::kForeign:
      fail(Fault::kBroken,
           corrupt("the caller is not a tcp transport of collab (a site without the swarm's token may use ucx: "
                   "COLLAB_TOKEN and COLLAB_TRANSPORT must be the same everywhere)"));
      return false;
    case SecurityLayer::FirstByte::kMismatch: refuse_in_clear(); return false;
  }
  return false;
}

// The other side understands a refusal in the clear.
void Connection::refuse_in_clear() {
  const bool tls = context_.keys != nullptr;
  const std::string reason =
      tls ? "it does not encrypt, but this side does: give it the swarm's COLLAB_TOKEN (or certificates)"
          : "it requires encryption, but this site has no token: set the swarm's COLLAB_TOKEN (or certificates) here "
            "too";
  const std::string told =
      tls ? "this side encrypts, but the connection came in the clear: set the swarm's COLLAB_TOKEN (or certificates) "
            "[tcp.peer-encrypts]"
          : "this side has no token to encrypt with: set the same COLLAB_TOKEN (or certificates) on all sites, or on "
            "none [tcp.peer-has-no-key]";
  Bytes answer = encode_preface();
  const Bytes refusal = encode(Refuse{Refusal::kNotAllowed, told});
  answer.insert(answer.end(), refusal.begin(), refusal.end());
  send(std::move(answer));
  drain();
  asio::post(context_.io, [self = shared_from_this(), reason] {
    self->context_.owner.failed(self, Fault::kNotAllowed, refused(reason));
  });
}

Status Connection::decode_tls() {
  TlsStream& tls = *security_.tls();
  if (!tls.open()) {
    const Result<bool> done = security_.handshake();
    if (!done.ok()) {
      flush();  // the alert tells the other side
      return done.status();
    }
    if (!*done) return {};
    life_.greet();
    flush();
  }
  while (!life_.ends()) {
    const std::span<std::byte> room = decoder_.room();
    const bool direct = !room.empty();
    const Result<std::size_t> got = tls.read(direct ? room : std::span(context_.clear));
    if (!got.ok()) return got.status();
    if (*got == 0) return {};
    COLLAB_RETURN_IF_ERROR(direct ? decoder_.filled(*got, *this)
                                  : decoder_.feed(std::span(context_.clear).first(*got), *this));
  }
  return {};
}

void Connection::broken(const Status& why) {
  switch (why.code()) {
    case StatusCode::kRefused: return fail(Fault::kNotAllowed, why);
    case StatusCode::kUnavailable: return fail(Fault::kEndedByPeer, why);
    case StatusCode::kOk:
    case StatusCode::kInvalidArgument:
    case StatusCode::kTimeout:
    case StatusCode::kOutdated:
    case StatusCode::kCorrupt:
    case StatusCode::kCancelled:
    case StatusCode::kInternal: break;
  }
  fail(Fault::kBroken, why);
}

Result<std::optional<std::span<std::byte>>> Connection::on_segment_begin(const SegmentHeader& header) {
  if (life_.ends()) return std::optional<std::span<std::byte>>();
  if (!life_.is(State::kAttached)) return corrupt("a segment before the greeting");
  return context_.owner.on_segment_begin(*this, header);
}

Status Connection::on_segment_end(const SegmentHeader& header, bool placed) {
  if (!life_.is(State::kAttached)) return {};
  return context_.owner.on_segment_end(*this, header, placed);
}

Status Connection::on_frame(FrameType type, std::span<const std::byte> body) {
  if (life_.ends()) return {};
  if (security_.unauthenticated() && type != FrameType::kRefuse)
    return corrupt("an answer in the clear to a dial in TLS");
  return context_.owner.on_frame(*this, type, body);
}

// ---- writing -------------------------------------------------------------------------------------

void Connection::send(Bytes frame) {
  if (!life_.is(State::kClosed)) queue_.push(std::move(frame));
}

void Connection::flush() {
  if (socket_.waits_to_write() || life_.is(State::kClosed) || life_.is(State::kConnecting)) return;
  if (security_.tls() != nullptr) {
    write_tls();
  } else {
    write_clear();
  }
  finish_drain();
}

void Connection::wait_to_write() {
  socket_.wait_to_write([self = shared_from_this()] {
    if (self->life_.is(State::kClosed)) return;
    self->flush();
    if (self->life_.is(State::kAttached) && self->idle()) self->context_.owner.on_send_queue_empty(*self);
  });
}

// The number of bytes that the system took. Nothing: it takes no more now, or the connection has ended.
std::optional<std::size_t> Connection::put(std::span<iovec> parts) {
  const NonblockingSocket::IoResult put = socket_.send(parts);
  if (put.bytes > 0) return put.bytes;
  if (put.error) {
    ended(*put.error);
  } else {
    wait_to_write();
  }
  return std::nullopt;
}

void Connection::write_clear() {
  while (!queue_.empty() && !life_.is(State::kClosed)) {
    std::array<iovec, kParts> parts;
    const auto taken = put(std::span(parts).first(queue_.gather(parts)));
    if (!taken) return;
    queue_.sent(*taken, [this](Lane lane, std::uint64_t number) { on_segment_written(lane, number); });
  }
}

// False: the system takes no more now, or the connection has ended.
bool Connection::transmit_tls() {
  while (security_.has_outgoing()) {
    const std::span<const std::byte> bytes = security_.tls()->outgoing();
    std::array<iovec, 1> part{iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}};
    const auto taken = put(part);
    if (!taken) return false;
    security_.tls()->sent(*taken);
  }
  return true;
}

void Connection::write_tls() {
  while (transmit_tls() && security_.tls()->open() && !queue_.empty() && !life_.is(State::kClosed)) encrypt_queue();
}

void Connection::encrypt_queue() {
  Status sound;
  const auto encrypt = [&](std::span<const std::byte> bytes) {
    if (sound.ok()) sound = security_.tls()->write(bytes);
  };
  queue_.take(encrypt, [this](Lane lane, std::uint64_t number) { on_segment_written(lane, number); });
  if (!sound.ok()) broken(sound);
}

}  // namespace collab::tcp
