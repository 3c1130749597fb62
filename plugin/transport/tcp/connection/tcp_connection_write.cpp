// What a connection writes.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/tcp/connection/tcp_connection.h"

namespace collab::tcp {
namespace {

namespace asio = boost::asio;
constexpr std::size_t kParts = 64;
constexpr std::size_t kEncryptAtOnce = std::size_t{128} << 10;
constexpr std::size_t kSmall = 4096;  // smaller pieces share a TLS record

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS; }

}  // namespace

void Connection::send(Bytes frame) {
  if (state_ == State::kClosed) return;
  Item item;
  item.frame = std::move(frame);
  items_.push_back(std::move(item));
}

void Connection::send(Outbox::Piece piece) {
  const auto header = encode(piece.header);
  Item item;
  item.frame.assign(header.begin(), header.end());
  item.data = piece.data;
  item.owner = std::move(piece.owner);
  item.segment = true;
  item.lane = piece.header.lane;
  item.number = piece.header.number;
  items_.push_back(std::move(item));
}

void Connection::flush() {
  if (waits_to_write_ || state_ == State::kClosed || state_ == State::kConnecting) return;
  if (tls_ != nullptr) {
    write_tls();
  } else {
    write_clear();
  }
  finish_drain();
}

void Connection::wait_to_write() {
  waits_to_write_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->waits_to_write_ = false;
                       if (error || self->state_ == State::kClosed) return;
                       self->flush();
                       if (self->state_ == State::kAttached && self->idle()) self->context_.owner.ran_dry(*self);
                     });
}

void Connection::item_done() {
  const Item done = std::move(items_.front());
  items_.pop_front();
  item_sent_ = 0;
  if (done.segment) context_.owner.segment_written(*this, done.lane, done.number);
}

void Connection::write_clear() {
  while (!items_.empty() && state_ != State::kClosed) {
    std::array<iovec, kParts> parts;
    std::size_t count = 0;
    std::size_t skip = item_sent_;
    for (const Item& item : items_) {
      if (count + 2 > kParts) break;
      for (const std::span<const std::byte> part : {std::span<const std::byte>(item.frame), item.data}) {
        const std::size_t skipped = std::min(skip, part.size());
        skip -= skipped;
        if (part.size() == skipped) continue;
        parts[count++] = {const_cast<std::byte*>(part.data()) + skipped, part.size() - skipped};
      }
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t put = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0) {
      if (!would_block(errno)) return read_error(errno);
      return wait_to_write();
    }
    std::size_t left = item_sent_ + static_cast<std::size_t>(put);
    while (!items_.empty() && left >= items_.front().size()) {
      left -= items_.front().size();
      item_done();
    }
    item_sent_ = left;
  }
}

// False: the system takes no more now, or the connection has ended.
bool Connection::transmit_tls() {
  while (!tls_->outgoing().empty()) {
    const std::span<const std::byte> bytes = tls_->outgoing();
    const ssize_t put = ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0) {
      if (would_block(errno)) {
        wait_to_write();
      } else {
        read_error(errno);
      }
      return false;
    }
    tls_->sent(static_cast<std::size_t>(put));
  }
  return true;
}

void Connection::write_tls() {
  while (transmit_tls() && tls_->open() && !items_.empty() && state_ != State::kClosed) encrypt_items();
}

void Connection::encrypt_items() {
  Bytes small;
  Status sound;
  std::size_t taken = 0;
  const auto encrypt = [&](std::span<const std::byte> bytes) {
    if (sound.ok()) sound = tls_->write(bytes);
  };
  while (!items_.empty() && taken < kEncryptAtOnce) {
    const Item& item = items_.front();
    taken += item.size();
    small.insert(small.end(), item.frame.begin(), item.frame.end());
    if (item.data.size() < kSmall) {
      small.insert(small.end(), item.data.begin(), item.data.end());
    } else {
      encrypt(small);
      small.clear();
      encrypt(item.data);
    }
    if (small.size() >= kSmall) {
      encrypt(small);
      small.clear();
    }
    item_done();
  }
  encrypt(small);
  if (!sound.ok()) broken(sound);
}

}  // namespace collab::tcp
