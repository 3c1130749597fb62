#include "core/base/message_code.h"

namespace collab {
namespace {

constexpr std::string_view kWord = "abcdefghijklmnopqrstuvwxyz0123456789-";

bool is_code(std::string_view text) {
  const std::size_t dot = text.find('.');
  if (dot == 0 || dot == std::string_view::npos || dot + 1 == text.size()) return false;
  return text.substr(0, dot).find_first_not_of(kWord) == std::string_view::npos &&
         text.substr(dot + 1).find_first_not_of(kWord) == std::string_view::npos && text[0] >= 'a' && text[0] <= 'z' &&
         text[dot + 1] >= 'a' && text[dot + 1] <= 'z';
}

}  // namespace

std::string_view message_code(std::string_view text) {
  for (std::size_t end = text.rfind(']'); end != std::string_view::npos && end > 0; end = text.rfind(']', end - 1)) {
    const std::size_t begin = text.rfind('[', end);
    if (begin == std::string_view::npos) return {};
    if (const std::string_view found = text.substr(begin + 1, end - begin - 1); is_code(found)) return found;
  }
  return {};
}

}  // namespace collab
