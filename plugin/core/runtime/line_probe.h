// Measures the speed of the line to another machine, over a transport as sites use it: one measures, one answers.
//
// Both are `collab doctor`. They use their own messages: no machine of the protocol gets them, and their heads are not
// wire messages (docs/protocol/beside.md, "A measured line"). The answering side serves one peer at a time.
// Threads: handlers run on the transport's thread; measure_line waits on the caller's. Ownership: each takes its
// transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "collab/transport.h"

namespace collab {

// ---- messages -------------------------------------------------------------------------------------------

enum class LineMessageKind : std::uint8_t {
  kPing = 1,  // number: any; comes back as kPong
  kPong,      //
  kDialBack,  // number: the port at which the measuring side can be dialled
  kDialled,   // text: why the dial failed; empty: it did not
  kUp,        // payloads follow: count them from now
  kUpEnd,     // no more payloads follow
  kUpFigure,  // number: bits per second that have arrived
  kDown,      // number: microseconds for which to send payloads
  kDownEnd,   // all payloads were sent
  kBusy,      // another peer is being served
};
struct LineMessage {
  LineMessageKind kind = LineMessageKind::kPing;
  std::uint64_t number = 0;
  std::string text = {};
  friend bool operator==(const LineMessage&, const LineMessage&) = default;
};
[[nodiscard]] std::vector<std::byte> encode_line(const LineMessage& told);
// kCorrupt if the head is no LineMessage.
[[nodiscard]] Result<LineMessage> decode_line(std::span<const std::byte> head);

// ---- calculations ---------------------------------------------------------------------------------------

// How many payloads to queue: enough to fill the line, and no more than a slow line can send in half the time so far.
class LineSender {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{128} << 10;
  static constexpr std::size_t kFirst = 8;
  static constexpr std::size_t kMost = 512;  // 64 MiB

  void begin(TimePoint until) { until_ = until; }
  [[nodiscard]] std::size_t due(TimePoint now) const;
  [[nodiscard]] bool is_over(TimePoint now) const { return now >= until_; }
  [[nodiscard]] std::size_t on_its_way() const { return queued_ - sent_; }
  void queued(std::size_t chunks) { queued_ += chunks; }
  void sent() { ++sent_; }

 private:
  TimePoint until_{};
  std::size_t queued_ = 0, sent_ = 0;
};

// The rate of arrivals over the second half of the time. In the first half the transport finds its pace.
class LineMeter {
 public:
  static constexpr std::size_t kMostArrivals = std::size_t{1} << 20;  // 128 GiB of ours; a peer's may be smaller

  void begin(TimePoint now) {
    begun_ = now;
    arrived_.clear();
  }
  void arrived(TimePoint now, std::size_t bytes) {
    if (arrived_.size() < kMostArrivals) arrived_.emplace_back(now, bytes);
  }
  [[nodiscard]] double bits_a_second(TimePoint now) const;

 private:
  TimePoint begun_{};
  std::vector<std::pair<TimePoint, std::size_t>> arrived_;
};

// How long a served peer may keep others waiting: kSilence with nothing but pings, and kInAll in total.
class LineTurn {
 public:
  static constexpr Duration kSilence = std::chrono::seconds(30);
  static constexpr Duration kInAll = std::chrono::seconds(660);  // 300 s each way, and the messages before

  void begin(TimePoint now) { begun_ = moved_ = now; }
  void moved(TimePoint now) { moved_ = now; }
  [[nodiscard]] bool is_over(TimePoint now) const { return now - moved_ >= kSilence || now - begun_ >= kInAll; }

 private:
  TimePoint begun_{}, moved_{};
};

// ---- the two sides --------------------------------------------------------------------------------------

struct LineFigures {
  double round_trip_ms = 0;           // median of kLinePings, with nothing else on the line
  double mbit_up = 0, mbit_down = 0;  // megabit (10^6) a second of payload; up: from here
  std::string own_address = {};       // the address that was dialled back; empty: none was asked for
  std::string not_dialled = {};       // why dialling back failed; empty: it did not
};
inline constexpr std::size_t kLinePings = 11;

// Takes about `time`, half of it for each direction. `listen`: where this side can be dialled, "host:port"; empty:
// nowhere. If the port is in use, it is dialled anyway: a site or coordinator may listen there.
[[nodiscard]] Result<LineFigures> measure_line(std::unique_ptr<Transport> transport, const std::string& address,
                                               Duration time, const std::string& listen);

class LineAnswerer {
 public:
  virtual ~LineAnswerer() = default;
  [[nodiscard]] virtual std::string address() const = 0;
};
// `clock` times the turns.
[[nodiscard]] Result<std::unique_ptr<LineAnswerer>> answer_line(
    std::unique_ptr<Transport> transport, const std::string& listen,
    std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>());

}  // namespace collab
