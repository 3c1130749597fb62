#include "core/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace collab {
namespace {

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 when there is none.
std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

std::uint32_t code_point(std::string_view sequence) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(sequence[i])); };
  if (sequence.size() == 1) return byte(0);
  std::uint32_t code = byte(0) & (0x7FU >> sequence.size());
  for (std::size_t i = 1; i < sequence.size(); ++i) code = (code << 6) | (byte(i) & 0x3F);
  return code;
}

bool is_printable(std::uint32_t code) {
  struct Range {
    std::uint32_t first, last;
  };
  // Unicode's Cc, Zl and Zp. Of Cf, the characters that turn the direction, take no room or spell tags.
  constexpr std::array<Range, 12> kHidden{{{0x00, 0x1F},
                                           {0x7F, 0x9F},
                                           {0xAD, 0xAD},
                                           {0x61C, 0x61C},
                                           {0x180E, 0x180E},
                                           {0x200B, 0x200F},
                                           {0x2028, 0x202E},
                                           {0x2060, 0x206F},
                                           {0xFEFF, 0xFEFF},
                                           {0xFFF9, 0xFFFB},
                                           {0x1D173, 0x1D17A},
                                           {0xE0000, 0xE007F}}};
  return std::ranges::none_of(kHidden, [code](const Range& r) { return r.first <= code && code <= r.last; });
}

// Calls each(sequence, code point) for each well-formed sequence, and broken(byte) for any other byte.
template <typename Each, typename Broken>
void for_each_character(std::string_view text, const Each& each, const Broken& broken) {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    if (length == 0) {
      broken(static_cast<unsigned char>(text[0]));
    } else {
      each(text.substr(0, length), code_point(text.substr(0, length)));
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
}

void append_json(std::string& out, std::string_view sequence, std::uint32_t code) {
  switch (code) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (is_printable(code)) {
    out += sequence;
  } else if (code < 0x10000) {
    out += "\\u" + hexadecimal(code, 4);
  } else {  // a pair of surrogates
    out += "\\u" + hexadecimal(0xD7C0 + (code >> 10), 4) + "\\u" + hexadecimal(0xDC00 + (code & 0x3FF), 4);
  }
}

template <typename Number>
std::string number_text(Number value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace

std::string hexadecimal(std::uint64_t value, int digits) {
  std::string text;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 0xF];
  return text;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool is_printable(std::string_view text) {
  bool printable = true;
  for_each_character(
      text, [&](std::string_view, std::uint32_t code) { printable = printable && is_printable(code); },
      [&](unsigned char) { printable = false; });
  return printable;
}

std::string escaped(std::string_view text) {
  std::string out;
  const auto each = [&](std::string_view sequence, std::uint32_t code) {
    if (is_printable(code)) {
      out += sequence;
    } else if (code < 0x100) {
      out += code == '\n' ? "\\n" : "\\x" + hexadecimal(code, 2);
    } else {
      out += code < 0x10000 ? "\\u" + hexadecimal(code, 4) : "\\U" + hexadecimal(code, 8);
    }
  };
  for_each_character(text, each, [&](unsigned char byte) { out += "\\x" + hexadecimal(byte, 2); });
  return out;
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for_each_character(
      text, [&](std::string_view sequence, std::uint32_t code) { append_json(out, sequence, code); },
      [&](unsigned char) { out += "\xEF\xBF\xBD"; });
  out.push_back('"');
  return out;
}

std::string json_number(double value) { return number_text(value); }
std::string json_number(float value) { return number_text(value); }

std::string in_megabytes(std::uint64_t bytes) {
  std::array<char, 32> text{};
  const bool small = bytes > 0 && bytes < 50'000;
  std::snprintf(text.data(), text.size(), small ? "%.1f kB" : "%.1f MB",
                static_cast<double>(bytes) / (small ? 1e3 : 1e6));
  return text.data();
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table of optimal string alignment: i-2, i-1 and i.
  std::array<std::vector<std::size_t>, 3> rows;
  for (auto& row : rows) row.assign(b.size() + 1, 0);
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i - 1) % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::string_view nearest(std::string_view text, std::span<const std::string_view> names) {
  std::string_view best;
  std::size_t best_distance = 0;
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(text, name);
    if (best.empty() || distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace collab
