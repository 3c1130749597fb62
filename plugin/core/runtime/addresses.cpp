#include "core/runtime/addresses.h"

namespace collab {

std::string dialable(const std::string& bound, const std::string& advertise) {
  const std::size_t colon = bound.rfind(':');
  if (colon == std::string::npos) return bound;
  const std::string host = bound.substr(0, colon);
  const bool wildcard = host == "0.0.0.0" || host == "[::]" || host.empty() || host == "*";
  if (!wildcard) return bound;
  std::string visible = advertise.empty() ? "127.0.0.1" : advertise;
  if (visible.find(':') != std::string::npos && visible.front() != '[') visible = "[" + visible + "]";
  return visible + bound.substr(colon);
}

}  // namespace collab
