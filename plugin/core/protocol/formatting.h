// How the protocol speaks to people: names, lists and durations in notes and reasons.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collab/clock.h"
#include "core/protocol/actions.h"

namespace collab::protocol {

[[nodiscard]] std::string join_words(const std::vector<std::string>& words, std::string_view separator = ", ");
// At most 16 of `names`, or "none". If there are more, names that are not in `others` come first.
[[nodiscard]] std::string names_text(std::vector<std::string> names, const std::vector<std::string>& others);
// Tells the user what to do if the missing sites will not come. Empty if none is missing.
[[nodiscard]] std::string forget_text(const std::vector<std::string>& missing);
[[nodiscard]] std::string json_list(const std::vector<std::string>& words);  // ["a","b"]
[[nodiscard]] std::string in_seconds(Duration time);                         // "30 s", "0.2 s"
[[nodiscard]] std::string in_milliseconds(Duration time);                    // "250 ms"
[[nodiscard]] std::string in_bytes(std::size_t bytes);                       // "16 MiB", "100 bytes"
[[nodiscard]] std::string times_text(std::uint32_t times);                   // "once", "3 times"

[[nodiscard]] Note make_note(Note::Level level, std::string event, std::string text,
                             std::vector<std::pair<std::string, std::string>> fields = {});

// Tells when a long wait is worth a line: after 10 s, 30 s, 60 s, then every 60 s.
class WaitProgress {
 public:
  void start(TimePoint now);
  void stop() { since_.reset(); }
  [[nodiscard]] bool running() const { return since_.has_value(); }
  [[nodiscard]] TimePoint since() const { return since_.value_or(kNever); }
  [[nodiscard]] TimePoint next() const { return since_ ? next_ : kNever; }
  // The length of the wait when a line is due, once for each line.
  [[nodiscard]] std::optional<Duration> due(TimePoint now);

 private:
  friend struct Inside;
  std::optional<TimePoint> since_;
  TimePoint next_ = kNever;
};

// when + after, without passing the end of time.
[[nodiscard]] TimePoint later(TimePoint when, Duration after);

// The event of a Notice that makes a site dial all sites that it can, because none can dial it.
inline constexpr std::string_view kDialOut = "address";
// The event of a Notice that is no warning. It says what the swarm waits for before it begins or goes on.
inline constexpr std::string_view kWait = "waiting";
// The event of a Notice by which the collective hub sends ranks away because too few of them are there to go on.
inline constexpr std::string_view kMinority = "minority";
// The events of a Notice that answers Forget: it is accepted, or it changes nothing here.
inline constexpr std::string_view kForget = "forget";
inline constexpr std::string_view kRefused = "refused";

}  // namespace collab::protocol
