// make_buffer_pool of collab/transport.h.
//
// Sizes are rounded up to classes, four to a doubling. So at most a fifth of a buffer is waste, and a short last chunk
// finds the buffer of a full one. The pool never holds more than the peak that was in use at once. If a request cannot
// be served from what is kept and fresh memory would pass the peak, kept buffers go first. The pool has no clock. A
// caller that calls trim_idle() every few seconds gives the peak a few seconds to be reached again.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <new>

#include "collab/transport.h"

namespace collab {
namespace {

constexpr std::size_t kSmallestClass = 4096;
constexpr std::size_t kAlignment = 64;
// Large blocks are mapped one by one, so that freeing one returns it to the system at once.
constexpr std::size_t kMapFrom = std::size_t{256} << 10;
constexpr std::size_t kNotWorthKeeping = std::size_t{1} << 20;

std::size_t class_of(std::size_t bytes) {
  if (bytes <= kSmallestClass) return kSmallestClass;
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;  // NOLINT(clang-analyzer-core.DivideZero): 1024 at least
}

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes >= kMapFrom) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      memory = nullptr;
    } else {
      // No huge pages: one byte of a message that never ends must not cost two megabytes.
      ::madvise(memory, bytes, MADV_NOHUGEPAGE);
    }
  } else {
    memory = ::operator new(bytes, std::align_val_t(kAlignment), std::nothrow);
  }
  COLLAB_CHECK(memory != nullptr, "out of memory for an exchange buffer of " + std::to_string(bytes) + " bytes");
  return memory;
}

void release(void* memory, std::size_t bytes) {
  if (bytes >= kMapFrom) {
    ::munmap(memory, bytes);
  } else {
    ::operator delete(memory, std::align_val_t(kAlignment));
  }
}

// The state that the buffers and the pool share. It lives until the last of them is gone.
class Shelf {
 public:
  Shelf() = default;
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;
  ~Shelf() { drop_kept(0); }

  struct Block {
    void* memory = nullptr;
    std::size_t size = 0;
  };

  Block take(std::size_t bytes) {
    const std::size_t wanted = class_of(bytes);
    const std::lock_guard lock(mutex_);
    // A kept buffer up to twice as large is still better than fresh pages.
    if (const auto fit = kept_.lower_bound(wanted); fit != kept_.end() && fit->first <= 2 * wanted) {
      const Block block{fit->second, fit->first};
      kept_.erase(fit);
      kept_bytes_ -= block.size;
      idle_bytes_ = std::min(idle_bytes_, kept_bytes_);
      in_use_ += block.size;
      return block;
    }
    in_use_ += wanted;
    peak_ = std::max(peak_, in_use_);
    drop_kept(peak_ - in_use_);
    idle_bytes_ = 0;  // no kept buffer fits
    return {allocate(wanted), wanted};
  }

  void give_back(const Block& block) {
    const std::lock_guard lock(mutex_);
    in_use_ -= block.size;
    if (closed_) return release(block.memory, block.size);
    kept_.emplace(block.size, block.memory);
    kept_bytes_ += block.size;
  }

  void trim() {
    const std::lock_guard lock(mutex_);
    drop_kept(0);
    peak_ = in_use_;
  }

  void trim_idle() {
    const std::lock_guard lock(mutex_);
    drop_kept(kept_bytes_ - idle_bytes_ / 2);
    // The last few buffers are not worth keeping for ever.
    if (idle_bytes_ == kept_bytes_ && kept_bytes_ < kNotWorthKeeping) drop_kept(0);
    idle_bytes_ = kept_bytes_;
    peak_ = in_use_ + kept_bytes_;
  }

  // No more buffers can be taken; returned ones are freed.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    drop_kept(0);
  }

  std::size_t bytes_held() const {
    const std::lock_guard lock(mutex_);
    return in_use_ + kept_bytes_;
  }

 private:
  // Largest first: the fewest calls for the bytes.
  void drop_kept(std::size_t limit) {
    while (kept_bytes_ > limit) {
      const auto largest = std::prev(kept_.end());
      kept_bytes_ -= largest->first;
      release(largest->second, largest->first);
      kept_.erase(largest);
    }
    idle_bytes_ = std::min(idle_bytes_, kept_bytes_);
  }

  mutable std::mutex mutex_;
  std::multimap<std::size_t, void*> kept_;
  std::size_t kept_bytes_ = 0;
  std::size_t idle_bytes_ = 0;  // bytes that were not in use at any time since the last trim_idle()
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
  bool closed_ = false;
};

class PooledBuffer final : public Buffer {
 public:
  PooledBuffer(std::shared_ptr<Shelf> shelf, std::size_t bytes)
      : shelf_(std::move(shelf)), block_(shelf_->take(bytes)), bytes_(bytes) {}
  PooledBuffer(const PooledBuffer&) = delete;
  PooledBuffer& operator=(const PooledBuffer&) = delete;
  ~PooledBuffer() override { shelf_->give_back(block_); }
  std::span<std::byte> bytes() override { return {static_cast<std::byte*>(block_.memory), bytes_}; }

 private:
  std::shared_ptr<Shelf> shelf_;
  Shelf::Block block_;
  std::size_t bytes_;
};

class SharedBufferPool final : public BufferPool {
 public:
  SharedBufferPool() = default;
  SharedBufferPool(const SharedBufferPool&) = delete;
  SharedBufferPool& operator=(const SharedBufferPool&) = delete;
  ~SharedBufferPool() override { shelf_->close(); }
  BufferPtr take(std::size_t bytes) override { return std::make_shared<PooledBuffer>(shelf_, bytes); }
  void trim() override { shelf_->trim(); }
  void trim_idle() override { shelf_->trim_idle(); }
  std::size_t bytes_held() const override { return shelf_->bytes_held(); }

 private:
  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

}  // namespace

std::shared_ptr<BufferPool> make_buffer_pool() { return std::make_shared<SharedBufferPool>(); }

}  // namespace collab
