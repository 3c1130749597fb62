#include "core/runtime/storage/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

namespace collab {
namespace {

[[nodiscard]] bool named(int fd, const std::string& path) {
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd, &ours) == 0 && ::lstat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

// "PID HOST"
[[nodiscard]] std::string this_process_text() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return std::to_string(::getpid()) + " " + host.data() + "\n";
}

[[nodiscard]] std::string holder_text(int fd) {
  std::array<char, 300> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size() - 1, 0);
  const std::string said(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::size_t space = said.find(' ');
  if (space == std::string::npos || said.back() != '\n') return "another process";  // its holder is still writing
  return "process " + said.substr(0, space) + " on host " + said.substr(space + 1, said.size() - space - 2);
}

// 0, or errno.
[[nodiscard]] int lock_within(int fd, int how, int tries) {
  while (true) {
    if (::flock(fd, how | LOCK_NB) == 0) return 0;
    if (errno != EINTR && (errno != EWOULDBLOCK || --tries == 0)) return errno;
    const timespec pause{0, 10'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace

Result<FileLock> FileLock::take(const std::string& path) {
  constexpr int kFiles = 8;  // tries: each time, the previous holder may have removed the file
  for (int tried = 0; tried < kFiles; ++tried) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) return unavailable("cannot make " + path + ": " + std::strerror(errno) + " [state.lock-made]");
    FileLock lock(path, fd);  // closes the file if it is given up
    const int error = lock_within(fd, LOCK_EX, 5);
    if (error == EWOULDBLOCK) return refused(holder_text(fd));
    if (error != 0) return unavailable("cannot lock " + path + ": " + std::strerror(error) + " [state.lock]");
    if (!named(fd, path)) continue;
    const std::string holder = this_process_text();
    if (::ftruncate(fd, 0) != 0 ||
        ::pwrite(fd, holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size())) {
      const std::string why = std::strerror(errno);
      lock.remove_name();
      return unavailable("cannot write " + path + ": " + why + " [state.lock-written]");
    }
    return lock;
  }
  return unavailable(path + " keeps being made and removed by other processes [state.lock-contended]");
}

std::string FileLock::holder_of(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return {};
  std::string holder = lock_within(fd, LOCK_SH, 1) == EWOULDBLOCK ? holder_text(fd) : std::string();
  ::close(fd);
  return holder;
}

FileLock::FileLock(std::string path, int fd) : path_(std::move(path)), file_(fd) {}

void FileLock::remove_name() {
  if (file_.get() >= 0 && named(file_.get(), path_)) ::unlink(path_.c_str());
}

}  // namespace collab
