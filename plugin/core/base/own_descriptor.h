// Files and sockets that belong to this process alone. A forked child closes its copies at once. Otherwise a DataLoader
// worker that outlives its parent would keep the parent's locks, links and port.
//
// Threads: any. Ownership: an OwnDescriptor owns its descriptor. The functions own nothing; they only mark the number.
#pragma once

#include <sys/types.h>

namespace collab {

// Like FD_CLOFORK of POSIX.1-2024, which Linux does not have. For descriptors that other code closes; that code calls
// clear_close_on_fork() first.
void set_close_on_fork(int fd);
void clear_close_on_fork(int fd);

class OwnDescriptor {
 public:
  explicit OwnDescriptor(int fd);  // negative: none
  OwnDescriptor(OwnDescriptor&& other) noexcept;
  OwnDescriptor& operator=(OwnDescriptor&& other) noexcept;
  OwnDescriptor(const OwnDescriptor&) = delete;
  // Closes the descriptor, but not in a forked child: there it is closed already, and its number may be another file.
  ~OwnDescriptor();

  // Negative if there is none, or in a forked child.
  [[nodiscard]] int get() const;

 private:
  int fd_;
  pid_t owner_;
};

}  // namespace collab
