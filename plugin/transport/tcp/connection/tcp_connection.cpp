// How a connection begins and ends, and what it reads.
#include "transport/tcp/connection/tcp_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

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
// Then others have their turn. Small frames cost more than their bytes: who sends many is read little at a time.
constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;
constexpr std::size_t kFramesAtOnce = 1024;
constexpr std::size_t kReadOfMany = std::size_t{16} << 10;
constexpr std::byte kTlsRecord{0x16};

}  // namespace

Connection::Connection(ConnectionContext& context, Carrier own_name)
    : name(own_name), context_(context), socket_(context.io) {}

Connection::~Connection() { close_own(socket_); }

void Connection::dial(const Endpoint& to) {
  dialled_ = true;
  peer_ = to;
  boost::system::error_code error;
  socket_.open(to.protocol(), error);
  if (error) {
    fail(Fault::kNoAnswer, unavailable("no socket: " + error.message()));
    return;
  }
  make_own(socket_.native_handle());
  const std::string& congestion = to.address().is_loopback() ? std::string() : context_.congestion;
  prepare_socket(socket_.native_handle(), congestion, context_.give_up);
  socket_.async_connect(to, [self = shared_from_this()](const boost::system::error_code& failure) {
    if (self->state_ != State::kConnecting) return;
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
  boost::system::error_code ignored;
  socket_.native_non_blocking(true, ignored);
  state_ = State::kSecuring;
  if (context_.keys != nullptr) {
    tls_ = std::make_unique<TlsStream>(context_.keys->current(), true);
    if (const Result<bool> begun = tls_->handshake(); !begun.ok()) {
      fail(Fault::kNotAllowed, begun.status());
      return;
    }
  } else {
    state_ = State::kGreeting;
  }
  wait_to_read();
  flush();
}

void Connection::accept(asio::ip::tcp::socket socket, const Endpoint& from) {
  socket_ = std::move(socket);
  peer_ = from;
  boost::system::error_code ignored;
  socket_.native_non_blocking(true, ignored);
  make_own(socket_.native_handle());
  const std::string& congestion = from.address().is_loopback() ? std::string() : context_.congestion;
  prepare_socket(socket_.native_handle(), congestion, context_.give_up);
  state_ = State::kSecuring;
  wait_to_read();
}

std::optional<Duration> Connection::kernel_silence() const {
  auto& socket = const_cast<asio::ip::tcp::socket&>(socket_);
  return socket.is_open() ? tcp::kernel_silence(socket.native_handle()) : std::nullopt;
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  if (const auto last = socket_.is_open() ? kernel_figures(handle()) : std::nullopt) {
    never_sent_ = last->unsent_bytes;
    for (const Item& item : items_) never_sent_ += item.size();
    never_sent_ -= item_sent_;
  }
  close_own(socket_);
  items_.clear();
  decoder_.forget_place();
}

void Connection::fail(Fault fault, Status why) {
  if (state_ == State::kClosed) return;
  close();
  asio::post(context_.io, [self = shared_from_this(), fault, why = std::move(why)] {
    self->context_.owner.failed(self, fault, why);
  });
}

void Connection::drain() {
  if (state_ == State::kDraining || state_ == State::kClosed) return;
  state_ = State::kDraining;
  decoder_.forget_place();
  // Segments are of no use any more; one that has begun must end as it was announced.
  std::erase_if(items_,
                [&](const Item& item) { return item.segment && (&item != &items_.front() || item_sent_ == 0); });
  flush();
  finish_drain();
}

void Connection::finish_drain() {
  if (state_ != State::kDraining || shut_ || !idle()) return;
  shut_ = true;
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

// ---- reading -------------------------------------------------------------------------------------

void Connection::wait_to_read() {
  if (waits_to_read_ || state_ == State::kClosed) return;
  waits_to_read_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->waits_to_read_ = false;
                       if (error || self->state_ == State::kClosed) return;
                       self->read_ready();
                     });
}

void Connection::resume_reading() {
  pause_ = Pause::kNone;
  if (state_ != State::kClosed && state_ != State::kConnecting) wait_to_read();
}

void Connection::read_ready() {
  std::size_t taken = 0;
  std::size_t frames = 0;
  while (taken < kReadAtOnce && frames < kFramesAtOnce && state_ != State::kClosed) {
    const std::size_t now = read_some();
    if (now == 0) break;
    taken += now;
    frames += decoder_.take_count();
    many_frames_ = many_frames_ || frames >= kFramesAtOnce;
    if (!context_.owner.may_read(*this, now)) {
      context_.owner.reading_paused(*this);
      return;
    }
  }
  if (state_ == State::kClosed) return;
  if (frames < kFramesAtOnce / 2) many_frames_ = false;
  context_.owner.reading_paused(*this);
  if (tls_ != nullptr && !tls_->outgoing().empty()) flush();
  wait_to_read();
}

// Bytes taken in; 0: nothing is there now; nothing: the connection has ended.
std::optional<std::size_t> Connection::receive(std::span<std::byte> first, std::span<std::byte> second) {
  std::array<iovec, 2> parts{iovec{first.data(), first.size()}, iovec{second.data(), second.size()}};
  const int from = first.empty() ? 1 : 0;
  const ssize_t got = ::readv(socket_.native_handle(), parts.data() + from, 2 - from);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
  read_error(got == 0 ? 0 : errno);
  return std::nullopt;
}

void Connection::read_error(int error) {
  if (state_ == State::kDraining) {
    fail(Fault::kEndedByPeer, unavailable("ended"));
    return;
  }
  const bool greeted = state_ == State::kAttached;
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN) {
    fail(Fault::kNoAnswer, unavailable(std::strerror(error)));
  } else if (greeted) {
    fail(Fault::kEndedByPeer,
         unavailable(error == 0 ? "the other side closed the connection" : std::string(std::strerror(error))));
  } else {
    fail(Fault::kEndedByPeer, unavailable("the other side closed the connection before it said who it is"));
  }
}

std::span<std::byte> Connection::raw() const {
  return std::span(context_.raw).first(many_frames_ ? kReadOfMany : context_.raw.size());
}

std::size_t Connection::read_some() {
  if (state_ == State::kDraining) return receive(context_.raw, {}).value_or(0);
  const bool in_clear = (first_byte_seen_ || dialled_) && tls_ == nullptr;
  return in_clear ? read_clear() : read_tls();
}

std::size_t Connection::read_clear() {
  const std::span<std::byte> room = decoder_.room();
  const auto got = receive(room, raw());
  if (!got || *got == 0) return 0;
  const std::size_t placed = std::min(room.size(), *got);
  Status sound = placed > 0 ? decoder_.filled(placed, *this) : Status();
  if (sound.ok()) sound = decoder_.feed(std::span(context_.raw).first(*got - placed), *this);
  if (!sound.ok()) broken(sound);
  return *got;
}

// TLS, or a first byte that tells whether it is.
std::size_t Connection::read_tls() {
  const auto got = receive(raw(), {});
  if (!got || *got == 0) return 0;
  if (!first_byte_seen_ && !settle_first_byte(context_.raw[0])) return 0;
  const std::span<const std::byte> bytes = std::span(context_.raw).first(*got);
  if (tls_ == nullptr || refusal_only_) {
    if (const Status sound = decoder_.feed(bytes, *this); !sound.ok()) broken(sound);
    return *got;
  }
  tls_->incoming(bytes);
  if (const Status sound = decode_tls(); !sound.ok()) broken(sound);
  return *got;
}

// False: the connection is given up.
bool Connection::settle_first_byte(std::byte first) {
  first_byte_seen_ = true;
  const bool clear = first == static_cast<std::byte>(kMagic[0]);
  const bool tls = context_.keys != nullptr;
  if (dialled_) {
    refusal_only_ = clear;
    return true;
  }
  if (tls && first == kTlsRecord) {
    tls_ = std::make_unique<TlsStream>(context_.keys->current(), false);
    return true;
  }
  if (!tls && clear) {
    hello_came_ = true;
    state_ = State::kGreeting;
    return true;
  }
  if (!clear && first != kTlsRecord) {
    fail(Fault::kBroken,
         corrupt("the caller is not a tcp transport of collab (a site without the swarm's key may use ucx: "
                 "COLLAB_TOKEN and COLLAB_TRANSPORT must be the same everywhere)"));
    return false;
  }
  // The other side understands a refusal in the clear.
  const std::string words =
      tls ? "it does not encrypt, but this side does: give it the swarm's COLLAB_TOKEN (or certificates)"
          : "it requires encryption, but this site has no key: set the swarm's COLLAB_TOKEN (or certificates) here too";
  const std::string told =
      tls ? "this side encrypts, but the connection came in the clear: set the swarm's COLLAB_TOKEN (or certificates) "
            "[tcp.peer-encrypts]"
          : "this side has no key to encrypt with: set the same COLLAB_TOKEN (or certificates) on all sites, or on "
            "none [tcp.peer-has-no-key]";
  Bytes answer = encode_preface();
  const Bytes refusal = encode(Refuse{Refusal::kNotAllowed, told});
  answer.insert(answer.end(), refusal.begin(), refusal.end());
  send(std::move(answer));
  drain();
  asio::post(context_.io, [self = shared_from_this(), words] {
    self->context_.owner.failed(self, Fault::kNotAllowed, refused(words));
  });
  return false;
}

Status Connection::decode_tls() {
  if (!tls_->open()) {
    const Result<bool> done = tls_->handshake();
    if (!done.ok()) {
      flush();  // the alert tells the other side
      return done.status();
    }
    hello_came_ = hello_came_ || *done || !tls_->outgoing().empty();
    if (!*done) return {};
    if (state_ == State::kSecuring) state_ = State::kGreeting;
    flush();
  }
  while (state_ != State::kClosed && state_ != State::kDraining) {
    const std::span<std::byte> room = decoder_.room();
    const bool direct = !room.empty();
    const Result<std::size_t> got = tls_->read(direct ? room : std::span(context_.clear));
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

Result<std::optional<std::span<std::byte>>> Connection::segment_begins(const SegmentHeader& header) {
  if (state_ == State::kDraining || state_ == State::kClosed) return std::optional<std::span<std::byte>>();
  if (state_ != State::kAttached) return corrupt("a segment before the greeting");
  return context_.owner.segment_begins(*this, header);
}

Status Connection::segment_ended(const SegmentHeader& header, bool placed) {
  if (state_ != State::kAttached) return {};
  return context_.owner.segment_ended(*this, header, placed);
}

Status Connection::frame_came(FrameType type, std::span<const std::byte> body) {
  if (state_ == State::kDraining || state_ == State::kClosed) return {};
  if (refusal_only_ && type != FrameType::kRefuse) return corrupt("an answer in the clear to a dial in TLS");
  return context_.owner.frame_came(*this, type, body);
}

}  // namespace collab::tcp
