#include "core/runtime/storage/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/base/text.h"

namespace collab {
namespace {

[[nodiscard]] Status failed(const char* doing, const std::string& path) {
  return unavailable(std::string("cannot ") + doing + " " + path + ": " + std::strerror(errno) + " [state.disk]");
}

}  // namespace

int Disk::open(const char* path, int flags, mode_t mode) { return ::open(path, flags | O_CLOEXEC, mode); }
ssize_t Disk::write(int fd, const void* bytes, std::size_t size) { return ::write(fd, bytes, size); }
ssize_t Disk::pwrite(int fd, const void* bytes, std::size_t size, off_t offset) {
  return ::pwrite(fd, bytes, size, offset);
}
int Disk::fsync(int fd) { return ::fsync(fd); }
int Disk::rename(const char* from, const char* to) { return std::rename(from, to); }
int Disk::unlink(const char* path) { return ::unlink(path); }

Disk& system_disk() {
  static Disk disk;
  return disk;
}

int open_plain(Disk& disk, const char* path, int flags, mode_t mode) {
  const int fd = disk.open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode);
  struct stat info {};
  if (fd < 0) return fd;
  const int why = ::fstat(fd, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
  if (S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  errno = why;
  return -1;
}

bool read_all(int fd, std::span<std::byte> out, std::uint64_t offset) {
  while (!out.empty()) {
    errno = 0;
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

// An existing file belongs to a dead process, or to another one: it is never written into.
Result<NewFile> NewFile::make(Disk& disk, std::string path) {
  const std::string name = path + ".new";
  constexpr int kFresh = O_WRONLY | O_CREAT | O_EXCL;
  int fd = disk.open(name.c_str(), kFresh, 0600);
  if (fd < 0 && errno == EEXIST && disk.unlink(name.c_str()) == 0) fd = disk.open(name.c_str(), kFresh, 0600);
  if (fd < 0) return failed("make", name);
  return NewFile(disk, std::move(path), fd);
}

NewFile::NewFile(NewFile&& other) noexcept
    : disk_(other.disk_), path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  if (named()) disk_->unlink(name().c_str());
  ::close(fd_);
}

bool NewFile::named() const {
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd_, &ours) == 0 && ::lstat(name().c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

Status NewFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = disk_->pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return failed("write", name());
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Status NewFile::sync() { return disk_->fsync(fd_) == 0 ? Status() : failed("sync", name()); }

Status NewFile::place() {
  if (!named()) {
    return unavailable("another process has removed " + name() + ", or made its own: only one may write " + path_ +
                       " [state.two-writers]");
  }
  if (disk_->rename(name().c_str(), path_.c_str()) != 0) return failed("rename", name());
  ::close(std::exchange(fd_, -1));
  return sync_folder_of(*disk_, path_);
}

Status sync_folder_of(Disk& disk, const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  const int fd = disk.open(folder.c_str(), O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) return failed("open the folder", folder);
  Status status = disk.fsync(fd) == 0 ? Status() : failed("sync the folder", folder);
  ::close(fd);
  return status;
}

std::string free_name_beside(const std::string& path, std::string_view word) {
  std::string name;
  struct stat info {};
  int number = 0;
  do name = path + "." + std::string(word) + "-" + std::to_string(++number);
  while (::lstat(name.c_str(), &info) == 0);
  return name;
}

std::string as_file_name(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  std::string name;
  for (const char c : text) {
    const bool plain = kPlain.find(c) != std::string_view::npos && !(c == '.' && name.empty());
    name += plain ? std::string(1, c) : "%" + hexadecimal(static_cast<unsigned char>(c), 2);
  }
  return name;
}

}  // namespace collab
