// A process that may have few files open, until the end of a test. This is a base class that comes before what reads
// it.
//
// Threads: one. Ownership: the process's limit.
#pragma once

#include <sys/resource.h>

#include <algorithm>

namespace collab::testing {

class FewFiles {
 public:
  explicit FewFiles(rlim_t files) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = std::min(files, before_.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace collab::testing
