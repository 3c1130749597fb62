#include "core/runtime/addresses.h"

namespace collab {

bool is_wildcard(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return false;
  const std::string host = address.substr(0, colon);
  return host == "0.0.0.0" || host == "[::]" || host.empty() || host == "*";
}

std::string dialable(const std::string& bound, const std::string& advertise) {
  if (!is_wildcard(bound)) return bound;
  std::string visible = advertise.empty() ? "127.0.0.1" : advertise;
  if (visible.find(':') != std::string::npos && visible.front() != '[') visible = "[" + visible + "]";
  return visible + bound.substr(bound.rfind(':'));
}

}  // namespace collab
