// Small helpers on text: UTF-8, what a terminal may see, JSON strings, the nearest of several names.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace collab {

// Well-formed UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] bool is_valid_utf8(std::string_view text);

// Well-formed UTF-8 without characters that a terminal obeys instead of showing: controls, line separators, marks that
// turn the direction of writing or take no room.
[[nodiscard]] bool is_printable(std::string_view text);
// For one line of a log or a terminal: what is not printable in hexadecimal (\x1b, \u202e), the rest as it is. Of an
// escaped text it changes nothing.
[[nodiscard]] std::string escaped(std::string_view text);

// The text as a JSON string with its quotes, printable. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string json_quote(std::string_view text);
// The shortest that reads back as the same, whatever the locale; null for what JSON has no number for.
[[nodiscard]] std::string json_number(double value);
[[nodiscard]] std::string json_number(float value);

[[nodiscard]] std::string hexadecimal(std::uint64_t value, int digits = 16);  // in lower case, with leading zeros

// Millions of bytes, "1.5 MB"; thousands where those would be none: "0.6 kB".
[[nodiscard]] std::string in_megabytes(std::uint64_t bytes);

// Edits (insert, delete, replace, swap of neighbours) that turn one text into the other.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The name with the fewest edits; the first of equals; empty when there are no names.
[[nodiscard]] std::string_view nearest(std::string_view text, std::span<const std::string_view> names);

}  // namespace collab
