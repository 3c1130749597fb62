// Disks that misbehave, for tests of durable files.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/storage/disk.h"

namespace collab::testing {

// Goes wrong where it is told to.
class FailingDisk : public Disk {
 public:
  std::atomic<int> making{0};        // errno of making a file; 0: it works
  std::atomic<int> opening{0};       // of opening one that is there
  std::atomic<int> writing{0};       // after half of what is to be written; of what is appended, nothing
  std::atomic<bool> tearing{false};  // half of what is appended is taken
  std::atomic<int> syncing{0};
  std::atomic<int> renaming{0};
  std::atomic<int> removing{0};

  int open(const char* path, int flags, mode_t mode) override {
    return fails((flags & O_CREAT) != 0 ? making : opening) ? -1 : Disk::open(path, flags, mode);
  }
  ssize_t pwrite(int fd, const void* bytes, std::size_t size, off_t offset) override {
    if (writing == 0) return Disk::pwrite(fd, bytes, size, offset);
    if (size > 1) return Disk::pwrite(fd, bytes, size / 2, offset);
    fails(writing);
    return -1;
  }
  ssize_t write(int fd, const void* bytes, std::size_t size) override {
    if (tearing) return Disk::write(fd, bytes, size / 2);
    return fails(writing) ? -1 : Disk::write(fd, bytes, size);
  }
  int fsync(int fd) override { return fails(syncing) ? -1 : Disk::fsync(fd); }
  int rename(const char* from, const char* to) override { return fails(renaming) ? -1 : Disk::rename(from, to); }
  int unlink(const char* path) override { return fails(removing) ? -1 : Disk::unlink(path); }

 private:
  static bool fails(int error) {
    if (error != 0) errno = error;
    return error != 0;
  }
};

// Ends the process in the middle of the call with this number; counted from 1.
class DyingDisk : public Disk {
 public:
  static constexpr int kStatus = 77;
  explicit DyingDisk(int at) : left_(at) {}

  int open(const char* path, int flags, mode_t mode) override {
    turn();
    return Disk::open(path, flags, mode);
  }
  ssize_t pwrite(int fd, const void* bytes, std::size_t size, off_t offset) override {
    if (left_ == 1) Disk::pwrite(fd, bytes, size / 2, offset);
    turn();
    return Disk::pwrite(fd, bytes, size, offset);
  }
  int fsync(int fd) override {
    turn();
    return Disk::fsync(fd);
  }
  int rename(const char* from, const char* to) override {
    turn();
    return Disk::rename(from, to);
  }
  int unlink(const char* path) override {
    turn();
    return Disk::unlink(path);
  }

 private:
  void turn() {
    if (--left_ == 0) ::_exit(kStatus);
  }
  int left_;
};

// Calls of one kind stand still while it is shut.
class GatedDisk : public Disk {
 public:
  enum class Of { kWrite, kAppend, kSync };
  explicit GatedDisk(Of of) : of_(of) {}

  void shut() { set(false); }
  void open_gate() { set(true); }
  void let_one_pass() {
    const std::lock_guard lock(mutex_);
    ++may_pass_;
    changed_.notify_all();
  }
  // Returns once so many calls in all have come to the gate.
  void wait_until_reached(int times) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ >= times; });
  }
  [[nodiscard]] int reached() {
    const std::lock_guard lock(mutex_);
    return reached_;
  }

  ssize_t pwrite(int fd, const void* bytes, std::size_t size, off_t offset) override {
    if (of_ == Of::kWrite) pass();
    return Disk::pwrite(fd, bytes, size, offset);
  }
  ssize_t write(int fd, const void* bytes, std::size_t size) override {
    if (of_ == Of::kAppend) pass();
    return Disk::write(fd, bytes, size);
  }
  int fsync(int fd) override {
    if (of_ == Of::kSync) pass();
    return Disk::fsync(fd);
  }

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++reached_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_ || may_pass_ > 0; });
    if (!open_) --may_pass_;
  }

  Of of_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int may_pass_ = 0;  // while it is shut
  int reached_ = 0;
};

// Remembers what was asked of it, in words.
class NotingDisk : public Disk {
 public:
  std::vector<std::string> calls;

  int open(const char* path, int flags, mode_t mode) override {
    calls.push_back(((flags & O_CREAT) != 0 ? "make " : "open ") + name(path));
    return Disk::open(path, flags, mode);
  }
  ssize_t pwrite(int fd, const void* bytes, std::size_t size, off_t offset) override {
    calls.emplace_back("write");
    return Disk::pwrite(fd, bytes, size, offset);
  }
  int fsync(int fd) override {
    calls.emplace_back("sync");
    return Disk::fsync(fd);
  }
  int rename(const char* from, const char* to) override {
    calls.push_back("rename " + name(from) + " " + name(to));
    return Disk::rename(from, to);
  }
  int unlink(const char* path) override {
    calls.push_back("remove " + name(path));
    return Disk::unlink(path);
  }

 private:
  static std::string name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }
};

}  // namespace collab::testing
