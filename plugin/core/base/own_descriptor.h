// Files and sockets that are this process's alone: a forked child closes its copies at once, so that a DataLoader
// worker does not outlive its parent with the parent's locks, links and port.
//
// Threads: any. Ownership: an OwnDescriptor owns its descriptor; of others only the number is remembered.
#pragma once

#include <sys/types.h>

namespace collab {

// As POSIX.1-2024's FD_CLOFORK, which Linux has not: for a descriptor that somebody else closes, who clears it before.
void set_close_on_fork(int fd);
void clear_close_on_fork(int fd);

class OwnDescriptor {
 public:
  explicit OwnDescriptor(int fd);  // negative: none
  OwnDescriptor(OwnDescriptor&& other) noexcept;
  OwnDescriptor& operator=(OwnDescriptor&& other) noexcept;
  OwnDescriptor(const OwnDescriptor&) = delete;
  ~OwnDescriptor();  // closes; in a forked child it is closed already, and the number may be another's

  // Negative: there is none, or this is a forked child's copy.
  [[nodiscard]] int get() const;

 private:
  int fd_;
  pid_t owner_;
};

}  // namespace collab
