// Keeps a log readable where strangers can cause its lines.
//
// Threads: one caller at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "collab/clock.h"

namespace collab {

class Seldom {
 public:
  explicit Seldom(Duration every) : every_(every) {}

  // `line`, and how many were kept back since the last; nothing within `every` of that.
  [[nodiscard]] std::optional<std::string> let(TimePoint now, std::string line) {
    if (last_ && now - *last_ < every_) {
      ++kept_back_;
      return std::nullopt;
    }
    last_ = now;
    const std::uint64_t others = std::exchange(kept_back_, 0);
    if (others > 0) line += " (and " + std::to_string(others) + " others since the last such line)";
    return line;
  }

 private:
  Duration every_;
  std::optional<TimePoint> last_;
  std::uint64_t kept_back_ = 0;
};

}  // namespace collab
