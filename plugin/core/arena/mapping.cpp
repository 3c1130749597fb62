#include "core/arena/mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace collab::arena {
namespace {

namespace bip = boost::interprocess;

std::string error_text() { return std::strerror(errno); }

// Takes page faults now, not in the first round. A kernel that does not know this advice ignores it.
void advise([[maybe_unused]] void* address, [[maybe_unused]] std::size_t bytes, [[maybe_unused]] bool writable) {
#if defined(MADV_DONTFORK)
  ::madvise(address, bytes, MADV_DONTFORK);
#endif
#if defined(MADV_HUGEPAGE)
  ::madvise(address, bytes, MADV_HUGEPAGE);
#endif
#if defined(MADV_POPULATE_WRITE)
  if (writable) ::madvise(address, bytes, MADV_POPULATE_WRITE);
#endif
}

class FileMapping final : public Mapping {
 public:
  FileMapping(bip::mapped_region control, bip::mapped_region data, bool in_memory)
      : control_region_(std::move(control)), data_region_(std::move(data)) {
    control_ = static_cast<std::byte*>(control_region_.get_address());
    data_ = static_cast<std::byte*>(data_region_.get_address());
    in_memory_ = in_memory;
  }

 private:
  bip::mapped_region control_region_;
  bip::mapped_region data_region_;
};

class PrivateMapping final : public Mapping {
 public:
  PrivateMapping(void* base, std::size_t control_bytes, std::size_t bytes) : base_(base), bytes_(bytes) {
    control_ = static_cast<std::byte*>(base);
    data_ = control_ + control_bytes;
  }
  ~PrivateMapping() override { ::munmap(base_, bytes_); }
  PrivateMapping(const PrivateMapping&) = delete;
  PrivateMapping& operator=(const PrivateMapping&) = delete;

 private:
  void* base_;
  std::size_t bytes_;
};

}  // namespace

Result<BackingFile> BackingFile::open(const std::string& path, bool create) {
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0);
  const int fd = ::open(path.c_str(), flags, 0600);
  if (fd < 0) {
    const std::string why = "cannot open " + path + ": " + error_text();
    if (errno == ENOENT) return unavailable(why);
    const bool taken = errno == EACCES || errno == EPERM || errno == ELOOP || errno == EISDIR || errno == ENXIO;
    return taken ? refused(why) : internal_error(why);
  }
  BackingFile file(path, fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return internal_error("cannot look at " + path + ": " + error_text() + " [arena.stat]");
  if (info.st_uid != ::geteuid() || !S_ISREG(info.st_mode) || (info.st_mode & 077) != 0) {
    return refused(path + " does not belong to this user alone (uid " + std::to_string(info.st_uid) + ", ours is " +
                   std::to_string(::geteuid()) + "; expected a plain file with mode 0600): remove it [arena.not-ours]");
  }
  return file;
}

Status BackingFile::lock() {
  constexpr int kTries = 2000;
  for (int tried = 0; tried < kTries; ++tried) {
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK && errno != EINTR)
      return internal_error("cannot lock " + path_ + ": " + error_text() + " [arena.lock]");
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return timed_out("waited 2 s for the process that is making or removing " + path_ + " [arena.busy]");
}

// Belongs to the open file, like flock()'s lock, but is separate from it: the two do not block each other.
bool BackingFile::hold() {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  return ::fcntl(file_.get(), F_OFD_SETLK, &whole) == 0;
}

bool BackingFile::held(bool untold) const {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  return ::fcntl(file_.get(), F_OFD_GETLK, &whole) != 0 ? untold : whole.l_type != F_UNLCK;
}

void BackingFile::unlock() { ::flock(file_.get(), LOCK_UN); }

bool BackingFile::named() const {
  struct stat ours {};
  struct stat there {};
  return ::fstat(file_.get(), &ours) == 0 && ::lstat(path_.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

std::uint64_t BackingFile::bytes() const {
  struct stat info {};
  return ::fstat(file_.get(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

Status BackingFile::reserve(std::uint64_t bytes) {
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes));
  if (error == 0) return {};
  return unavailable("cannot reserve " + std::to_string(bytes) + " bytes in " + path_ + ": " + std::strerror(error) +
                     " [arena.reserve]");
}

void BackingFile::remove_name() {
  if (named()) ::unlink(path_.c_str());
}

bool BackingFile::in_memory() const {
  struct statfs info {};
  return ::fstatfs(file_.get(), &info) == 0 && info.f_type == TMPFS_MAGIC;
}

bool BackingFile::read_start(void* out, std::size_t bytes) const {
  return ::pread(file_.get(), out, bytes, 0) == static_cast<ssize_t>(bytes);
}

Result<std::unique_ptr<Mapping>> map_file(const BackingFile& file, std::size_t control_bytes, std::size_t data_bytes,
                                          bool data_writable) {
  // Boost.Interprocess reports by exception. No exception leaves this function.
  try {
    const bip::file_mapping backing(file.path().c_str(), bip::read_write);
    bip::mapped_region control(backing, bip::read_write, 0, control_bytes);
    bip::mapped_region data(backing, data_writable ? bip::read_write : bip::read_only,
                            static_cast<bip::offset_t>(control_bytes), data_bytes);
    advise(control.get_address(), control_bytes, true);
    advise(data.get_address(), data_bytes, data_writable);
    return std::unique_ptr<Mapping>(
        std::make_unique<FileMapping>(std::move(control), std::move(data), file.in_memory()));
  } catch (const bip::interprocess_exception& error) {
    return internal_error("cannot map " + file.path() + ": " + error.what() + " [arena.map]");
  }
}

Result<std::unique_ptr<Mapping>> map_private(std::size_t control_bytes, std::size_t data_bytes) {
  const std::size_t bytes = control_bytes + data_bytes;
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return unavailable("the anchor needs " + std::to_string(bytes) + " bytes of memory: " + error_text() +
                       " [arena.private-memory]");
  }
  advise(base, bytes, true);
  return std::unique_ptr<Mapping>(std::make_unique<PrivateMapping>(base, control_bytes, bytes));
}

std::uint64_t free_bytes(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return 0;
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace collab::arena
