// How bytes become durable: the system calls for it, and a file that replaces another once it is complete.
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

// Each works as the system call of that name: -1 and errno on failure.
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

// Opens a plain file and follows no link in the last part of its path. -1 and errno if it is anything else: a pipe may
// block, and a link may lead astray.
[[nodiscard]] int open_plain(Disk& disk, const char* path, int flags, mode_t mode = 0600);

// All bytes from `offset` on. False: errno says why, or is 0 if the file ends before.
[[nodiscard]] bool read_all(int fd, std::span<std::byte> out, std::uint64_t offset);

// PATH.new, which becomes PATH when it is complete and durable: a reader of PATH finds the old file or the new one.
// Failures are kUnavailable and say which file; the caller adds what to do about it.
class NewFile {
 public:
  static Result<NewFile> make(Disk& disk, std::string path);  // for its owner alone
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  NewFile(const NewFile&) = delete;
  ~NewFile();  // removes PATH.new if that is still this file

  Status write(std::uint64_t offset, std::span<const std::byte> bytes);
  Status sync();  // the bytes are durable
  // After sync(): renames it to PATH, durably. kUnavailable if another process has made its own PATH.new meanwhile.
  Status place();

 private:
  NewFile(Disk& disk, std::string path, int fd) : disk_(&disk), path_(std::move(path)), fd_(fd) {}
  [[nodiscard]] std::string name() const { return path_ + ".new"; }
  [[nodiscard]] bool named() const;  // PATH.new is this file

  Disk* disk_;
  std::string path_;
  int fd_;  // negative: moved from, or renamed into its place
};

// Makes renames and removals in the file's folder durable.
Status sync_folder_of(Disk& disk, const std::string& path);

// A free name for a file that is moved aside for inspection: PATH.WORD-1 and so on.
[[nodiscard]] std::string free_name_beside(const std::string& path, std::string_view word);

// The text in a form for file names: bytes other than A-Z a-z 0-9 _ - . and a leading . are written %xx.
[[nodiscard]] std::string as_file_name(std::string_view text);

}  // namespace collab
