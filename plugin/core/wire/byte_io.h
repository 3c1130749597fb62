// Writer and Reader: the same calls in both directions, so that a message's layout is written down once (fields.h).
//
// Integers are little-endian; float64 is its IEEE 754 bits; a text is a u16 length (u32 for those over 64 KiB) and
// UTF-8 without NUL; a list is a u32 count and its entries. Both classes check every bound. The first error sticks,
// later calls do nothing, and status() names the field: "participants[3].weight".
// Threads: one owner. Ownership: the Reader borrows its bytes.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collab/status.h"
#include "collab/types.h"
#include "core/base/little_endian.h"
#include "core/wire/limits.h"

namespace collab::wire {

// The current place in the message, for error texts; and the first error.
class FieldPath {
 public:
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] const Status& status() const { return status_; }

  void enter(const char* name) { steps_.push_back({name, kNoEntry}); }
  void enter_list(const char* name) { steps_.push_back({name, 0}); }
  void at_entry(std::size_t index) { steps_.back().entry = index; }
  void leave() { steps_.pop_back(); }

  // "slices: expected at most 4096 entries, got 70000"
  void fail(const char* field, const std::string& expected, const std::string& got);

 private:
  static constexpr std::size_t kNoEntry = std::numeric_limits<std::size_t>::max();
  struct Step {
    const char* name;
    std::size_t entry;
  };
  std::vector<Step> steps_;
  Status status_;
};

// Why `text` cannot be sent: too long, not UTF-8, or with a NUL. Empty: it can.
[[nodiscard]] std::string fault_of_text(std::string_view text, std::size_t max_bytes);
// At most `max_bytes` of well-formed UTF-8 without NUL. Longer text is cut; ill-formed bytes become '?'.
[[nodiscard]] std::string fit_sentence(std::string_view text, std::size_t max_bytes);

[[nodiscard]] constexpr bool is_weight(double value) { return value >= 0 && value <= kMaxWeight; }
inline constexpr const char* kWeightExpected = "a number from 0 to 2^53";

class Writer {
 public:
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }
  [[nodiscard]] const Status& status() const { return path_.status(); }

  template <typename U>
  void number(const char* name, const U& value, std::uint64_t max = std::numeric_limits<U>::max()) {
    if (value > max) path_.fail(name, "at most " + std::to_string(max), std::to_string(value));
    put(value);
  }
  template <typename Tag, typename Rep>
  void id(const char*, const StrongId<Tag, Rep>& id) {
    put(id.value);
  }
  void boolean(const char*, bool value) { put(static_cast<std::uint8_t>(value ? 1 : 0)); }
  template <typename E>
  void enumeration(const char* name, const E& value, E last) {
    number(name, static_cast<std::uint8_t>(value), static_cast<std::uint8_t>(last));
  }
  void weight(const char* name, double value) {
    if (!is_weight(value)) path_.fail(name, kWeightExpected, std::to_string(value));
    put(std::bit_cast<std::uint64_t>(value));
  }
  void text(const char* name, const std::string& value, std::size_t max_bytes);
  // Names of sites and swarms, and addresses: they are shown to people, so they must be printable (core/base/text.h).
  void name(const char* field, const std::string& value, std::size_t max_bytes);
  void sentence(const char* name, const std::string& value, std::size_t max_bytes) {
    text(name, fit_sentence(value, max_bytes), max_bytes);
  }
  template <typename T>
  void part(const char* name, const T& value) {
    path_.enter(name);
    fields(*this, value);
    path_.leave();
  }
  template <typename T, typename EachEntry>
  void list(const char* name, const std::vector<T>& entries, std::size_t max, std::size_t /*entry_bytes*/,
            EachEntry each) {
    if (entries.size() > max) {
      return path_.fail(name, "at most " + std::to_string(max) + " entries", std::to_string(entries.size()));
    }
    put(static_cast<std::uint32_t>(entries.size()));
    path_.enter_list(name);
    for (std::size_t i = 0; i < entries.size() && path_.ok(); ++i) {
      path_.at_entry(i);
      each(entries[i]);
    }
    path_.leave();
  }

 private:
  template <typename U>
  void put(U value) {
    bytes_.resize(bytes_.size() + sizeof(U));
    store_little(std::span(bytes_).last(sizeof(U)), value);
  }

  std::vector<std::byte> bytes_;
  FieldPath path_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  [[nodiscard]] const Status& status() const { return path_.status(); }
  // Call last: left-over bytes are an error.
  void finish();

  template <typename U>
  void number(const char* name, U& value, std::uint64_t max = std::numeric_limits<U>::max()) {
    const U came = get<U>(name);
    if (came > max) return path_.fail(name, "at most " + std::to_string(max), std::to_string(came));
    value = came;
  }
  template <typename Tag, typename Rep>
  void id(const char* name, StrongId<Tag, Rep>& id) {
    id.value = get<Rep>(name);
  }
  void boolean(const char* name, bool& value) {
    const auto came = get<std::uint8_t>(name);
    if (came > 1) return path_.fail(name, "0 or 1", std::to_string(came));
    value = came == 1;
  }
  template <typename E>
  void enumeration(const char* name, E& value, E last) {
    std::uint8_t came = 0;
    number(name, came, static_cast<std::uint8_t>(last));
    value = static_cast<E>(came);
  }
  void weight(const char* name, double& value) {
    const auto came = std::bit_cast<double>(get<std::uint64_t>(name));
    // -0 is refused like negative numbers, so each value has one encoding.
    if (!is_weight(came) || std::signbit(came)) return path_.fail(name, kWeightExpected, std::to_string(came));
    value = came;
  }
  void text(const char* name, std::string& value, std::size_t max_bytes);
  void name(const char* field, std::string& value, std::size_t max_bytes);
  void sentence(const char* name, std::string& value, std::size_t max_bytes) { text(name, value, max_bytes); }
  template <typename T>
  void part(const char* name, T& value) {
    path_.enter(name);
    fields(*this, value);
    path_.leave();
  }
  template <typename T, typename EachEntry>
  void list(const char* name, std::vector<T>& entries, std::size_t max, std::size_t entry_bytes, EachEntry each) {
    const auto count = get<std::uint32_t>(name);
    if (count > max) {
      return path_.fail(name, "at most " + std::to_string(max) + " entries", std::to_string(count));
    }
    if (count > rest_.size() / entry_bytes) {
      return path_.fail(name, std::to_string(count) + " entries of at least " + std::to_string(entry_bytes) + " bytes",
                        std::to_string(rest_.size()) + " bytes");
    }
    entries.resize(count);
    path_.enter_list(name);
    for (std::size_t i = 0; i < count && path_.ok(); ++i) {
      path_.at_entry(i);
      each(entries[i]);
    }
    path_.leave();
  }

 private:
  // The next `count` bytes; empty after an error.
  std::span<const std::byte> take(const char* name, std::size_t count);

  template <typename U>
  U get(const char* name) {
    const auto bytes = take(name, sizeof(U));
    return bytes.empty() ? U{0} : load_little<U>(bytes);
  }

  std::span<const std::byte> rest_;
  FieldPath path_;
};

// Texts that may pass 64 KiB carry a u32 length, all others a u16.
[[nodiscard]] constexpr bool has_wide_length(std::size_t max_bytes) { return max_bytes > 0xFFFF; }

}  // namespace collab::wire
