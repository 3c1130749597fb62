#include "core/runtime/hub_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "core/runtime/payload_buffer.h"
#include "core/runtime/record_store.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

// Two dials to a hub that is gone, after a grace of silence, still leave time to find the next within two graces.
constexpr Duration kDialTimeout = std::chrono::seconds(10);
constexpr std::chrono::seconds kLeaveLimit{3};
constexpr std::chrono::seconds kEaseEvery{5};

[[nodiscard]] protocol::MeetingClientConfig machine_config(const MeetingSeat::Options& options) {
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

Result<std::unique_ptr<MeetingSeat>> MeetingSeat::enter(Options options, std::unique_ptr<Transport> transport) {
  if (options.hubs.empty()) return invalid_argument("a meeting needs the address of a coordinator, got none");
  // A hand-made world may have any names; the hub's answer to one that cannot travel would be an abort here.
  const Result<std::vector<std::byte>> fits = wire::try_encode(machine_config(options).self);
  if (!fits.ok()) return fits.status();
  std::unique_ptr<MeetingSeat> seat(new MeetingSeat(std::move(options), std::move(transport)));
  COLLAB_RETURN_IF_ERROR(seat->transport_->start(&seat->mailbox_));
  std::future<Status> entered = seat->entering_.emplace().get_future();
  seat->thread_ = std::thread([raw = seat.get()] { raw->loop(); });
  seat->mailbox_.post(LoopCall([raw = seat.get()] { raw->feed(protocol::MeetingBegin{}); }));
  COLLAB_RETURN_IF_ERROR(entered.get());  // the machine's join time-out bounds it
  return seat;
}

MeetingSeat::MeetingSeat(Options options, std::unique_ptr<Transport> transport)
    : hubs_(options.hubs),
      ranks_(options.site_of.size()),
      dial_timeout_(std::min<Duration>(kDialTimeout, options.config.link_grace / 4)),
      machine_(machine_config(options)),
      transport_(std::move(transport)) {}

MeetingSeat::~MeetingSeat() {
  mailbox_.close();
  if (thread_.joinable()) thread_.join();
  transport_.reset();
}

void MeetingSeat::open(protocol::OpenGroup group) {
  mailbox_.post(LoopCall([this, group = std::move(group)] { feed(group); }));
}

void MeetingSeat::close(GroupId group) {
  mailbox_.post(LoopCall([this, group] { feed(protocol::CloseGroup{group}); }));
}

void MeetingSeat::exchange(protocol::MeetingRequest request, Done done) {
  mailbox_.post(LoopCall([this, request = std::move(request), done = std::move(done)]() mutable {
    request.id = ++last_id_;
    exchanges_[request.id] = std::move(done);
    feed(request);
  }));
}

protocol::MeetingExchanged MeetingSeat::exchange(protocol::MeetingRequest request) {
  auto promise = std::make_shared<std::promise<protocol::MeetingExchanged>>();
  std::future<protocol::MeetingExchanged> future = promise->get_future();
  exchange(std::move(request),
           [promise](protocol::MeetingExchanged outcome) { promise->set_value(std::move(outcome)); });
  return future.get();  // the request's own time-out and the grace bound it
}

Result<std::uint32_t> MeetingSeat::seek(GroupId group, std::uint32_t tag, Duration timeout) {
  auto promise = std::make_shared<std::promise<Result<std::uint32_t>>>();
  std::future<Result<std::uint32_t>> future = promise->get_future();
  mailbox_.post(LoopCall([this, group, tag, timeout, promise] {
    const std::uint64_t id = ++last_id_;
    seeks_[id] = promise;
    feed(protocol::SeekSender{id, group, tag, timeout});
  }));
  return future.get();
}

void MeetingSeat::leave(const std::string& reason) {
  std::promise<void> promise;
  std::future<void> future = promise.get_future();
  mailbox_.post(LoopCall([this, reason, promise = std::move(promise)]() mutable {
    if (ended_) return promise.set_value();
    ended_ = cancelled("this rank has left its world's collectives");
    leaving_ = std::move(promise);
    feed(protocol::MeetingLeave{reason});
    if (!closing_ && leaving_) std::exchange(leaving_, std::nullopt)->set_value();
  }));
  if (future.wait_for(kLeaveLimit) != std::future_status::ready) log_debug("leaving the meeting took too long");
}

void MeetingSeat::loop() {
  while (!mailbox_.closed()) {
    if (std::optional<LoopEvent> event = mailbox_.take(machine_.next_deadline())) handle(std::move(*event));
    if (clock_.now() >= machine_.next_deadline()) feed(protocol::Tick{});
    if (clock_.now() < ease_at_) continue;
    pool_->ease();
    ease_at_ = clock_.now() + kEaseEvery;
  }
  feed(protocol::MeetingLeave{"its process ends"});
  if (entering_) std::exchange(entering_, std::nullopt)->set_value(cancelled("the seat was given up"));
  if (leaving_) std::exchange(leaving_, std::nullopt)->set_value();
}

void MeetingSeat::handle(LoopEvent event) {
  if (auto* call = std::get_if<LoopCall>(&event)) return (*call)();
  if (auto* arrived = std::get_if<MessageArrived>(&event)) {
    return on_message(arrived->link, std::move(arrived->message));
  }
  if (auto* connected = std::get_if<LinkConnected>(&event)) {
    if (dialling_ == connected->link) dialling_.reset();
    return feed(protocol::HubConnected{connected->link});
  }
  if (auto* closed = std::get_if<LinkClosed>(&event)) {
    if (closing_ == closed->link) {
      closing_.reset();
      if (leaving_) std::exchange(leaving_, std::nullopt)->set_value();
    }
    if (dialling_ != closed->link) return feed(protocol::Closed{closed->link, std::move(closed->why)});
    dialling_.reset();
    return feed(protocol::HubDialFailed{std::move(closed->why)});
  }
}

void MeetingSeat::on_message(LinkId link, TransportMessage message) {
  Result<wire::Message> decoded = wire::decode(message.head);
  if (!decoded.ok()) {
    log_warning("a message of the coordinator was refused and its link closed: " + decoded.status().message());
    transport_->close(link);
    return;
  }
  feed(protocol::MeetingReceived{link, std::move(*decoded), std::move(message.payload)});
}

void MeetingSeat::feed(const protocol::MeetingClientEvent& event) {
  for (const protocol::MeetingClientAction& action : machine_.step(clock_.now(), event)) {
    std::visit([this](const auto& each) { act(each); }, action);
  }
}

void MeetingSeat::act(const protocol::DialHub& action) {
  dialling_ = transport_->connect(hubs_[action.candidate], dial_timeout_);
}

void MeetingSeat::act(const protocol::MeetingSend& action) { transport_->send(action.link, message_of(action), 0); }

void MeetingSeat::act(const protocol::Hangup& action) {
  closing_ = action.link;
  transport_->close(action.link);
}

void MeetingSeat::act(const protocol::MeetingExchanged& action) {
  const auto found = exchanges_.find(action.id);
  if (found == exchanges_.end()) return;
  const Done done = std::move(found->second);
  exchanges_.erase(found);
  done(action);
}

void MeetingSeat::act(const protocol::SenderFound& action) {
  const auto found = seeks_.find(action.id);
  if (found == seeks_.end()) return;
  const auto promise = std::move(found->second);
  seeks_.erase(found);
  if (action.status.ok()) {
    promise->set_value(action.from);
  } else {
    promise->set_value(action.status);
  }
}

void MeetingSeat::act(const protocol::MeetingEntered&) {
  if (entering_) std::exchange(entering_, std::nullopt)->set_value({});
}

void MeetingSeat::act(const protocol::MeetingBroken& action) {
  ended_ = action.why;
  if (entering_) return std::exchange(entering_, std::nullopt)->set_value(action.why);
  log_warning("this rank's collectives with other sites have ended: " + action.why.message());
}

void MeetingSeat::act(const protocol::Note& action) { log_info(action.text); }

}  // namespace collab
