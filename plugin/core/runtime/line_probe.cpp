#include "core/runtime/line_probe.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/address.h"
#include "core/base/little_endian.h"

namespace collab {
namespace {

constexpr std::string_view kMark = "collab line 1";
constexpr std::size_t kFixed = kMark.size() + 1 + 8;  // the mark, the kind and the number
constexpr std::size_t kMostText = 500;
constexpr Duration kAnswerLimit = std::chrono::seconds(10);
constexpr Duration kDialLimit = std::chrono::seconds(5);
constexpr std::uint64_t kMostMicros = 300'000'000;

[[nodiscard]] TimePoint now() { return SteadyClock().now(); }

[[nodiscard]] BufferPtr payload() {
  static const std::shared_ptr<BufferPool> pool = make_buffer_pool();
  BufferPtr made = pool->take(LineSender::kChunkBytes);
  std::ranges::fill(made->bytes(), std::byte{0});
  return made;
}

// The sending of both sides.
class Speaker {
 public:
  explicit Speaker(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

 protected:
  void say(LinkId link, const LineMessage& told) {
    transport_->send(link, {.lane = Lane::kControl, .head = encode_line(told), .payload = nullptr}, 0);
  }
  void pump(LinkId link) {
    const std::size_t due = sender_.due(now());
    sender_.queued(due);
    for (std::size_t i = 0; i < due; ++i) {
      transport_->send(link, {.lane = Lane::kData, .head = encode_line({}), .payload = payload_}, 1);
    }
  }

  const BufferPtr payload_ = payload();
  LineSender sender_;
  LineMeter meter_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace

// ---- messages -------------------------------------------------------------------------------------------

std::vector<std::byte> encode_line(const LineMessage& told) {
  const std::string_view text = std::string_view(told.text).substr(0, kMostText);
  std::vector<std::byte> bytes(kFixed + text.size());
  std::memcpy(bytes.data(), kMark.data(), kMark.size());
  bytes[kMark.size()] = static_cast<std::byte>(told.kind);
  store_little(std::span(bytes).subspan(kMark.size() + 1), told.number);
  std::memcpy(bytes.data() + kFixed, text.data(), text.size());
  return bytes;
}

Result<LineMessage> decode_line(std::span<const std::byte> head) {
  const std::string_view bytes(reinterpret_cast<const char*>(head.data()), head.size());
  if (!bytes.starts_with(kMark) || bytes.size() < kFixed || bytes.size() > kFixed + kMostText) {
    return corrupt("expected a message of `collab doctor`, got " + std::to_string(bytes.size()) + " other bytes");
  }
  const auto kind = static_cast<std::uint8_t>(bytes[kMark.size()]);
  if (kind < static_cast<std::uint8_t>(LineMessageKind::kPing) ||
      kind > static_cast<std::uint8_t>(LineMessageKind::kBusy)) {
    return corrupt("a `collab doctor` sent a message of kind " + std::to_string(kind) +
                   ", which this version does not know");
  }
  return LineMessage{.kind = static_cast<LineMessageKind>(kind),
                     .number = load_little<std::uint64_t>(head.subspan(kMark.size() + 1)),
                     .text = std::string(bytes.substr(kFixed))};
}

// ---- calculations ---------------------------------------------------------------------------------------

std::size_t LineSender::due(TimePoint now) const {
  if (is_over(now)) return 0;
  const std::size_t window = std::min(kFirst + sent_ / 2, kMost);
  return window - std::min(window, on_its_way());
}

double LineMeter::bits_a_second(TimePoint now) const {
  if (arrived_.empty()) return 0;
  const TimePoint half = begun_ + (now - begun_) / 2;
  auto from = std::ranges::upper_bound(arrived_, half, {}, [](const auto& each) { return each.first; });
  TimePoint since = begun_;
  if (from == arrived_.end()) {
    from = arrived_.begin();
  } else if (from != arrived_.begin()) {
    since = std::prev(from)->first;
  }
  double bytes = 0;
  for (auto each = from; each != arrived_.end(); ++each) bytes += static_cast<double>(each->second);
  const double seconds = std::chrono::duration<double>(arrived_.back().first - since).count();
  return seconds > 0 ? 8 * bytes / seconds : 0;
}

// ---- the side that answers ------------------------------------------------------------------------------

namespace {

class Answerer final : public LineAnswerer, public TransportHandler, private Speaker {
 public:
  Answerer(std::unique_ptr<Transport> transport, std::shared_ptr<const Clock> clock)
      : Speaker(std::move(transport)), clock_(std::move(clock)) {}
  ~Answerer() override { transport_.reset(); }  // destroyed before what its handlers use

  Status start(const std::string& listen) {
    COLLAB_RETURN_IF_ERROR(transport_->start(this));
    Result<std::string> bound = transport_->listen(listen);
    if (!bound.ok()) return bound.status();
    address_ = *bound;
    return {};
  }
  [[nodiscard]] std::string address() const override { return address_; }

  void on_accepted(LinkId link, const std::string& peer) override {
    if (asker_ != LinkId() && !turn_.is_over(clock_->now())) {
      say(link, {.kind = LineMessageKind::kBusy});
      return transport_->close(link);
    }
    if (asker_ != LinkId()) end_turn();
    asker_ = link;
    turn_.begin(clock_->now());
    asker_host_ = peer.substr(0, peer.rfind(':'));
  }
  void on_connected(LinkId link) override {
    if (link == back_) dialled_back({});
  }
  void on_closed(LinkId link, Status why) override {
    if (link == back_) return dialled_back(why.ok() ? "the link was closed" : why.message());
    if (link != asker_) return;
    asker_ = LinkId();
    sender_ = {};
    sending_ = false;
    if (back_ != LinkId()) transport_->close(std::exchange(back_, LinkId()));
  }
  void on_sent(LinkId link, std::uint64_t) override {
    if (link != asker_) return;
    turn_.moved(clock_->now());
    sender_.sent();
    if (!sending_) return;
    pump(link);
    if (!sender_.is_over(now())) return;
    // The last request. This side must be free for the next one before the other side learns that this one has ended.
    on_closed(link, {});
    say(link, {.kind = LineMessageKind::kDownEnd});
    transport_->close(link);
  }
  void on_message(LinkId link, TransportMessage message) override {
    if (link != asker_) return;
    if (message.payload) {
      turn_.moved(clock_->now());
      return meter_.arrived(now(), message.payload->view().size());
    }
    const Result<LineMessage> told = decode_line(message.head);
    if (!told.ok()) return transport_->close(link);
    if (told->kind != LineMessageKind::kPing) turn_.moved(clock_->now());
    switch (told->kind) {
      case LineMessageKind::kPing: return say(link, {.kind = LineMessageKind::kPong, .number = told->number});
      case LineMessageKind::kDialBack:
        if (told->number == 0 || told->number > 65535 || back_ != LinkId()) return transport_->close(link);
        // Dials only the host that asked: no peer can make this side dial a third machine.
        back_ = transport_->connect(asker_host_ + ":" + std::to_string(told->number), kDialLimit);
        return;
      case LineMessageKind::kUp: return meter_.begin(now());
      case LineMessageKind::kUpEnd:
        return say(link, {.kind = LineMessageKind::kUpFigure,
                          .number = static_cast<std::uint64_t>(meter_.bits_a_second(now()))});
      case LineMessageKind::kDown:
        if (sender_.on_its_way() > 0) return transport_->close(link);
        sender_.begin(now() + Duration(std::min(told->number, kMostMicros)));
        sending_ = true;
        return pump(link);
      case LineMessageKind::kPong:
      case LineMessageKind::kDialled:
      case LineMessageKind::kUpFigure:
      case LineMessageKind::kDownEnd:
      case LineMessageKind::kBusy: return transport_->close(link);
    }
  }

 private:
  void end_turn() {
    const LinkId link = asker_;
    on_closed(link, {});
    transport_->close(link);
  }
  void dialled_back(const std::string& why_not) {
    if (why_not.empty()) transport_->close(back_);
    back_ = LinkId();
    if (asker_ != LinkId()) say(asker_, {.kind = LineMessageKind::kDialled, .text = why_not});
  }

  const std::shared_ptr<const Clock> clock_;
  std::string address_;
  // For the transport's thread only.
  LinkId asker_, back_;
  std::string asker_host_;
  LineTurn turn_;  // of the asking side
  bool sending_ = false;
};

// ---- the side that measures -----------------------------------------------------------------------------

class Measurer final : public TransportHandler, private Speaker {
 public:
  Measurer(std::unique_ptr<Transport> transport, std::string address)
      : Speaker(std::move(transport)), address_(std::move(address)) {}
  ~Measurer() override { transport_.reset(); }

  Result<LineFigures> measure(Duration time, const std::string& listen) {
    COLLAB_RETURN_IF_ERROR(transport_->start(this));
    LineFigures figures;
    COLLAB_RETURN_IF_ERROR(dial());
    COLLAB_RETURN_IF_ERROR(round_trip(figures));
    if (!listen.empty()) COLLAB_RETURN_IF_ERROR(dial_back(listen, figures));
    COLLAB_RETURN_IF_ERROR(up(time / 2, figures));
    COLLAB_RETURN_IF_ERROR(down(time / 2, figures));
    return figures;
  }

  void on_accepted(LinkId, const std::string&) override {}  // the other side has dialled back, and says so
  void on_connected(LinkId link) override {
    const std::lock_guard lock(mutex_);
    if (link != link_) return;
    connected_ = true;
    changed_.notify_all();
  }
  void on_closed(LinkId link, Status why) override {
    const std::lock_guard lock(mutex_);
    if (link != link_) return;
    closed_ = why.ok() ? "the link was closed" : why.message();
    changed_.notify_all();
  }
  void on_sent(LinkId link, std::uint64_t) override {
    const std::lock_guard lock(mutex_);
    if (link != link_) return;
    sender_.sent();
    pump(link);
    changed_.notify_all();
  }
  void on_message(LinkId link, TransportMessage message) override {
    const std::lock_guard lock(mutex_);
    if (link != link_) return;
    if (message.payload) return meter_.arrived(now(), message.payload->view().size());
    Result<LineMessage> told = decode_line(message.head);
    if (!told.ok()) {
      closed_ = "the program that answers is not `collab doctor --answer`";
    } else if (told->kind == LineMessageKind::kBusy) {
      closed_ = "it is measuring for another machine; try again when that is done";
    } else {
      told_ = std::move(*told);
    }
    changed_.notify_all();
  }

 private:
  [[nodiscard]] Status lost() const {
    return unavailable("the line to " + address_ + " was not measured: " + *closed_ + " [cli.line-closed]");
  }
  // Waits until `done`, under the lock. The other side may close the link right behind its last answer.
  template <typename Done>
  Status wait(std::unique_lock<std::mutex>& lock, Duration limit, Done done) {
    if (changed_.wait_for(lock, limit, [&] { return closed_ || done(); })) return done() ? Status() : lost();
    return timed_out("the line to " + address_ + " was not measured: nothing came within " +
                     std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limit).count()) +
                     " s; does `collab doctor --answer` of this version run there? [cli.line-silent]");
  }
  Result<LineMessage> ask(const LineMessage& question, LineMessageKind answer, Duration limit) {
    std::unique_lock lock(mutex_);
    told_.reset();
    say(link_, question);
    return heard(lock, answer, limit);
  }
  Result<LineMessage> heard(std::unique_lock<std::mutex>& lock, LineMessageKind answer, Duration limit) {
    COLLAB_RETURN_IF_ERROR(wait(lock, limit, [&] { return told_ && told_->kind == answer; }));
    return *told_;
  }

  Status dial() {
    std::unique_lock lock(mutex_);
    link_ = transport_->connect(address_, kAnswerLimit);
    return wait(lock, kAnswerLimit + std::chrono::seconds(1), [&] { return connected_; });
  }
  Status round_trip(LineFigures& figures) {
    std::array<double, kLinePings> took{};
    for (std::size_t i = 0; i < took.size(); ++i) {
      const TimePoint begun = now();
      COLLAB_RETURN_IF_ERROR(
          ask({.kind = LineMessageKind::kPing, .number = i}, LineMessageKind::kPong, kAnswerLimit).status());
      took.at(i) = std::chrono::duration<double, std::milli>(now() - begun).count();
    }
    std::ranges::sort(took);
    figures.round_trip_ms = took.at(took.size() / 2);
    return {};
  }
  Status dial_back(const std::string& listen, LineFigures& figures) {
    const Result<std::string> bound = transport_->listen(listen);
    figures.own_address = bound.ok() ? *bound : listen;
    const Result<HostPort> own = parse_host_port(figures.own_address);
    if (!own.ok()) return own.status();
    if (own->port == 0) return bound.status();
    const Result<LineMessage> told = ask({.kind = LineMessageKind::kDialBack, .number = own->port},
                                         LineMessageKind::kDialled, kDialLimit + kAnswerLimit);
    if (!told.ok()) return told.status();
    figures.not_dialled = told->text;
    return {};
  }
  Status up(Duration time, LineFigures& figures) {
    std::unique_lock lock(mutex_);
    say(link_, {.kind = LineMessageKind::kUp});
    sender_.begin(now() + time);
    pump(link_);
    if (changed_.wait_for(lock, time, [&] { return closed_.has_value(); })) return lost();  // otherwise on_sent pumps
    told_.reset();
    say(link_, {.kind = LineMessageKind::kUpEnd});
    const Result<LineMessage> told = heard(lock, LineMessageKind::kUpFigure, kAnswerLimit);
    if (!told.ok()) return told.status();
    figures.mbit_up = static_cast<double>(told->number) / 1e6;
    // Payloads that are still queued would share the line with acknowledgements of the other direction.
    (void)changed_.wait_for(lock, time, [&] { return closed_ || sender_.on_its_way() == 0; });
    return {};
  }
  Status down(Duration time, LineFigures& figures) {
    std::unique_lock lock(mutex_);
    told_.reset();
    meter_.begin(now());
    say(link_, {.kind = LineMessageKind::kDown, .number = static_cast<std::uint64_t>(time.count())});
    const Result<LineMessage> told = heard(lock, LineMessageKind::kDownEnd, time + kAnswerLimit);
    if (!told.ok()) return told.status();
    figures.mbit_down = meter_.bits_a_second(now()) / 1e6;
    return {};
  }

  const std::string address_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex, with sender_ and meter_.
  LinkId link_;
  bool connected_ = false;
  std::optional<std::string> closed_;
  std::optional<LineMessage> told_;
};

}  // namespace

Result<LineFigures> measure_line(std::unique_ptr<Transport> transport, const std::string& address, Duration time,
                                 const std::string& listen) {
  return Measurer(std::move(transport), address).measure(time, listen);
}

Result<std::unique_ptr<LineAnswerer>> answer_line(std::unique_ptr<Transport> transport, const std::string& listen,
                                                  std::shared_ptr<const Clock> clock) {
  auto made = std::make_unique<Answerer>(std::move(transport), std::move(clock));
  COLLAB_RETURN_IF_ERROR(made->start(listen));
  return std::unique_ptr<LineAnswerer>(std::move(made));
}

}  // namespace collab
