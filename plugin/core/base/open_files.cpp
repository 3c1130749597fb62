#include "core/base/open_files.h"

#include <sys/resource.h>

#include <algorithm>

namespace collab {
namespace {

constexpr rlim_t kEnough = 16384;

}  // namespace

std::size_t most_open_files() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

void allow_more_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));  // on failure the old limit stays
}

}  // namespace collab
