#include "collab/status.h"

#include <cstdio>
#include <cstdlib>

#include "core/base/log.h"

namespace collab {

void panic(std::string_view message, const char* file, int line) {
  spill_log_queue();
  // stdio, not the log: the log may be off, and the thread that broke the invariant may hold its lock.
  std::fprintf(stderr, "collab: broken invariant at %s:%d: %.*s\n", file, line, static_cast<int>(message.size()),
               message.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace collab
