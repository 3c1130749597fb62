// How bytes become durable: the system calls for it, and a file that takes another's place when it is whole.
//
// The calls are an interface, so that tests make a disk that is slow or full, or end the process between two calls.
// Threads: a Disk from any thread, a NewFile from one at a time. Ownership: a NewFile owns its descriptor and, until
// it has taken its place, its name.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collab/status.h"

namespace collab {

// Each as the system call of that name: -1 and errno where it fails.
class Disk {
 public:
  virtual ~Disk() = default;
  virtual int open(const char* path, int flags, mode_t mode);
  virtual ssize_t write(int fd, const void* bytes, std::size_t size);
  virtual ssize_t pwrite(int fd, const void* bytes, std::size_t size, off_t offset);
  virtual int fsync(int fd);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
};
[[nodiscard]] Disk& system_disk();

// A plain file, not through a link in its last part: -1 and errno where it is anything else, which may be made to wait
// for (a pipe) or to lead astray.
[[nodiscard]] int open_plain(Disk& disk, const char* path, int flags, mode_t mode = 0600);

// All bytes from `offset` on. False: errno says why, or is 0 if the file ends before.
[[nodiscard]] bool read_all(int fd, std::span<std::byte> out, std::uint64_t offset);

// PATH.new, which becomes PATH when it is whole and durable: a reader of PATH finds the old file or the new one.
// Failures are kUnavailable and say which file; what to do about it the caller adds.
class NewFile {
 public:
  static Result<NewFile> make(Disk& disk, std::string path);  // its owner's alone
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  NewFile(const NewFile&) = delete;
  ~NewFile();  // one that has not taken its place is removed, where it is still this one

  Status write(std::uint64_t offset, std::span<const std::byte> bytes);
  Status sync();  // the bytes are durable
  // After sync(): under its name, durably. kUnavailable where another process has made a PATH.new of its own meanwhile.
  Status place();

 private:
  NewFile(Disk& disk, std::string path, int fd) : disk_(&disk), path_(std::move(path)), fd_(fd) {}
  [[nodiscard]] std::string name() const { return path_ + ".new"; }
  [[nodiscard]] bool named() const;  // PATH.new is this file

  Disk* disk_;
  std::string path_;
  int fd_;  // negative: moved from, or renamed into its place
};

// What was renamed or removed in the file's folder stays so.
Status sync_folder_of(Disk& disk, const std::string& path);

// A name that is free, for a file that is moved aside for people to look at: PATH.WORD-1 and so on.
[[nodiscard]] std::string free_name_beside(const std::string& path, std::string_view word);

// The text as a part of a file's name: bytes other than A-Z a-z 0-9 _ - . and a leading . are written %xx.
[[nodiscard]] std::string as_file_name(std::string_view text);

}  // namespace collab
