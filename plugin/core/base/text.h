// Small helpers on text: UTF-8, escapes for terminals, JSON strings, the nearest of several names.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace collab {

// Well-formed UTF-8 according to RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] bool is_valid_utf8(std::string_view text);

// Well-formed UTF-8 without characters that a terminal obeys instead of showing: controls, line separators, marks that
// change the direction of writing or have no width.
[[nodiscard]] bool is_printable(std::string_view text);
// For one line of a log or a terminal: unprintable characters in hexadecimal (\x1b, \u202e), the rest unchanged. An
// escaped text does not change.
[[nodiscard]] std::string escaped(std::string_view text);

// The text as a JSON string with its quotes, printable. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string json_quote(std::string_view text);
// The shortest text that reads back as the same number, in any locale; "null" for NaN and infinity.
[[nodiscard]] std::string json_number(double value);
[[nodiscard]] std::string json_number(float value);

[[nodiscard]] std::string hexadecimal(std::uint64_t value, int digits = 16);  // in lower case, with leading zeros

// In megabytes, "1.5 MB"; in kilobytes if that would be 0.0: "0.6 kB".
[[nodiscard]] std::string in_megabytes(std::uint64_t bytes);

// The number of edits (insert, delete, replace, swap of neighbours) that turn one text into the other.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The name with the fewest edits, the first of equally near ones; empty if there are no names.
[[nodiscard]] std::string_view nearest(std::string_view text, std::span<const std::string_view> names);

}  // namespace collab
