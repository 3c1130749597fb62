#include "tests/hostile/raw_connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace collab::hostile {
namespace {

constexpr int kHandshakeMs = 3000;
constexpr std::size_t kMostRead = std::size_t{64} << 10;

void make_lively(int made) {
  const int on = 1;
  (void)::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)::fcntl(made, F_SETFL, ::fcntl(made, F_GETFL) | O_NONBLOCK);
}

int dial(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return -1;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &wanted, &found) != 0) return -1;
  const int made = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = made >= 0 && ::connect(made, found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  if (connected) {
    make_lively(made);
    return made;
  }
  if (made >= 0) ::close(made);
  return -1;
}

// 127.0.0.2: a coordinator does not dial its own host.
sockaddr_in second_address() {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  return at;
}

std::string text_of(const sockaddr_in& at) { return "127.0.0.2:" + std::to_string(ntohs(at.sin_port)); }

}  // namespace

Unanswered::Unanswered() {
  const auto make = [this] {
    sockets_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return sockets_.back();
  };
  sockaddr_in at = second_address();
  socklen_t size = sizeof at;
  auto* generic = reinterpret_cast<sockaddr*>(&at);
  const int listener = make();
  if (::bind(listener, generic, size) != 0 || ::listen(listener, 0) != 0 ||
      ::getsockname(listener, generic, &size) != 0) {
    return;
  }
  for (int i = 0; i < 4; ++i) (void)::connect(make(), generic, size);  // more than wait in a queue of none
  address_ = text_of(at);
}

Unanswered::~Unanswered() {
  for (const int each : sockets_) ::close(each);
}

Port::Port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  sockaddr_in at = second_address();
  socklen_t size = sizeof at;
  auto* generic = reinterpret_cast<sockaddr*>(&at);
  if (::bind(socket_, generic, size) != 0 || ::listen(socket_, SOMAXCONN) != 0 ||
      ::getsockname(socket_, generic, &size) != 0) {
    return;
  }
  address_ = text_of(at);
}

Port::~Port() { ::close(socket_); }

int Port::take() const { return ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC); }

void wait_for(const RawConnection& connection, bool writable, int limit_ms) {
  pollfd one{connection.handle(), static_cast<short>(writable ? POLLOUT : POLLIN), 0};
  (void)::poll(&one, 1, limit_ms);
}

void wait_ms(int limit_ms) { (void)::poll(nullptr, 0, limit_ms); }

RawConnection::RawConnection(const std::string& address, std::shared_ptr<const tcp::TlsContext> key,
                             const std::optional<tcp::Hello>& hello)
    : socket_(dial(address)) {
  if (socket_ < 0) {
    end_ = std::string("not connected: ") + std::strerror(errno);
    return;
  }
  if (!hello) return;
  if (key != nullptr) secure(std::move(key));
  if (!open()) return;
  queue(tcp::encode_preface());
  queue(tcp::encode(*hello));
  flush();
}

RawConnection::RawConnection(int accepted, std::shared_ptr<const tcp::TlsContext> key) : socket_(accepted) {
  make_lively(accepted);
  if (key != nullptr) tls_ = std::make_unique<tcp::TlsStream>(std::move(key), false);
}

RawConnection::~RawConnection() {
  if (socket_ >= 0) ::close(socket_);
}

void RawConnection::close(std::string why) {
  if (socket_ < 0) return;
  ::close(socket_);
  socket_ = -1;
  if (end_.empty()) end_ = std::move(why);
}

void RawConnection::secure(std::shared_ptr<const tcp::TlsContext> key) {
  tls_ = std::make_unique<tcp::TlsStream>(std::move(key), true);
  std::array<std::byte, 4096> came{};
  for (int waited = 0; open() && waited < kHandshakeMs;) {
    const Result<bool> done = tls_->handshake();
    flush();
    if (!done.ok()) return close(done.status().message());
    if (*done) return;
    pollfd one{socket_, POLLIN, 0};
    waited += 1 + (::poll(&one, 1, kHandshakeMs) == 0 ? kHandshakeMs : 0);
    const ssize_t got = ::recv(socket_, came.data(), came.size(), 0);
    if (got <= 0) return close("closed during the TLS handshake");
    tls_->incoming(std::span(came).first(static_cast<std::size_t>(got)));
  }
  close("no TLS handshake in time");
}

void RawConnection::queue(std::span<const std::byte> bytes) {
  if (!open()) return;
  if (tls_ == nullptr) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  } else if (const Status written = tls_->write(bytes); !written.ok()) {
    close(written.message());
  }
}

bool RawConnection::flush() {
  while (open()) {
    const std::span<const std::byte> rest = tls_ != nullptr ? tls_->outgoing() : std::span(out_).subspan(sent_);
    if (rest.empty()) break;
    const ssize_t went = ::send(socket_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (went < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      look();  // it may have said why
      close(std::strerror(errno));
      return false;
    }
    if (tls_ != nullptr) {
      tls_->sent(static_cast<std::size_t>(went));
    } else {
      sent_ += static_cast<std::size_t>(went);
    }
  }
  out_.clear();
  sent_ = 0;
  return open();
}

void RawConnection::queue_part(Lane lane, std::uint64_t message, std::uint32_t head_bytes, std::uint32_t offset,
                               std::span<const std::byte> data) {
  const auto header = tcp::encode(tcp::SegmentHeader{.lane = lane,
                                                     .number = segments_[static_cast<std::size_t>(lane)]++,
                                                     .message = message,
                                                     .head_bytes = head_bytes,
                                                     .payload_bytes = 0,
                                                     .offset = offset,
                                                     .length = static_cast<std::uint32_t>(data.size())});
  queue(header);
  queue(data);
}

void RawConnection::queue_message(Lane lane, std::span<const std::byte> head) {
  const std::uint64_t message = messages_[static_cast<std::size_t>(lane)]++;
  for (std::size_t at = 0; at < head.size(); at += tcp::kMaxSegmentBytes) {
    queue_part(lane, message, static_cast<std::uint32_t>(head.size()), static_cast<std::uint32_t>(at),
               head.subspan(at, std::min(tcp::kMaxSegmentBytes, head.size() - at)));
  }
}

bool RawConnection::wait_for_welcome(int limit_ms) {
  for (int waited = 0; open() && !greeted_ && waited < limit_ms; waited += 10) {
    wait_for(*this, false, 10);
    look();
  }
  return open() && greeted_;
}

void RawConnection::look() { look(SIZE_MAX); }

void RawConnection::look(std::size_t most_bytes) {
  static thread_local std::array<std::byte, kMostRead> came;
  while (open() && most_bytes > 0) {
    const ssize_t got = ::recv(socket_, came.data(), std::min(came.size(), most_bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return close(got == 0 ? "closed without a word" : std::strerror(errno));
    most_bytes -= static_cast<std::size_t>(got);
    const auto bytes = std::span<const std::byte>(came).first(static_cast<std::size_t>(got));
    if (tls_ == nullptr) {
      take(bytes);
      continue;
    }
    tls_->incoming(bytes);
    if (!tls_->open()) {
      const Result<bool> done = tls_->handshake();
      if (!done.ok()) return close(done.status().message());
      flush();
      if (!*done) continue;
    }
    std::vector<std::byte> plain(kMostRead);
    for (;;) {
      const Result<std::size_t> read = tls_->read(plain);
      if (!read.ok()) return close(read.status().message());
      if (*read == 0) break;
      take(std::span<const std::byte>(plain).first(*read));
    }
  }
}

void RawConnection::take(std::span<const std::byte> plain) {
  in_.insert(in_.end(), plain.begin(), plain.end());
  std::span<const std::byte> rest(in_);
  bool preface = !greeted_ && !hello_ && rest.size() >= tcp::kPrefaceBytes && rest[0] == std::byte{'C'};
  if (preface) rest = rest.subspan(tcp::kPrefaceBytes);
  while (rest.size() >= tcp::kPrefixBytes) {
    const Result<tcp::Prefix> prefix = tcp::decode_prefix(rest.first<tcp::kPrefixBytes>());
    if (!prefix.ok()) return close("it sent " + prefix.status().message());
    const std::size_t whole = tcp::kPrefixBytes + prefix->body_bytes;
    if (rest.size() < whole) break;
    on_frame(*prefix, rest.subspan(tcp::kPrefixBytes, prefix->body_bytes));
    if (!open()) return;
    rest = rest.subspan(whole);
    preface = false;
  }
  const std::size_t kept = rest.size() + (preface ? tcp::kPrefaceBytes : 0);
  in_.erase(in_.begin(), in_.end() - static_cast<std::ptrdiff_t>(kept));
}

void RawConnection::on_frame(const tcp::Prefix& prefix, std::span<const std::byte> body) {
  if (prefix.type == tcp::FrameType::kWelcome) greeted_ = true;
  if (prefix.type == tcp::FrameType::kHello) {
    if (const Result<tcp::Hello> hello = tcp::decode_hello(body); hello.ok()) hello_ = *hello;
  }
  if (prefix.type == tcp::FrameType::kSegment) ++segments_came_;
  if (prefix.type == tcp::FrameType::kPong) ++pongs_came_;
  if (prefix.type == tcp::FrameType::kPing) {
    const Result<std::uint64_t> stamp = tcp::decode_ping(body);
    if (stamp.ok()) queue(tcp::encode(tcp::Pong{*stamp, *stamp}));
    flush();
  }
  if (prefix.type == tcp::FrameType::kBye) close("a bye");
  if (prefix.type == tcp::FrameType::kAbort) {
    const Result<std::string> reason = tcp::decode_abort(body);
    close("aborted: " + (reason.ok() ? *reason : std::string("no reason")));
  }
  if (prefix.type == tcp::FrameType::kRefuse) {
    const Result<tcp::Refuse> refusal = tcp::decode_refuse(body);
    close("refused: " + (refusal.ok() ? refusal->reason : std::string("no reason")));
  }
}

}  // namespace collab::hostile
