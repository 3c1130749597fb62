#include "core/base/memory_limit.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>

namespace collab {
namespace {

// The least value that this file has in a group or in the groups above it. A container sees its own group as the root.
std::uint64_t least_of(const std::string& mounted, std::string group, const char* file, std::uint64_t most) {
  for (;;) {
    std::uint64_t bytes = 0;
    // "max" is no number. With cgroup v1, no limit is a number near 2^63.
    if (std::ifstream(mounted + group + "/" + file) >> bytes && bytes > 0) most = std::min(most, bytes);
    const std::size_t above = group.rfind('/');
    if (above == std::string::npos) return most;
    group.resize(above);
  }
}

}  // namespace

std::uint64_t memory_limit(const std::string& root) {
  std::uint64_t limit =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/a/b", or "0::/a/b"
    const std::size_t kinds = line.find(':'), path = line.find(':', kinds + 1);
    if (kinds == std::string::npos || path == std::string::npos) continue;
    const std::string_view kind = std::string_view(line).substr(kinds + 1, path - kinds - 1);
    const std::string group = line.substr(path + 1);
    if (kind == "memory") {
      limit = least_of(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", limit);
    } else if (kind.empty()) {
      limit = least_of(root + "/sys/fs/cgroup", group, "memory.max", limit);
    }
  }
  return limit;
}

std::uint64_t swap_bytes() {
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 ? static_cast<std::uint64_t>(info.totalswap) * info.mem_unit : 0;
}

std::size_t share_of_memory(std::uint64_t limit, std::size_t least, std::size_t most) {
  return std::clamp(static_cast<std::size_t>(limit / 8), least, most);
}

}  // namespace collab
