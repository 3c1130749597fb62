// A state as bytes that are equal for states that go on alike. Times are relative to now, links are numbered in their
// order, dead links are left out, and counters of heartbeats and of writes do not matter.
//
// Threads: one. Ownership: its bytes; borrows the list of links.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "core/wire/fields.h"
#include "core/wire/hub_fields.h"
#include "core/wire/messages.h"

namespace collab::sim {

class Canon {
 public:
  // What is further back than any time-out does not matter any more.
  static constexpr Duration kLongAgo = std::chrono::seconds(400);

  // `links`: ascending, only living ones.
  Canon(TimePoint now, std::span<const LinkId> links) : now_(now), links_(links) {}
  // For who asks how much there is: no link counts as gone.
  Canon() = default;
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  template <typename... T>
  void all(const T&... values) {
    (put(values), ...);
  }

  template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void put(const T& value) { raw(&value, sizeof value); }
  template <typename Tag, typename Rep>
  void put(const StrongId<Tag, Rep>& id) {
    put(id.value);
  }
  void put(const LinkId& link) { put(rank(link)); }
  void put(const Duration& duration) { put(duration.count()); }
  void put(const TimePoint& time) {
    if (time == kNever) return put(std::numeric_limits<Duration::rep>::max());
    put(std::max(time - now_, -kLongAgo).count());
  }
  void put(const std::string& text) { put(std::string_view(text)); }
  void put(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    raw(text.data(), text.size());
  }
  void put(const Status& status) { all(status.code(), status.message()); }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename A, typename B>
  void put(const std::pair<A, B>& value) {
    all(value.first, value.second);
  }
  template <typename... T>
  void put(const std::tuple<T...>& value) {
    std::apply([this](const T&... each) { all(each...); }, value);
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    sequence(values);
  }
  template <typename T>
  void put(const std::deque<T>& values) {
    sequence(values);
  }
  template <typename T>
  void put(const std::set<T>& values) {
    sequence(values);
  }
  void put(const std::set<LinkId>& links) {
    for (const LinkId link : links) {
      if (rank(link) != 0) put(link);
    }
    put(std::uint32_t{0});
  }
  template <typename K, typename V>
  void put(const std::map<K, V>& values) {
    sequence(values);
  }
  template <typename... T>
  void put(const std::variant<T...>& value) {
    put(static_cast<std::uint8_t>(value.index()));
    std::visit([this](const auto& each) { put(each); }, value);
  }
  void put(const wire::Heartbeat& heartbeat) { put(heartbeat.reply); }
  template <typename M>
  requires requires(Canon& canon, const M& message) { wire::fields(canon, message); }
  void put(const M& message) { wire::fields(*this, message); }
  // A machine's parts: inside.h.
  template <typename T>
  requires requires(Canon& canon, const T& part) { write(canon, part); }
  void put(const T& part) { write(*this, part); }

  // Like a Writer for wire::fields().
  template <typename U>
  void number(const char*, const U& value, std::uint64_t = 0) {
    put(value);
  }
  template <typename T>
  void id(const char*, const T& value) {
    put(value);
  }
  void boolean(const char*, bool value) { put(value); }
  template <typename E>
  void enumeration(const char*, const E& value, E) {
    put(value);
  }
  void weight(const char*, double value) { put(value); }
  void text(const char*, const std::string& value, std::size_t) { put(value); }
  void name(const char*, const std::string& value, std::size_t) { put(value); }
  void sentence(const char*, const std::string& value, std::size_t) { put(value); }
  template <typename T>
  void part(const char*, const T& value) {
    wire::fields(*this, value);
  }
  template <typename T, typename Each>
  void list(const char*, const std::vector<T>& entries, std::size_t, std::size_t, Each each) {
    put(static_cast<std::uint32_t>(entries.size()));
    for (const T& entry : entries) each(entry);
  }

 private:
  template <typename C>
  void sequence(const C& values) {
    put(static_cast<std::uint32_t>(values.size()));
    for (const auto& value : values) put(value);
  }
  void raw(const void* data, std::size_t size) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + size);
    if (size > 0) std::memcpy(bytes_.data() + at, data, size);
  }
  // Their order is all that a machine sees of links. 0: it is gone.
  [[nodiscard]] std::uint32_t rank(LinkId link) const {
    if (!links_) return 1;
    const auto found = std::ranges::lower_bound(*links_, link);
    if (found == links_->end() || *found != link) return 0;
    return static_cast<std::uint32_t>(found - links_->begin()) + 1;
  }

  TimePoint now_{};
  std::optional<std::span<const LinkId>> links_{};
  std::vector<std::byte> bytes_;
};

}  // namespace collab::sim
