// The memory of an arena: a reserved, locked file mapped in two parts (control, data), or private memory.
//
// Forked children do not inherit the mapping: a DataLoader worker must neither keep the memory alive nor make the
// leader copy pages on write.
// Threads: one at a time. Ownership: unmaps and closes; a file's name stays until remove_name().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "collab/status.h"
#include "core/base/own_descriptor.h"

namespace collab::arena {

// A file opened read-write, never through a symbolic link, with mode 0600 and our uid.
class BackingFile {
 public:
  // `create` false and no such file: kUnavailable. kRefused: it is not ours alone, or no plain file.
  static Result<BackingFile> open(const std::string& path, bool create);

  // One process at a time makes, takes over or removes; waits for it up to two seconds.
  Status lock();
  void unlock();
  // Another lock, for as long as this object lives, forked children apart; the kernel ends it with the process, in
  // whatever container that ran. False: it cannot be had.
  bool hold();
  [[nodiscard]] bool held(bool untold = true) const;  // by another object; `untold` where it cannot be told
  [[nodiscard]] bool named() const;                   // false: the path has been removed or is another file now
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] const std::string& path() const { return path_; }
  // Reserves the space, so that a write never ends in SIGBUS. kUnavailable: not enough room.
  Status reserve(std::uint64_t bytes);
  void remove_name();
  [[nodiscard]] bool in_memory() const;  // it is on no disk
  // Reads from the start of the file without mapping it; false when it is shorter.
  [[nodiscard]] bool read_start(void* out, std::size_t bytes) const;

 private:
  BackingFile(std::string path, int fd) : path_(std::move(path)), file_(fd) {}
  std::string path_;
  OwnDescriptor file_;  // closed, which unlocks
};

class Mapping {
 public:
  virtual ~Mapping() = default;
  [[nodiscard]] std::byte* control() const { return control_; }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] bool in_memory() const { return in_memory_; }  // on no disk

 protected:
  std::byte* control_ = nullptr;
  std::byte* data_ = nullptr;
  bool in_memory_ = true;
};

// `data_writable` false: a stray write by a reader is a fault in the reader, not a silent change for all.
Result<std::unique_ptr<Mapping>> map_file(const BackingFile& file, std::size_t control_bytes, std::size_t data_bytes,
                                          bool data_writable);
Result<std::unique_ptr<Mapping>> map_private(std::size_t control_bytes, std::size_t data_bytes);

// What is free for us in the folder's file system; 0 when it cannot be asked.
[[nodiscard]] std::uint64_t free_bytes(const std::string& folder);

}  // namespace collab::arena
