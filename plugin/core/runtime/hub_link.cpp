#include "core/runtime/hub_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "core/runtime/data/payload_buffer.h"
#include "core/runtime/storage/record_store.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

// Two dials to a hub that is gone, after a grace of silence, still leave time to find the next within two graces.
constexpr Duration kHubDialTimeout = std::chrono::seconds(10);
constexpr std::chrono::seconds kLeaveLimit{3};
constexpr std::chrono::seconds kEaseEvery{5};

[[nodiscard]] protocol::HubClientConfig machine_config(const HubLink::Options& options) {
  return {.self = {.swarm = options.config.run,
                   .world = options.world,
                   .rank = RankId(options.rank),
                   .sites = options.sites,
                   .site_of = options.site_of,
                   .candidates = 1,
                   .returning = false,
                   .acceptor = fresh_acceptor()},
          .hubs = options.hubs,
          .heartbeat = options.config.heartbeat,
          .link_grace = options.config.link_grace,
          .join_timeout = options.config.join_timeout};
}

}  // namespace

Result<std::unique_ptr<HubLink>> HubLink::enter(const Options& options, std::unique_ptr<Transport> transport) {
  if (options.hubs.empty())
    return invalid_argument("collectives between sites need the address of a coordinator, got none [hub.no-address]");
  // A world made by hand may have any names. Encoding one that does not fit a message would abort.
  const Result<std::vector<std::byte>> fits = wire::try_encode(machine_config(options).self);
  if (!fits.ok()) return fits.status();
  std::unique_ptr<HubLink> hub_link(new HubLink(options, std::move(transport)));
  COLLAB_RETURN_IF_ERROR(hub_link->transport_->start(&hub_link->mailbox_));
  std::future<Status> entered = hub_link->calls_.enters();
  hub_link->thread_ = std::thread([raw = hub_link.get()] { raw->loop(); });
  hub_link->mailbox_.post([raw = hub_link.get()] { raw->feed(protocol::HubBegin{}); });
  COLLAB_RETURN_IF_ERROR(entered.get());  // the machine's join time-out bounds it
  return hub_link;
}

HubLink::HubLink(const Options& options, std::unique_ptr<Transport> transport)
    : hubs_(options.hubs),
      ranks_(options.site_of.size()),
      dial_timeout_(std::min<Duration>(kHubDialTimeout, options.config.link_grace / 4)),
      machine_(machine_config(options)),
      transport_(std::move(transport)) {}

HubLink::~HubLink() {
  mailbox_.close();
  if (thread_.joinable()) thread_.join();
  transport_.reset();
}

void HubLink::open(protocol::OpenGroup group) {
  mailbox_.post([this, group = std::move(group)] { feed(group); });
}

void HubLink::close(GroupId group) {
  mailbox_.post([this, group] { feed(protocol::CloseGroup{group}); });
}

void HubLink::exchange(protocol::HubRequest request, Done done) {
  mailbox_.post([this, request = std::move(request), done = std::move(done)]() mutable {
    request.id = calls_.exchanges(std::move(done));
    feed(request);
  });
}

protocol::HubExchanged HubLink::exchange(protocol::HubRequest request) {
  auto promise = std::make_shared<std::promise<protocol::HubExchanged>>();
  std::future<protocol::HubExchanged> future = promise->get_future();
  exchange(std::move(request), [promise](protocol::HubExchanged result) { promise->set_value(std::move(result)); });
  return future.get();  // the request's own time-out and the grace bound it
}

Result<std::uint32_t> HubLink::resolve(GroupId group, std::uint32_t tag, Duration timeout) {
  std::promise<Result<std::uint32_t>> promise;
  std::future<Result<std::uint32_t>> future = promise.get_future();
  mailbox_.post([this, group, tag, timeout, promise = std::move(promise)]() mutable {
    feed(protocol::ResolveSender{calls_.resolves(std::move(promise)), group, tag, timeout});
  });
  return future.get();
}

void HubLink::leave(const std::string& reason) {
  std::promise<void> promise;
  std::future<void> future = promise.get_future();
  mailbox_.post([this, reason, promise = std::move(promise)]() mutable {
    if (!calls_.leaves(std::move(promise))) return;
    feed(protocol::HubLeave{reason});
    if (!closing_) calls_.left();
  });
  if (future.wait_for(kLeaveLimit) != std::future_status::ready) log_debug("leaving the collective hub took too long");
}

void HubLink::loop() {
  while (!mailbox_.closed()) {
    if (std::optional<LoopEvent> event = mailbox_.take(machine_.next_deadline())) handle(std::move(*event));
    if (clock_.now() >= machine_.next_deadline()) feed(protocol::Tick{});
    if (clock_.now() < trim_at_) continue;
    pool_->trim_idle();
    trim_at_ = clock_.now() + kEaseEvery;
  }
  feed(protocol::HubLeave{"its process ends"});
  calls_.broken(cancelled("the link to the hub was given up before it let this rank in [hub.entry-given-up]"));
  calls_.left();
}

void HubLink::handle(LoopEvent event) {
  if (auto* call = std::get_if<LoopCall>(&event)) return (*call)();
  if (auto* arrived = std::get_if<MessageArrived>(&event)) {
    return on_message(arrived->link, std::move(arrived->message));
  }
  if (auto* connected = std::get_if<LinkConnected>(&event)) {
    if (dialing_ == connected->link) dialing_.reset();
    return feed(protocol::HubConnected{connected->link});
  }
  if (auto* closed = std::get_if<LinkClosed>(&event)) {
    if (closing_ == closed->link) {
      closing_.reset();
      calls_.left();
    }
    if (dialing_ != closed->link) return feed(protocol::Closed{closed->link, std::move(closed->why)});
    dialing_.reset();
    return feed(protocol::HubDialFailed{std::move(closed->why)});
  }
}

void HubLink::on_message(LinkId link, TransportMessage message) {
  Result<wire::Message> decoded = wire::decode(message.head);
  if (!decoded.ok()) {
    log_limited("a message of the coordinator was refused and its link closed: " + decoded.status().message() +
                " [hub.bad-message]");
    transport_->close(link);
    return;
  }
  feed(protocol::HubReceived{link, std::move(*decoded), std::move(message.payload)});
}

void HubLink::feed(const protocol::HubClientEvent& event) {
  for (const protocol::HubClientAction& action : machine_.step(clock_.now(), event)) {
    std::visit([this](const auto& each) { act(each); }, action);
  }
}

void HubLink::act(const protocol::DialHub& action) {
  dialing_ = transport_->connect(hubs_[action.candidate], dial_timeout_);
}

void HubLink::act(const protocol::HubSend& action) {
  Result<std::vector<std::byte>> head = wire::try_encode(action.message);
  if (head.ok()) return transport_->send(action.link, message_of(action, std::move(*head)), 0);
  feed(protocol::HubMessageTooLarge{invalid_argument(head.status().message() + " [hub.message-unfit]")});
}

void HubLink::act(const protocol::CloseLink& action) {
  closing_ = action.link;
  transport_->close(action.link);
}

void HubLink::act(const protocol::HubExchanged& action) { calls_.exchanged(action); }

void HubLink::act(const protocol::SenderResolved& action) { calls_.resolved(action); }

void HubLink::act(const protocol::HubEntered&) { calls_.entered(); }

void HubLink::act(const protocol::HubBroken& action) {
  if (calls_.broken(action.why)) return;
  log_warning("this rank's collectives with other sites have ended: " + action.why.message() + " [hub.ended]");
}

void HubLink::act(const protocol::Note& action) { log_limited(action.text); }

void HubLink::log_limited(const std::string& line) {
  if (const auto told = told_.allow(clock_.now(), line)) log_warning(*told);
}

}  // namespace collab
