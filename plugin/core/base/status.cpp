#include "collab/status.h"

#include <cstdlib>
#include <string>

#include "core/base/log.h"

namespace collab {

void panic(std::string_view message, const char* file, int line) {
  log_last_words("broken invariant at " + std::string(file) + ":" + std::to_string(line) + ": " + std::string(message));
  std::abort();
}

}  // namespace collab
