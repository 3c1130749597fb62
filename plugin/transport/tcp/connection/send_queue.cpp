#include "transport/tcp/connection/send_queue.h"

#include <algorithm>
#include <utility>

namespace collab::tcp {
namespace {

constexpr std::size_t kEncryptAtOnce = std::size_t{128} << 10;
constexpr std::size_t kSmall = 4096;  // bytes; smaller pieces share a TLS record

}  // namespace

void SendQueue::push(Bytes frame) {
  Item item;
  item.frame = std::move(frame);
  items_.push_back(std::move(item));
}

void SendQueue::push(Outbox::Piece piece) {
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

std::uint64_t SendQueue::bytes() const {
  std::uint64_t bytes = 0;
  for (const Item& item : items_) bytes += item.size();
  return bytes - first_sent_;
}

std::size_t SendQueue::gather(std::span<iovec> parts) const {
  std::size_t count = 0;
  std::size_t skip = first_sent_;
  for (const Item& item : items_) {
    if (count + 2 > parts.size()) break;
    for (const std::span<const std::byte> part : {std::span<const std::byte>(item.frame), item.data}) {
      const std::size_t skipped = std::min(skip, part.size());
      skip -= skipped;
      if (part.size() == skipped) continue;
      parts[count++] = {const_cast<std::byte*>(part.data()) + skipped, part.size() - skipped};
    }
  }
  return count;
}

void SendQueue::sent(std::size_t bytes, const Written& written) {
  std::size_t left = first_sent_ + bytes;
  while (!items_.empty() && left >= items_.front().size()) {
    left -= items_.front().size();
    first_done(written);
  }
  first_sent_ = left;
}

void SendQueue::first_done(const Written& written) {
  const Item done = std::move(items_.front());
  items_.pop_front();
  first_sent_ = 0;
  if (done.segment) written(done.lane, done.number);
}

void SendQueue::take(const std::function<void(std::span<const std::byte>)>& encrypt, const Written& written) {
  Bytes small;
  std::size_t taken = 0;
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
    first_done(written);
  }
  encrypt(small);
}

void SendQueue::drop_segments() {
  std::erase_if(items_,
                [&](const Item& item) { return item.segment && (&item != &items_.front() || first_sent_ == 0); });
}

}  // namespace collab::tcp
