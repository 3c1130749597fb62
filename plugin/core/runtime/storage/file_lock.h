// An advisory lock on a file of its own, which names the process that has it, by pid and host.
//
// The lock lasts until it is given up or the process ends, however it ends. Forked children do not keep it.
// Threads: one caller at a time. Ownership: the open file; its name stays when the lock is given up.
#pragma once

#include <string>

#include "collab/status.h"
#include "core/base/own_descriptor.h"

namespace collab {

class FileLock {
 public:
  // kRefused: another process has it; the message names it ("process 4711 on host node7"). kUnavailable: the file, or a
  // lock on it, is not possible here. Waits a twentieth of a second, because others take the lock briefly just to ask.
  static Result<FileLock> take(const std::string& path);
  // The process that has it, in words. Empty if none has, or if there is no such file.
  [[nodiscard]] static std::string holder_of(const std::string& path);
  // Removes the file's name while the lock is held. A process that waited for the lock finds a new file.
  void remove_name();

 private:
  FileLock(std::string path, int fd);

  std::string path_;
  OwnDescriptor file_;
};

}  // namespace collab
