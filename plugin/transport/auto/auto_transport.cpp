#include "transport/auto/auto_transport.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/address.h"
#include "core/base/log.h"

namespace collab {
namespace {

constexpr std::string_view kUcxHint = "ucx";
constexpr std::size_t kHostsRemembered = 1024;

// The host and port for ucx, where the address names one.
std::optional<HostPort> ucx_address(const std::string& address) {
  const std::string_view hint = hint_of(address);
  if (!hint.starts_with(kUcxHint)) return std::nullopt;
  Result<HostPort> place = parse_host_port(plain_address(address));
  if (!place.ok()) return std::nullopt;  // tcp says what is wrong with it
  const Result<HostPort> with_port = parse_host_port("ucx:" + std::string(hint.substr(kUcxHint.size())));
  if (!with_port.ok() || with_port->port == 0) return std::nullopt;
  place->port = with_port->port;
  return std::move(*place);
}

// A link's number here is twice its number at its part, and one more at ucx. Only a dial that began at ucx and went on
// at tcp needs to be looked up.
class AutoTransport final : public Transport {
 public:
  AutoTransport(std::unique_ptr<Transport> tcp, std::unique_ptr<Transport> ucx, const AutoOptions& options)
      : options_(options), pid_(::getpid()), tcp_(*this, std::move(tcp)), ucx_(*this, std::move(ucx)) {}

  ~AutoTransport() override {
    if (!in_child()) {  // there, a lock may be held for good
      const std::lock_guard lock(mutex_);
      ending_ = true;  // what handlers that still run call from here on does nothing
    }
    ucx_.transport.reset();
    tcp_.transport.reset();
  }

  // By which kinds messages of the data lane come here; "auto" before the first.
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] Abilities abilities() const override {
    const Abilities tcp = tcp_.transport->abilities(), ucx = ucx_.transport->abilities();
    return {.resumes = tcp.resumes && ucx.resumes,
            .crosses_nat = tcp.crosses_nat,  // where ucx does not, tcp is taken
            .encrypts = tcp.encrypts && ucx.encrypts,
            .between_hosts = tcp.between_hosts,
            .sees_peer_death = tcp.sees_peer_death && ucx.sees_peer_death};
  }
  Status start(TransportHandler* handler) override {
    handler_ = handler;
    COLLAB_RETURN_IF_ERROR(tcp_.transport->start(&tcp_));
    return ucx_.transport->start(&ucx_);
  }
  Result<std::string> listen(const std::string& address) override;
  LinkId connect(const std::string& address, Duration timeout) override;
  void send(LinkId link, TransportMessage message, std::uint64_t token) override;
  void close(LinkId link) override;

 private:
  // One of the two, and who hears of its links.
  struct Part final : TransportHandler {
    Part(AutoTransport& its_owner, std::unique_ptr<Transport> made)
        : owner(its_owner), kind(made->name()), transport(std::move(made)) {}
    void on_accepted(LinkId link, const std::string& peer) override {
      owner.tell(*this, link, [&](LinkId ours) { owner.handler_->on_accepted(ours, peer); });
    }
    void on_connected(LinkId link) override { owner.connected(*this, link); }
    void on_message(LinkId link, TransportMessage message) override {
      const bool data = message.lane == Lane::kData;
      owner.tell(
          *this, link, [&](LinkId ours) { owner.handler_->on_message(ours, std::move(message)); }, data);
    }
    void on_sent(LinkId link, std::uint64_t token) override {
      owner.tell(*this, link, [&](LinkId ours) { owner.handler_->on_sent(ours, token); });
    }
    void on_closed(LinkId link, Status why) override { owner.closed(*this, link, std::move(why)); }

    AutoTransport& owner;
    const std::string kind;
    std::unique_ptr<Transport> transport;
  };
  // A dial by ucx, until it is known to have come about.
  struct Trial {
    std::string address;  // for tcp
    std::string host;
    TimePoint deadline;
    std::vector<std::pair<TransportMessage, std::uint64_t>> queued;
    bool closing = false;
  };
  struct Place {
    Part& part;
    LinkId link;
  };
  class Turn;

  template <typename Call>
  void tell(Part& part, LinkId link, const Call& call, bool carried = false);
  void connected(Part& part, LinkId link);
  void closed(Part& part, LinkId link, Status why);
  // With mutex_ held:
  void dial_tcp(LinkId id, Trial trial, const Status& why);
  void go_on(Place place, Trial trial);
  void carries(LinkId id);  // messages of the data lane: its kind is worth a line
  void log_reason(const std::string& host, const std::string& kind, const std::string& reason,
                  const std::string& detail = "");

  [[nodiscard]] LinkId ours(const Part& part, LinkId link) const;
  [[nodiscard]] Place place_of(LinkId ours);

  [[nodiscard]] bool in_child() const { return ::getpid() != pid_; }

  const AutoOptions options_;
  const pid_t pid_;
  const SteadyClock clock_;
  TransportHandler* handler_ = nullptr;
  std::mutex turn_;                        // held around a call of the handler, and taken before mutex_
  std::atomic<std::thread::id> teller_{};  // who holds turn_
  mutable std::mutex mutex_;               // never held around a call of the handler; guards what follows
  bool ending_ = false;
  std::map<LinkId, Trial> trials_;                 // by our number
  std::map<LinkId, LinkId> moved_, moved_back_;    // dials that went on at tcp: ours to tcp's, tcp's to ours
  std::map<std::string, TimePoint> silent_until_;  // hosts whose ucx port did not answer
  // Dialled where the address names no port for ucx, and the host. That of a coordinator never does: nothing is said
  // before data goes over the link, or the log would say tcp of a host whose site is reached by ucx.
  std::map<LinkId, std::string> without_port_;
  std::set<std::string> logged_;
  std::map<LinkId, std::string> carriers_;  // open links that brought messages of the data lane, and the kind of each
  std::string carried_last_ = "auto";       // by a link that is closed
  Part tcp_, ucx_;
};

// The handler's, for one call.
class AutoTransport::Turn {
 public:
  explicit Turn(AutoTransport& owner) : lock_(owner.turn_), teller_(owner.teller_) {
    teller_ = std::this_thread::get_id();
  }
  ~Turn() { teller_ = std::thread::id(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const std::lock_guard<std::mutex> lock_;
  std::atomic<std::thread::id>& teller_;
};

std::string AutoTransport::name() const {
  const std::lock_guard lock(mutex_);
  std::set<std::string> kinds;
  for (const auto& [link, kind] : carriers_) kinds.insert(kind);
  if (kinds.empty()) return carried_last_;
  std::string text;
  for (const std::string& kind : kinds) text += (text.empty() ? "" : "+") + kind;
  return text;
}

Result<std::string> AutoTransport::listen(const std::string& address) {
  Result<std::string> bound = tcp_.transport->listen(address);
  // A handler that waited here for ucx's thread could wait for good: that thread may be waiting for its turn.
  if (!bound.ok() || in_child() || teller_ == std::this_thread::get_id()) return bound;
  const std::string host = parse_host_port(address)->host;  // tcp has read it as well
  const Result<std::string> beside = ucx_.transport->listen(to_string(HostPort{host, 0}));
  const Result<HostPort> there = beside.ok() ? parse_host_port(*beside) : beside.status();
  if (!there.ok()) {
    log_warning("links that others dial use tcp: " + there.status().message());
    return bound;
  }
  return *bound + "+" + std::string(kUcxHint) + std::to_string(there->port);
}

LinkId AutoTransport::connect(const std::string& address, Duration timeout) {
  const std::string plain(plain_address(address));
  const std::optional<HostPort> by_ucx = ucx_address(address);
  const Result<HostPort> place = parse_host_port(plain);
  const std::string host = place.ok() ? place->host : plain;
  if (in_child()) return ours(tcp_, tcp_.transport->connect(plain, timeout));
  const std::lock_guard lock(mutex_);
  if (ending_) return {};
  const auto silent = silent_until_.find(host);
  if (by_ucx && (silent == silent_until_.end() || silent->second <= clock_.now())) {
    const Duration patience = std::min(options_.ucx_patience, timeout / 2);
    const LinkId link = ours(ucx_, ucx_.transport->connect(to_string(*by_ucx), patience));
    trials_[link] = {plain, host, clock_.now() + timeout, {}, false};
    return link;
  }
  const LinkId link = ours(tcp_, tcp_.transport->connect(plain, timeout));
  if (by_ucx) {
    log_reason(host, "tcp", "ucx did not answer there lately");
  } else {
    without_port_[link] = host;
  }
  return link;
}

void AutoTransport::send(LinkId link, TransportMessage message, std::uint64_t token) {
  if (in_child()) return;
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  if (const auto trial = trials_.find(link); trial != trials_.end()) {
    if (!trial->second.closing) trial->second.queued.emplace_back(std::move(message), token);
    return;
  }
  if (message.lane == Lane::kData) carries(link);
  const Place place = place_of(link);
  place.part.transport->send(place.link, std::move(message), token);
}

void AutoTransport::close(LinkId link) {
  if (in_child()) return;
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  if (const auto trial = trials_.find(link); trial != trials_.end()) {
    trial->second.closing = true;
    return;
  }
  const Place place = place_of(link);
  place.part.transport->close(place.link);
}

template <typename Call>
void AutoTransport::tell(Part& part, LinkId link, const Call& call, bool carried) {
  const Turn turn(*this);
  LinkId id;
  {
    const std::lock_guard lock(mutex_);
    id = ours(part, link);
    if (carried) {
      carriers_.try_emplace(id, part.kind);
      carries(id);
    }
  }
  call(id);
}

void AutoTransport::connected(Part& part, LinkId link) {
  const Turn turn(*this);
  LinkId id;
  {
    const std::lock_guard lock(mutex_);
    id = ours(part, link);
    if (auto trial = trials_.extract(id); !trial.empty()) {
      log_reason(trial.mapped().host, "ucx", "no key is given, and both sides have it");
      go_on({part, link}, std::move(trial.mapped()));
    }
  }
  handler_->on_connected(id);
}

void AutoTransport::closed(Part& part, LinkId link, Status why) {
  const Turn turn(*this);
  LinkId id;
  {
    const std::lock_guard lock(mutex_);
    id = ours(part, link);
    if (auto trial = trials_.extract(id); !trial.empty()) {
      if (!ending_) dial_tcp(id, std::move(trial.mapped()), why);
      return;
    }
    if (moved_.erase(id) != 0) moved_back_.erase(link);
    without_port_.erase(id);
    if (auto carrier = carriers_.extract(id); !carrier.empty()) carried_last_ = std::move(carrier.mapped());
  }
  handler_->on_closed(id, std::move(why));
}

// The dial by ucx has failed, and nobody was told.
void AutoTransport::dial_tcp(LinkId id, Trial trial, const Status& why) {
  if (why.code() == StatusCode::kTimeout) {  // others fail at once, and cost a later dial nothing
    if (silent_until_.size() >= kHostsRemembered) silent_until_.clear();
    silent_until_[trial.host] = clock_.now() + options_.ucx_silence;
  }
  log_reason(trial.host, "tcp", "ucx did not connect", " (" + why.message() + ")");
  const Duration left = std::max<Duration>(trial.deadline - clock_.now(), std::chrono::milliseconds(1));
  const LinkId link = tcp_.transport->connect(trial.address, left);
  moved_[id] = link;
  moved_back_[link] = id;
  go_on({tcp_, link}, std::move(trial));
}

void AutoTransport::carries(LinkId id) {
  if (const auto dialled = without_port_.extract(id); !dialled.empty()) {
    log_reason(dialled.mapped(), "tcp", "its address names no port for ucx");
  }
}

void AutoTransport::go_on(Place place, Trial trial) {
  if (ending_) return;
  for (auto& [message, token] : trial.queued) place.part.transport->send(place.link, std::move(message), token);
  if (trial.closing) place.part.transport->close(place.link);
}

void AutoTransport::log_reason(const std::string& host, const std::string& kind, const std::string& reason,
                               const std::string& detail) {
  if (logged_.size() >= kHostsRemembered) logged_.clear();
  const std::string line = "the link to " + host + " uses " + kind + ", not encrypted: " + reason;
  if (logged_.insert(line).second) log_info(line + detail);
}

LinkId AutoTransport::ours(const Part& part, LinkId link) const {
  if (&part == &ucx_) return LinkId(2 * link.value + 1);
  const auto moved = moved_back_.find(link);
  return moved != moved_back_.end() ? moved->second : LinkId(2 * link.value);
}

AutoTransport::Place AutoTransport::place_of(LinkId ours) {
  if (const auto moved = moved_.find(ours); moved != moved_.end()) return {tcp_, moved->second};
  return {ours.value % 2 == 1 ? ucx_ : tcp_, LinkId(ours.value / 2)};
}

}  // namespace

Result<std::unique_ptr<Transport>> make_auto_transport(Result<std::unique_ptr<Transport>> tcp,
                                                       Result<std::unique_ptr<Transport>> ucx,
                                                       const AutoOptions& options) {
  if (!tcp.ok()) return tcp;
  if ((*tcp)->abilities().encrypts) {
    return invalid_argument(
        "auto: expected a tcp transport without a key, for links over ucx would not be encrypted; with a key use tcp "
        "alone");
  }
  if (!ucx.ok()) {
    log_warning("links between sites use tcp, not encrypted: UCX cannot be used here (" + ucx.status().message() + ")");
    return tcp;
  }
  return std::unique_ptr<Transport>(std::make_unique<AutoTransport>(std::move(*tcp), std::move(*ucx), options));
}

}  // namespace collab
