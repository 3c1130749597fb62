#include "core/base/own_descriptor.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace collab {
namespace {

// One bit for each descriptor. A forked child reads them in its one thread, right after fork(), without a lock and
// without the heap. Higher descriptors have no bit, so the child keeps its copies; a process can rarely open so many.
constexpr std::size_t kBits = 64;
constexpr std::size_t kMost = 64 << 10;
constinit std::array<std::atomic<std::uint64_t>, kMost / kBits> closed_on_fork{};

void close_in_child() {
  for (std::size_t word = 0; word < closed_on_fork.size(); ++word) {
    for (std::uint64_t bits = closed_on_fork[word].exchange(0); bits != 0; bits &= bits - 1) {
      ::close(static_cast<int>(word * kBits + static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
}

[[nodiscard]] bool has_bit(int fd) { return fd >= 0 && static_cast<std::size_t>(fd) < kMost; }
[[nodiscard]] std::uint64_t bit_of(int fd) { return std::uint64_t{1} << (static_cast<std::size_t>(fd) % kBits); }

}  // namespace

void set_close_on_fork(int fd) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, &close_in_child);
  static_cast<void>(registered);
  if (has_bit(fd)) closed_on_fork[static_cast<std::size_t>(fd) / kBits].fetch_or(bit_of(fd));
}

void clear_close_on_fork(int fd) {
  if (has_bit(fd)) closed_on_fork[static_cast<std::size_t>(fd) / kBits].fetch_and(~bit_of(fd));
}

OwnDescriptor::OwnDescriptor(int fd) : fd_(fd), owner_(::getpid()) { set_close_on_fork(fd); }

OwnDescriptor::OwnDescriptor(OwnDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), owner_(other.owner_) {}

OwnDescriptor& OwnDescriptor::operator=(OwnDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(owner_, other.owner_);
  return *this;
}

OwnDescriptor::~OwnDescriptor() {
  const int fd = get();
  if (fd < 0) return;
  clear_close_on_fork(fd);
  ::close(fd);
}

int OwnDescriptor::get() const { return ::getpid() == owner_ ? fd_ : -1; }

}  // namespace collab
