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
  // kUnavailable: `create` is false and there is no such file. kRefused: it is not ours alone, or no plain file.
  static Result<BackingFile> open(const std::string& path, bool create);

  // Only the process with this lock makes, takes over or removes an arena. Waits for the lock up to two seconds.
  Status lock();
  void unlock();
  // Takes a second lock, for as long as this object lives; forked children do not have it. The kernel releases it when
  // the process ends, in any container. False: it is taken or not supported.
  bool hold();
  [[nodiscard]] bool held(bool untold = true) const;  // by another object; `untold` if that is not known
  [[nodiscard]] bool named() const;                   // false: the path has been removed or is another file now
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] const std::string& path() const { return path_; }
  // Reserves the space, so that a write never ends in SIGBUS. kUnavailable: not enough room.
  Status reserve(std::uint64_t bytes);
  void remove_name();
  [[nodiscard]] bool in_memory() const;  // not on a disk
  // Reads from the start of the file without mapping it; false if the file is shorter.
  [[nodiscard]] bool read_start(void* out, std::size_t bytes) const;

 private:
  BackingFile(std::string path, int fd) : path_(std::move(path)), file_(fd) {}
  std::string path_;
  OwnDescriptor file_;  // closing it also unlocks
};

class Mapping {
 public:
  virtual ~Mapping() = default;
  [[nodiscard]] std::byte* control() const { return control_; }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] bool in_memory() const { return in_memory_; }  // not on a disk

 protected:
  std::byte* control_ = nullptr;
  std::byte* data_ = nullptr;
  bool in_memory_ = true;
};

// With `data_writable` false, a stray write crashes the reader instead of changing the data for all.
Result<std::unique_ptr<Mapping>> map_file(const BackingFile& file, std::size_t control_bytes, std::size_t data_bytes,
                                          bool data_writable);
Result<std::unique_ptr<Mapping>> map_private(std::size_t control_bytes, std::size_t data_bytes);

// The free space for this user in the folder's file system, in bytes; 0 if it cannot be found out.
[[nodiscard]] std::uint64_t free_bytes(const std::string& folder);

}  // namespace collab::arena
