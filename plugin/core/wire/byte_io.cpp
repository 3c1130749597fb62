#include "core/wire/byte_io.h"

#include <algorithm>

#include "core/base/message_code.h"
#include "core/base/text.h"

namespace collab::wire {

void FieldPath::fail(const char* field, const std::string& expected, const std::string& got) {
  if (!ok()) return;
  std::string where;
  for (const Step& step : steps_) {
    where += step.name;
    if (step.entry != kNoEntry) where += "[" + std::to_string(step.entry) + "]";
    where += ".";
  }
  where += field;
  if (!where.empty() && where.back() == '.') where.pop_back();  // an entry of a list of plain numbers has no name
  status_ = corrupt(where + ": expected " + expected + ", got " + got + " [wire.field]");
}

std::string fault_of_text(std::string_view text, std::size_t max_bytes) {
  if (text.size() > max_bytes) return std::to_string(text.size()) + " bytes";
  if (text.find('\0') != std::string_view::npos) return "a NUL byte";
  if (!is_valid_utf8(text)) return "ill-formed UTF-8";
  return {};
}

std::string fit_sentence(std::string_view text, std::size_t max_bytes) {
  std::string fit(text);
  std::replace(fit.begin(), fit.end(), '\0', '?');
  if (!is_valid_utf8(fit)) {
    std::replace_if(
        fit.begin(), fit.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  }
  if (fit.size() <= max_bytes) return fit;
  const std::string_view code = message_code(fit);
  std::string kept = code.empty() ? "" : " [" + std::string(code) + "]";
  if (kept.size() > max_bytes) kept.clear();
  fit.resize(max_bytes - kept.size());
  while (!is_valid_utf8(fit)) fit.pop_back();  // the cut was within a character: at most three steps
  return fit + kept;
}

namespace {

constexpr const char* kExpectedName = "a name that can be printed, without control characters or marks of direction";

std::string expected_text(std::size_t max_bytes) {
  return "UTF-8 text of at most " + std::to_string(max_bytes) + " bytes without NUL";
}

}  // namespace

void Writer::text(const char* name, const std::string& value, std::size_t max_bytes) {
  if (const std::string fault = fault_of_text(value, max_bytes); !fault.empty()) {
    return path_.fail(name, expected_text(max_bytes), fault);
  }
  if (has_wide_length(max_bytes)) {
    put(static_cast<std::uint32_t>(value.size()));
  } else {
    put(static_cast<std::uint16_t>(value.size()));
  }
  const auto raw = std::as_bytes(std::span(value));
  bytes_.insert(bytes_.end(), raw.begin(), raw.end());
}

void Writer::name(const char* field, const std::string& value, std::size_t max_bytes) {
  text(field, value, max_bytes);
  if (path_.ok() && !is_printable(value)) path_.fail(field, kExpectedName, "\"" + escaped(value) + "\"");
}

void Reader::name(const char* field, std::string& value, std::size_t max_bytes) {
  text(field, value, max_bytes);
  if (path_.ok() && !is_printable(value)) path_.fail(field, kExpectedName, "\"" + escaped(value) + "\"");
}

void Reader::text(const char* name, std::string& value, std::size_t max_bytes) {
  const std::size_t length = has_wide_length(max_bytes) ? get<std::uint32_t>(name) : get<std::uint16_t>(name);
  if (length > max_bytes) {
    return path_.fail(name, expected_text(max_bytes), std::to_string(length) + " bytes");
  }
  const auto raw = take(name, length);
  const std::string_view text(reinterpret_cast<const char*>(raw.data()), raw.size());
  if (const std::string fault = fault_of_text(text, max_bytes); !fault.empty()) {
    return path_.fail(name, expected_text(max_bytes), fault);
  }
  value = text;
}

std::span<const std::byte> Reader::take(const char* name, std::size_t count) {
  if (!path_.ok()) return {};
  if (rest_.size() < count) {
    path_.fail(name, std::to_string(count) + " bytes", "the end after " + std::to_string(rest_.size()));
    return {};
  }
  const auto taken = rest_.first(count);
  rest_ = rest_.subspan(count);
  return taken;
}

void Reader::finish() {
  if (!rest_.empty()) path_.fail("body", "its end", std::to_string(rest_.size()) + " more bytes");
}

}  // namespace collab::wire
