// The coordinator on a transport of its own.
#include <malloc.h>

#include <algorithm>
#include <future>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "collab/session.h"
#include "core/base/address.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/rate_limit.h"
#include "core/protocol/agreement/run_name.h"
#include "core/protocol/coordinator/coordinator.h"
#include "core/runtime/address_probes.h"
#include "core/runtime/addresses.h"
#include "core/runtime/coordinator_reporter.h"
#include "core/runtime/dialler_quotas.h"
#include "core/runtime/events_file.h"
#include "core/runtime/hub_driver.h"
#include "core/runtime/link_admission.h"
#include "core/runtime/mailbox.h"
#include "core/runtime/pending_joins.h"
#include "core/runtime/swarm_members.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

[[nodiscard]] RunId fresh_run() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return protocol::run_name(std::chrono::duration_cast<std::chrono::seconds>(since), random_bits());
}

constexpr Duration kProbeLimit = std::chrono::seconds(5);

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

// Two machines share the port: the coordinator of rounds, and the hub of the ranks' collectives. A link belongs to
// the hub once a rank has entered by it.
// Threads: the loop thread owns all parts; the member list and the reports are for others.
class Server final : public CoordinatorServer {
 public:
  Server(const Config& config, std::unique_ptr<Transport> transport, EventsFile events)
      : machine_(machine_config(config)),
        links_(
            *transport, clock_, [this](LinkId link) { return is_known(link); },
            [](LinkId, const std::string& why) {
              return "the coordinator refused a message and closed its link: " + why + " [link.message-refused]";
            }),
        hub_(hub_config(config), *transport, links_, [this](const protocol::Note& note) { act(note); }),
        news_(std::move(events)),
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
    news_.listens(address_);
    thread_ = std::thread([this] { loop(); });
    return {};
  }

  [[nodiscard]] std::string address() const override { return address_; }

  [[nodiscard]] Result<CoordinatorReport> report() const override {
    std::promise<CoordinatorReport> promise;
    std::future<CoordinatorReport> future = promise.get_future();
    mailbox_.post([this, promise = std::move(promise)]() mutable {
      promise.set_value({machine_.status(clock_.now()), news_.rounds(), news_.notable()});
    });
    if (future.wait_for(std::chrono::seconds(5)) != std::future_status::ready) {
      return timed_out("the coordinator's thread has not answered within 5 s [coordinator.busy]");
    }
    return future.get();
  }

  Status wait_until_empty(Duration limit) override { return members_.wait_until_empty(limit); }

 private:
  void loop() {
    while (!mailbox_.closed()) {
      const TimePoint deadline =
          std::min({machine_.next_deadline(), hub_.hub().next_deadline(), links_.next_deadline()});
      if (std::optional<LoopEvent> event = mailbox_.take(deadline)) handle(std::move(*event));
      if (clock_.now() >= machine_.next_deadline()) feed(protocol::Tick{});
      if (clock_.now() >= hub_.hub().next_deadline()) feed_hub(protocol::Tick{});
      if (clock_.now() >= links_.next_deadline()) links_.tick();
    }
  }

  [[nodiscard]] bool is_known(LinkId link) const { return machine_.knows(link) || hub_.hub().knows(link); }

  void on_accepted(LinkId link, const std::string& peer) {
    const std::string network = network_of(peer);
    const bool here = network == "127.0.0.1" || network == network_of("[::1]:1") || network == network_of(address_);
    dialler_quotas_.on_accepted(link, here ? std::string() : network);
    links_.on_accepted(link, peer);
  }

  // Called before a link is admitted. If the link exceeds a bound, one link is closed, and its messages are ignored.
  void make_room_for_link(LinkId link, const std::string& site) {
    if (links_.is_taken(link) || is_known(link)) return;
    const auto is_voter = [this](const std::string& name) { return machine_.is_voter(name); };
    const std::optional<LinkId> gone = links_.take_in(link, dialler_quotas_.network(link), site, is_voter);
    if (!gone) return;
    const std::string network = dialler_quotas_.network(*gone);
    links_.expel(*gone,
                 (network.empty() ? "this machine" : network) +
                     " has more than its share of the links here, and all links together may use a quarter of the "
                     "files that this process may open. If they are yours, raise its limit (ulimit -n) "
                     "[coordinator.links-full]");
  }

  // The name of the site that sends this message; empty if the message names none.
  [[nodiscard]] static std::string site_of(const wire::Message& message) {
    if (const auto* join = std::get_if<wire::Join>(&message)) return join->site;
    if (const auto* enter = std::get_if<wire::Enter>(&message)) return enter->sites[enter->site_of[enter->rank.value]];
    return {};
  }

  void closed(LinkClosed event) {
    const LinkId link = event.link;
    links_.closed(link);
    dialler_quotas_.closed(link);
    joins_.closed(link);
    hub_.closed(link);
    if (const auto tried = probes_.ended(link)) {
      probe();
      if (!event.why.ok() && !tried->answered) feed(protocol::Undialable{tried->member, event.why.message()});
      return;
    }
    for (const LinkId tried : probes_.member_gone(link)) transport_->close(tried);
    probe();
    if (hub_.hub().knows(link)) return feed_hub(protocol::Closed{link, std::move(event.why)});
    feed(protocol::Closed{link, std::move(event.why)});
    if (joins_.may_trim()) ::malloc_trim(0);
  }

  void handle(LoopEvent event) {
    if (auto* call = std::get_if<LoopCall>(&event)) return (*call)();
    if (const auto* connected = std::get_if<LinkConnected>(&event)) {  // a probe
      probes_.answered(connected->link);
      return transport_->close(connected->link);
    }
    if (auto* proved = std::get_if<LinkAuthenticated>(&event))
      return links_.on_authenticated(proved->link, std::move(proved->names));
    if (const auto* accepted = std::get_if<LinkAccepted>(&event)) return on_accepted(accepted->link, accepted->peer);
    if (auto* gone = std::get_if<LinkClosed>(&event)) return closed(std::move(*gone));
    if (const auto* sent = std::get_if<MessageSent>(&event)) return hub_.sent(sent->link, sent->token);
    auto* arrived = std::get_if<MessageArrived>(&event);
    if (arrived == nullptr || links_.has_left(arrived->link)) return;
    Result<wire::Message> message = wire::decode(arrived->message.head);
    if (!message.ok()) return links_.refuse(arrived->link, message.status().message());
    if (dialler_quotas_.may_ask(clock_.now(), arrived->link, *message)) {
      hear(arrived->link, std::move(*message), std::move(arrived->message));
    }
  }

  // `as`: the transport message that carried it.
  void hear(LinkId link, wire::Message message, TransportMessage as) {
    const bool joins = std::holds_alternative<wire::Join>(message);
    if (const std::string site = site_of(message); !site.empty()) {
      if (const std::string why = links_.difference(link, site); !why.empty()) {
        act(protocol::Send{link, wire::Refuse{why}});
        return links_.refuse(link, why);
      }
      make_room_for_link(link, joins ? site : std::string());
      if (links_.has_left(link)) return;
    }
    if (std::holds_alternative<wire::Enter>(message) || hub_.hub().knows(link)) {
      hub_.arrived(clock_.now(), link, std::move(message), std::move(as.payload), dialler_quotas_.network(link));
      return tell_all();
    }
    if (joins) make_room_for_join(link, held_bytes(std::get<wire::Join>(message), as.head.size()));
    if (!links_.has_left(link)) feed(protocol::Received{link, std::move(message)});
  }

  void make_room_for_join(LinkId link, std::size_t bytes) {
    const auto is_kept = [this](LinkId each) { return machine_.keeps_join_of(each); };
    for (const LinkId each : joins_.on_join(link, bytes, is_kept)) {
      links_.expel(each, "its Join is the largest, and the waiting Joins take more than " +
                             std::to_string(joins_.most() >> 20) + " MiB; it may come again [join.too-large-now]");
    }
  }

  void feed(const protocol::CoordinatorEvent& event) {
    for (const protocol::CoordinatorAction& action : machine_.step(clock_.now(), event)) {
      std::visit([this](const auto& each) { act(each); }, action);
    }
    tell_all();
  }

  void feed_hub(const protocol::HubEvent& event) {
    hub_.feed(clock_.now(), event);
    tell_all();
  }

  // After a step of one of the machines. A round and a call must not wait for each other.
  void tell_all() {
    const auto sites_of = [this](std::uint64_t world) { return machine_.sites_of(world); };
    if (auto calls = hub_.news_of_calls(machine_.waits_for_sites(), machine_.changes(), sites_of)) {
      feed(std::move(*calls));
    }
    if (!members_.may_have_changed(machine_.changes(), hub_.hub().changes())) return;
    std::vector<std::string> members = machine_.member_names();
    for (std::string& name : hub_.hub().present()) members.push_back(std::move(name));
    members_.set_members(std::move(members));
  }

  void act(const protocol::Send& action) { send({&action.link, 1}, action.message); }
  void act(const protocol::Broadcast& action) { send(action.links, action.message); }
  // If the message cannot be encoded, only the links that were to carry it are closed.
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
  void act(const protocol::CloseLink& action) { links_.close_link(action.link); }
  // Skips addresses on this machine: many routers do not let a host reach its own public address from within.
  void act(const protocol::ProbeAddress& action) {
    const auto host_of = [](const std::string& address) { return address.substr(0, address.rfind(':')); };
    if (!transport_->abilities().crosses_nat || host_of(action.address) == host_of(address_)) return;
    probes_.want(action.link, action.address);
    probe();
  }
  void probe() {
    while (const auto wanted = probes_.next()) {
      const LinkId dialled = transport_->connect(wanted->address, kProbeLimit);
      links_.leave(dialled);  // the probe only needed an answer
      probes_.begun(dialled, wanted->member);
    }
  }
  void act(const protocol::Note& action) { news_.record(clock_.now(), action); }

  SteadyClock clock_;
  std::string address_;
  mutable Mailbox mailbox_;
  protocol::Coordinator machine_;
  LinkAdmission links_;
  HubDriver hub_;
  DiallerQuotas dialler_quotas_;
  AddressProbes probes_;
  PendingJoins joins_;
  SwarmMembers members_;
  CoordinatorReporter news_;
  RateLimit unfit_{std::chrono::seconds(10)};
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
