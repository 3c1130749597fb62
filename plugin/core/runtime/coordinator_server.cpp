// The coordinator on a transport of its own.
#include <malloc.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <tuple>
#include <utility>

#include "collab/session.h"
#include "core/base/address.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/rate_limit.h"
#include "core/base/trim_debt.h"
#include "core/protocol/agreement/run_name.h"
#include "core/protocol/collectives/collective_hub.h"
#include "core/protocol/coordinator/coordinator.h"
#include "core/protocol/formatting.h"
#include "core/runtime/address_probes.h"
#include "core/runtime/addresses.h"
#include "core/runtime/data/payload_buffer.h"
#include "core/runtime/doorstep.h"
#include "core/runtime/events_file.h"
#include "core/runtime/happenings.h"
#include "core/runtime/hub_outgoing.h"
#include "core/runtime/kept_joins.h"
#include "core/runtime/left_links.h"
#include "core/runtime/mailbox.h"
#include "core/runtime/proved_names.h"
#include "core/runtime/taken_links.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

constexpr std::string_view kName = "coordinator";  // the "site" of its events

[[nodiscard]] RunId fresh_run() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return protocol::run_name(std::chrono::duration_cast<std::chrono::seconds>(since), random_bits());
}

constexpr Duration kProbeLimit = std::chrono::seconds(5);
// Questions that are answered in a second. The others are passed over.
constexpr double kStatusesOfLink = 4;
constexpr double kStatusesOfHost = 16;
constexpr double kStatusesInAll = 64;  // but for this machine's
constexpr std::size_t kFewHosts = 256;
constexpr double kSmallQuestionsOfLink = 20;  // who leads, and what an operator says: a site asks each heartbeat

[[nodiscard]] protocol::CoordinatorConfig machine_config(const Config& config) {
  return {.swarm = config.run,
          .fresh_run = fresh_run(),
          .secret = {random_bits(), random_bits()},
          .terms = protocol::term_limit(std::chrono::system_clock::now().time_since_epoch(), SteadyClock().now()),
          .min_sites = config.min_sites,
          .init_from = config.init_from,
          .heartbeat = config.heartbeat,
          .link_grace = config.link_grace,
          .join_timeout = config.join_timeout,
          .round_timeout = config.round_timeout,
          .straggler_grace = config.straggler_grace,
          .forget_after = config.forget_after.count() == 0 ? Duration::max() : Duration(config.forget_after),
          .equal_shares = config.equal_shares};
}

[[nodiscard]] protocol::HubConfig hub_config(const Config& config) {
  return {.swarm = config.run,
          .heartbeat = config.heartbeat,
          .link_grace = config.link_grace,
          .join_timeout = config.join_timeout,
          .hub = random_bits()};
}

// Whoever has dialled this process, by link.
struct Dialler {
  std::string network;  // empty: it is this machine, or nobody knows
  RateLimit statuses{kStatusesOfLink, kStatusesOfLink};
  RateLimit small_questions{kSmallQuestionsOfLink, kSmallQuestionsOfLink};
};

// Two machines share the port: the coordinator of rounds, and the hub of the ranks' collectives. A link belongs to
// the hub once a rank has entered by it.
// Threads: the loop thread owns the machines; members and status are copied out under a lock.
class Server final : public CoordinatorServer {
 public:
  Server(const Config& config, std::unique_ptr<Transport> transport, EventsFile events)
      : machine_(machine_config(config)),
        hub_(hub_config(config)),
        events_(std::move(events)),
        transport_(std::move(transport)) {}

  ~Server() override {
    mailbox_.close();
    if (thread_.joinable()) thread_.join();
    transport_.reset();
  }

  Status start(const Config& config, const std::string& listen) {
    COLLAB_RETURN_IF_ERROR(transport_->start(&mailbox_));
    const Result<std::string> bound = transport_->listen(listen);
    if (!bound.ok()) return bound.status();
    address_ = dialable(*bound, config.advertise == kNotDialable ? std::string() : config.advertise);
    events_.write(kName, "coordinator", {{"address", "\"" + address_ + "\""}, {"term", "1"}});
    thread_ = std::thread([this] { loop(); });
    return {};
  }

  [[nodiscard]] std::string address() const override { return address_; }

  [[nodiscard]] std::string status_json() const override {
    const Result<CoordinatorReport> found = report();
    return found.ok() ? to_json(found->status) : "{}";
  }

  [[nodiscard]] Result<CoordinatorReport> report() const override {
    std::promise<CoordinatorReport> promise;
    std::future<CoordinatorReport> future = promise.get_future();
    mailbox_.post([this, promise = std::move(promise)]() mutable {
      promise.set_value({machine_.status(clock_.now()), rounds_.last(), notable_.last()});
    });
    if (future.wait_for(std::chrono::seconds(5)) != std::future_status::ready) {
      return timed_out("the coordinator's thread has not answered within 5 s [coordinator.busy]");
    }
    return future.get();
  }

  Status wait_until_empty(Duration limit) override {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return members_.empty(); })) return {};
    return timed_out("still waiting for " + protocol::join_words(members_) + " to leave the swarm after " +
                     std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limit).count()) +
                     " s [coordinator.sites-remain]");
  }

 private:
  void loop() {
    while (!mailbox_.closed()) {
      const TimePoint deadline = std::min({machine_.next_deadline(), hub_.next_deadline(), doorstep_.next_deadline()});
      if (std::optional<LoopEvent> event = mailbox_.take(deadline)) handle(std::move(*event));
      if (clock_.now() >= machine_.next_deadline()) feed(protocol::Tick{});
      if (clock_.now() >= hub_.next_deadline()) feed_hub(protocol::Tick{});
      if (clock_.now() >= doorstep_.next_deadline()) turn_out(doorstep_.due(clock_.now(), is_known()));
    }
  }

  [[nodiscard]] std::function<bool(LinkId)> is_known() const {
    return [this](LinkId link) { return machine_.knows(link) || hub_.knows(link); };
  }

  void turn_out(const std::vector<LinkId>& links) {
    for (const LinkId link : links) transport_->close(link);
  }

  [[nodiscard]] std::string network_behind(LinkId link) const {
    const auto found = diallers_.find(link);
    return found == diallers_.end() ? std::string() : found->second.network;
  }

  void came(LinkId link, const std::string& peer) {
    const std::string network = network_of(peer);
    const bool here = network == "127.0.0.1" || network == network_of("[::1]:1") || network == network_of(address_);
    diallers_[link].network = here ? std::string() : network;
    turn_out(doorstep_.came(clock_.now(), link, peer, is_known()));
  }

  // Whoever is about to be taken in. What is said on a link that is closed for it is not heard any more.
  void make_room_for_link(LinkId link, const std::string& site) {
    if (taken_.has(link) || is_known()(link)) return;
    const auto has_say = [this](const std::string& name) { return machine_.has_say(name); };
    const std::optional<LinkId> gone = taken_.came(link, network_behind(link), site, has_say);
    if (!gone) return;
    taken_.closed(*gone);
    left_.leave(*gone);
    const std::string network = network_behind(*gone);
    refuse(*gone,
           (network.empty() ? "this machine" : network) +
               " has more than its share of the links here, which together may use a quarter of the files that this "
               "process may open. If they are yours, raise its limit (ulimit -n) [coordinator.links-full]");
  }

  void refuse(LinkId link, const std::string& why) {
    const auto line = refused_.allow(
        clock_.now(), "the coordinator refused a message and closed its link: " + why + " [link.message-refused]");
    if (line) log_warning(*line);
    transport_->close(link);
  }

  // That says it; empty: none does.
  [[nodiscard]] static std::string site_of(const wire::Message& message) {
    if (const auto* join = std::get_if<wire::Join>(&message)) return join->site;
    if (const auto* enter = std::get_if<wire::Enter>(&message)) return enter->sites[enter->site_of[enter->rank.value]];
    return {};
  }

  // Each host has its share, and this machine one beside the others'.
  [[nodiscard]] bool may_ask_status(const std::string& network) {
    const TimePoint now = clock_.now();
    if (host_statuses_.size() > kFewHosts) {
      std::erase_if(host_statuses_, [now](auto each) { return each.second.would_allow(now, kStatusesOfHost); });
    }
    RateLimit& host = host_statuses_.try_emplace(network, kStatusesOfHost, kStatusesOfHost).first->second;
    if (!host.would_allow(now, 1) || !(network.empty() || all_statuses_.would_allow(now, 1))) return false;
    host.spend(1);
    if (!network.empty()) all_statuses_.spend(1);
    return true;
  }

  [[nodiscard]] bool may_ask(LinkId link, const wire::Message& message) {
    Dialler& dialler = diallers_[link];
    if (std::holds_alternative<wire::StatusQuery>(message)) {
      return dialler.statuses.allow(clock_.now()).has_value() && may_ask_status(dialler.network);
    }
    const bool small = std::holds_alternative<wire::Inquire>(message) || std::holds_alternative<wire::Forget>(message);
    return !small || dialler.small_questions.allow(clock_.now()).has_value();
  }

  void closed(LinkClosed event) {
    const LinkId link = event.link;
    left_.closed(link);
    doorstep_.closed(link);
    taken_.closed(link);
    diallers_.erase(link);
    joins_.closed(link);
    outgoing_.closed(link);
    proved_.closed(link);
    if (const auto tried = probes_.ended(link)) {
      probe();
      if (!event.why.ok() && !tried->answered) feed(protocol::Undialable{tried->member, event.why.message()});
      return;
    }
    turn_out(probes_.member_gone(link));
    probe();
    if (hub_.knows(link)) return feed_hub(protocol::Closed{link, std::move(event.why)});
    feed(protocol::Closed{link, std::move(event.why)});
    if (joins_.may_trim()) ::malloc_trim(0);
  }

  void handle(LoopEvent event) {
    if (auto* call = std::get_if<LoopCall>(&event)) return (*call)();
    if (const auto* connected = std::get_if<LinkConnected>(&event)) {  // a probe
      probes_.answered(connected->link);
      return transport_->close(connected->link);
    }
    if (auto* proved = std::get_if<LinkProved>(&event)) return proved_.proved(proved->link, std::move(proved->names));
    if (const auto* accepted = std::get_if<LinkAccepted>(&event)) return came(accepted->link, accepted->peer);
    if (auto* gone = std::get_if<LinkClosed>(&event)) return closed(std::move(*gone));
    if (const auto* sent = std::get_if<MessageSent>(&event)) return outgoing_.taken(sent->link, sent->token);
    auto* arrived = std::get_if<MessageArrived>(&event);
    if (arrived == nullptr || left_.has(arrived->link)) return;
    Result<wire::Message> message = wire::decode(arrived->message.head);
    if (!message.ok()) {
      return refuse(arrived->link, message.status().message());
    }
    if (!may_ask(arrived->link, *message)) return;
    if (const std::string site = site_of(*message); !site.empty()) {
      if (const std::string why = proved_.difference(arrived->link, site); !why.empty()) {
        act(protocol::Send{arrived->link, wire::Refuse{why}});
        return refuse(arrived->link, why);
      }
      make_room_for_link(arrived->link, std::holds_alternative<wire::Join>(*message) ? site : std::string());
      if (left_.has(arrived->link)) return;
    }
    if (std::holds_alternative<wire::Enter>(*message) || hub_.knows(arrived->link)) {
      return feed_hub(protocol::HubReceived{arrived->link, std::move(*message),
                                            HubOutgoing::held(std::move(arrived->message.payload)),
                                            network_behind(arrived->link)});
    }
    if (const auto* join = std::get_if<wire::Join>(&*message)) {
      make_room_for_join(arrived->link, held_bytes(*join, arrived->message.head.size()));
    }
    if (!left_.has(arrived->link)) feed(protocol::Received{arrived->link, std::move(*message)});
  }

  void make_room_for_join(LinkId link, std::size_t bytes) {
    const auto is_kept = [this](LinkId each) { return machine_.keeps_join_of(each); };
    for (const LinkId each : joins_.came(link, bytes, is_kept)) {
      left_.leave(each);
      refuse(each, "its Join is the largest, and the waiting ones take more than " +
                       std::to_string(joins_.most() >> 20) + " MiB; it may come again [join.too-large-now]");
    }
  }

  void feed(const protocol::CoordinatorEvent& event) {
    for (const protocol::CoordinatorAction& action : machine_.step(clock_.now(), event)) {
      std::visit([this](const auto& each) { act(each); }, action);
    }
    tell_calls();
    tell_members();
  }

  // A round and a call must not wait for each other. While nobody waits for a round the machine knows of no calls: what
  // it was told for the last one would part the next.
  void tell_calls() {
    const bool waits = machine_.waits_for_sites();
    const auto looked_at = std::tuple(waits, machine_.changes(), hub_.changes_of_calls());
    if (looked_at == std::exchange(calls_of_, looked_at)) return;
    protocol::CallsUnderWay calls;
    if (waits) {
      calls = hub_.calls_under_way([this](std::uint64_t world) { return machine_.sites_of(world); });
    }
    if (calls == calls_) return;
    calls_ = calls;
    feed(std::move(calls));
  }

  void feed_hub(const protocol::HubEvent& event) {
    for (const protocol::HubAction& action : hub_.step(clock_.now(), event)) {
      std::visit([this](const auto& each) { act(each); }, action);
    }
    hub_trims_.holds(hub_.held());
    if (hub_trims_.settle(hub_.held())) ::malloc_trim(0);
    tell_calls();
    tell_members();
  }

  void tell_members() {
    const std::pair changes(machine_.changes(), hub_.changes());
    if (changes == std::exchange(members_of_, changes)) return;
    std::vector<std::string> members = machine_.member_names();
    for (std::string& name : hub_.present()) members.push_back(std::move(name));
    const std::lock_guard lock(mutex_);
    if (members == members_) return;
    members_ = std::move(members);
    changed_.notify_all();
  }

  void act(const protocol::Send& action) { send({&action.link, 1}, action.message); }
  void act(const protocol::Broadcast& action) { send(action.links, action.message); }
  // What does not fit a message, whoever made it grow so, costs those who were to hear it their links and nobody more.
  void send(std::span<const LinkId> links, const wire::Message& message) {
    const Result<std::vector<std::byte>> head = wire::try_encode(message);
    if (!head.ok()) {
      const std::string why = head.status().message() + " [coordinator.message-unfit]";
      if (const auto line = unfit_.allow(clock_.now(), why)) log_error(*line);
      for (const LinkId link : links) transport_->close(link);
      return;
    }
    for (const LinkId link : links) {
      transport_->send(link, {.lane = Lane::kControl, .head = *head, .payload = nullptr}, 0);
    }
  }
  void act(const protocol::HubSend& action) {
    TransportMessage message = message_of(action);
    // Of the control lane a transport counts what waits.
    if (message.lane == Lane::kControl) return transport_->send(action.link, std::move(message), 0);
    protocol::Payload payload = action.payload;
    const std::uint64_t token = outgoing_.sends(action.link, message.head.size(), payload);
    message.payload = as_buffer(payload);
    transport_->send(action.link, std::move(message), token);
    const auto is_left = [this](LinkId link) { return left_.has(link); };
    while (const std::optional<LinkId> slow = outgoing_.too_much(is_left)) {
      left_.leave(*slow);
      refuse(*slow, "a rank takes less than it claims: too much is on its way to it [hub.slow-reader]");
    }
  }
  void act(const protocol::Hangup& action) {
    left_.leave(action.link);
    transport_->close(action.link);
  }
  // Not on this machine: many a router does not let one reach its own public address from within.
  void act(const protocol::ProbeAddress& action) {
    const auto host_of = [](const std::string& address) { return address.substr(0, address.rfind(':')); };
    if (!transport_->abilities().crosses_nat || host_of(action.address) == host_of(address_)) return;
    probes_.want(action.link, action.address);
    probe();
  }
  void probe() {
    while (const auto wanted = probes_.next()) {
      const LinkId dialled = transport_->connect(wanted->address, kProbeLimit);
      left_.leave(dialled);  // whoever answers there has nothing to say: that it answers is all
      probes_.begun(dialled, wanted->member);
    }
  }
  void act(const protocol::Note& action) {
    if (action.level != protocol::Note::Level::kDebug) (action.event == "round" ? rounds_ : notable_).add(action);
    if (action.event == "round") return log_debug(action.text);  // each member tells of it, with what it took there
    notes_.record(clock_.now(), action);
  }

  SteadyClock clock_;
  AddressProbes probes_;
  std::string address_;
  mutable Mailbox mailbox_;
  protocol::Coordinator machine_;
  protocol::CollectiveHub hub_;
  protocol::CallsUnderWay calls_;  // as the coordinator was told last
  EventsFile events_;
  Notes notes_{events_, std::string(kName)};
  Happenings rounds_, notable_;
  Doorstep doorstep_;
  TakenLinks taken_;
  std::map<LinkId, Dialler> diallers_;
  LeftLinks left_;
  KeptJoins joins_;
  HubOutgoing outgoing_;
  std::map<std::string, RateLimit> host_statuses_;  // by network
  RateLimit all_statuses_{kStatusesInAll, kStatusesInAll};
  ProvedNames proved_;
  RateLimit refused_{std::chrono::seconds(10)}, unfit_{std::chrono::seconds(10)};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::pair<std::uint64_t, std::uint64_t> members_of_;  // the changes after which `members_` were told
  TrimDebt hub_trims_;
  std::tuple<bool, std::uint64_t, std::uint64_t> calls_of_{};  // likewise: whether a round waited, and the changes
  std::vector<std::string> members_;                           // guarded by mutex_
  std::unique_ptr<Transport> transport_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<CoordinatorServer>> serve_coordinator(const Config& config, std::unique_ptr<Transport> transport,
                                                             const std::string& listen) {
  Result<EventsFile> events = EventsFile::open(config.events_file);
  if (!events.ok()) return events.status();
  auto server = std::make_unique<Server>(config, std::move(transport), std::move(*events));
  COLLAB_RETURN_IF_ERROR(server->start(config, listen));
  return std::unique_ptr<CoordinatorServer>(std::move(server));
}

}  // namespace collab
