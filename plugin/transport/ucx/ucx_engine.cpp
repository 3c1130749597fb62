#include "transport/ucx/ucx_engine.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <future>

#include "core/base/log.h"

namespace collab {
namespace {

constexpr Duration kSpin = std::chrono::microseconds(20);        // looked for more before going to sleep
constexpr Duration kCheckEvery = std::chrono::milliseconds(10);  // deadlines, while there is traffic
constexpr Duration kShutDownLimit = std::chrono::seconds(2);
constexpr unsigned kProgressBatch = 32;  // then commands and the handler have a turn

}  // namespace

Result<std::unique_ptr<UcxEngine>> UcxEngine::make(const UcxOptions& options) {
  auto api = load_ucx(options.library_dir);
  if (!api.ok()) return api.status();
  std::unique_ptr<UcxEngine> engine(new UcxEngine(**api, options));
  COLLAB_RETURN_IF_ERROR(engine->open_context());
  return engine;
}

UcxEngine::UcxEngine(const UcxApi& api, const UcxOptions& options)
    : api_(api),
      options_(options),
      pid_(getpid()),
      pool_(options.pool != nullptr ? options.pool : make_buffer_pool()) {}

UcxEngine::~UcxEngine() {
  stop_ = true;
  if (thread_.joinable()) {
    mailbox_->post([] {});  // wakes it
    thread_.join();
  }
  mailbox_->close();
  workers_.clear();
  if (context_ != nullptr) api_.cleanup(context_);
}

bool UcxEngine::in_child() const { return getpid() != pid_; }

std::string UcxEngine::reason(ucs_status_t status) const { return api_.status_string(status); }

// Beside the listener, each worker listens at a port of its own choice of every interface that UCX uses. Where
// the address to listen at is not all of them, UCX is given no other. What the user has named in UCX_NET_DEVICES stays.
std::string UcxEngine::net_devices() const {
  if (options_.listen.empty() || std::getenv("UCX_NET_DEVICES") != nullptr) return {};
  const Result<HostPort> place = parse_host_port(options_.listen);
  if (!place.ok()) return {};  // listen() says what is wrong
  const Result<SocketAddresses> addresses = resolve_name(*place, true);
  if (!addresses.ok() || is_any(addresses->front().storage)) return {};
  return interfaces_with(*addresses);
}

Status UcxEngine::configure(ucp_config_t* config) const {
  const auto set = [&](const char* name, const std::string& value) {
    const ucs_status_t status = value.empty() ? UCS_OK : api_.config_modify(config, name, value.c_str());
    if (status == UCS_OK) return Status();
    return invalid_argument(std::string("UCX does not take ") + name + "=" + value + ": " + reason(status) +
                            " [ucx.setting]");
  };
  COLLAB_RETURN_IF_ERROR(set("TLS", options_.transports));
  return set("NET_DEVICES", net_devices());
}

Status UcxEngine::open_context() {
  std::optional<GuestEnvironment> guest(std::in_place);
  ucp_config_t* config = nullptr;
  ucs_status_t status = api_.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK)
    return internal_error("UCX cannot read its configuration: " + reason(status) + " [ucx.configuration]");
  if (const Status configured = configure(config); !configured.ok()) {
    api_.config_release(config);
    return configured;
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = api_.init_version(1, 13, &params, config, &context_);
  api_.config_release(config);
  if (status != UCS_OK) return unavailable("UCX cannot start (" + api_.path + "): " + reason(status) + " [ucx.start]");

  guest.reset();
  if (mailbox_->fd() < 0) return internal_error("no eventfd could be made: too many open files? [ucx.no-eventfd]");
  const auto listening = open_worker(0);
  if (listening.ok()) workers_.push_back(*listening);
  return listening.status();
}

Result<UcxWorkerPtr> UcxEngine::open_worker(std::uint64_t client_id) {
  auto worker = std::make_shared<UcxWorker>(api_);
  worker->client_id = client_id;
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_CLIENT_ID;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.client_id = client_id;
  const GuestEnvironment guest;  // the settings of the single transports are read here
  ucs_status_t status = api_.worker_create(context_, &params, &worker->handle);
  if (status != UCS_OK) return unavailable("UCX cannot open a worker: " + reason(status) + " [ucx.worker]");
  if (status = api_.worker_get_efd(worker->handle, &worker->wake_fd); status != UCS_OK) {
    return unavailable("UCX cannot wake a thread that waits for it: " + reason(status) + " [ucx.wake]");
  }
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  if (status = api_.worker_query(worker->handle, &attributes); status != UCS_OK) {
    return internal_error("UCX does not say how long a header may be: " + reason(status) + " [ucx.header-limit]");
  }
  max_header_ = std::min<std::size_t>(attributes.max_am_header, 1024);
  if (max_header_ < sizeof(Preamble))
    return unavailable("UCX carries no headers with active messages here [ucx.no-headers]");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kActiveMessage;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.arg = this;
  handler.cb = [](void* self, const void* header, std::size_t header_length, void* data, std::size_t length,
                  const ucp_am_recv_param_t* param) {
    return static_cast<UcxEngine*>(self)->receive({static_cast<const std::byte*>(header), header_length}, data, length,
                                                  *param);
  };
  if (status = api_.worker_set_am_recv_handler(worker->handle, &handler); status != UCS_OK) {
    return internal_error("UCX does not take a handler for active messages: " + reason(status) + " [ucx.handler]");
  }
  return worker;
}

Status UcxEngine::start(TransportHandler* handler) {
  if (handler_ != nullptr) return invalid_argument("the ucx transport was started twice [ucx.started-twice]");
  handler_ = handler;
  thread_ = std::thread([this] { run(); });
  return {};
}

Result<std::string> UcxEngine::listen(const std::string& address) {
  if (in_child())
    return unavailable("the ucx transport belongs to the process that made it, not to its fork [ucx.forked]");
  if (handler_ == nullptr) return invalid_argument("the ucx transport listens only after start() [ucx.not-started]");
  if (std::this_thread::get_id() == thread_.get_id()) return listen_here(address);
  auto answer = std::make_shared<std::promise<Result<std::string>>>();
  auto future = answer->get_future();
  mailbox_->post([this, answer, address] { answer->set_value(listen_here(address)); });
  return future.get();
}

LinkId UcxEngine::connect(const std::string& address, Duration timeout) {
  const LinkId id(next_link_.fetch_add(1));
  if (in_child()) return id;
  const TimePoint deadline = now() + std::max(timeout, Duration(1));
  mailbox_->post([this, id, address, deadline] { dial(id, address, deadline); });
  return id;
}

void UcxEngine::send(LinkId id, TransportMessage message, std::uint64_t token) {
  if (in_child()) return;
  mailbox_->post([this, id, message = std::move(message), token]() mutable {
    UcxLink* link = find(id);
    if (link == nullptr || link->closing) return;
    UcxLane& lane = link->lane(message.lane);
    lane.queue.push_back({std::move(message), token});
    to_pump_.push_back(id);
  });
}

void UcxEngine::close(LinkId id) {
  if (in_child()) return;
  mailbox_->post([this, id] {
    if (UcxLink* link = find(id); link != nullptr && !link->closing) begin_close(*link);
  });
}

void UcxEngine::run() {
  TimePoint last_busy = now();
  while (!stop_) {
    bool busy = run_commands();
    busy |= progress();
    busy |= handle_progress();
    const TimePoint time = now();
    if (time >= next_check_) check_deadlines();
    if (busy) {
      last_busy = time;
    } else if (time - last_busy < kSpin || !sleep()) {
      sched_yield();  // the peer may need this processor to make room for us
    }
  }
  shut_down();
}

bool UcxEngine::run_commands() {
  mailbox_->take(commands_);
  for (auto& command : commands_) command();
  const bool any = !commands_.empty();
  commands_.clear();
  return any;
}

bool UcxEngine::progress() {
  bool busy = false;
  for (const auto& worker : workers_) {
    for (unsigned i = 0; i < kProgressBatch && api_.worker_progress(worker->handle) != 0; ++i) busy = true;
  }
  // A worker that nothing refers to any more has no endpoint and no operation left.
  std::erase_if(workers_, [&](const auto& worker) { return worker != workers_.front() && worker.use_count() == 1; });
  return busy;
}

bool UcxEngine::handle_progress() {
  bool busy = false;
  for (auto* request : std::exchange(requests_, {})) {
    accept(request);
    busy = true;
  }
  for (; !arrivals_.empty(); busy = true) {
    Arrival arrival = std::move(arrivals_.front());
    arrivals_.pop_front();
    arrived(std::move(arrival));
  }
  for (auto& [connection, why] : std::exchange(failures_, {})) {
    fail_connection(connection, std::move(why));
    busy = true;
  }
  for (const LinkId id : std::exchange(to_pump_, {})) {
    if (UcxLink* link = find(id); link != nullptr) pump(*link);
    busy = true;
  }
  for (; !events_.empty() && !stop_; busy = true) {
    Event event = std::move(events_.front());
    events_.pop_front();
    deliver(std::move(event));
  }
  return busy;
}

void UcxEngine::deliver(Event event) {
  switch (event.kind) {
    case Event::Kind::kAccepted: handler_->on_accepted(event.link, event.peer); return;
    case Event::Kind::kConnected: handler_->on_connected(event.link); return;
    case Event::Kind::kMessage: handler_->on_message(event.link, std::move(event.message)); return;
    case Event::Kind::kSent: handler_->on_sent(event.link, event.token); return;
    case Event::Kind::kClosed: handler_->on_closed(event.link, std::move(event.why)); return;
  }
}

// False when UCX has work that no event will announce, such as a full queue of a peer in shared memory.
bool UcxEngine::sleep() {
  std::vector<pollfd> waits{{mailbox_->fd(), POLLIN, 0}};
  for (const auto& worker : workers_) {
    const ucs_status_t armed = api_.worker_arm(worker->handle);
    if (armed == UCS_ERR_BUSY) return false;
    COLLAB_CHECK(armed == UCS_OK, "UCX cannot wait for events: " + reason(armed));
    waits.push_back({worker->wake_fd, POLLIN, 0});
  }
  if (!mailbox_->fall_asleep()) return true;
  const TimePoint deadline = next_deadline();
  int timeout_ms = -1;
  if (deadline != kNever) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  }
  ::poll(waits.data(), waits.size(), timeout_ms);
  mailbox_->wake_up();
  next_check_ = now();
  return true;
}

TimePoint UcxEngine::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [id, link] : links_) next = std::min(next, link.deadline);
  for (const auto& [endpoint, connection] : connections_) next = std::min(next, connection->deadline);
  return next;
}

void UcxEngine::check_deadlines() {
  const TimePoint time = now();
  next_check_ = time + kCheckEvery;
  std::vector<LinkId> late;
  for (const auto& [id, link] : links_) {
    if (link.deadline <= time) late.push_back(id);
  }
  for (const LinkId id : late) {
    UcxLink& link = *find(id);
    end_link(link, timed_out(link.state == UcxLink::State::kOpen
                                 ? "closing: " + link.peer + " did not take all that was sent [ucx.not-delivered]"
                                 : "no connection to " + link.peer + " within the time allowed [ucx.no-answer]"));
  }
  std::vector<UcxConnectionPtr> silent;
  for (const auto& [endpoint, connection] : connections_) {
    if (connection->deadline <= time) silent.push_back(connection);
  }
  for (const auto& connection : silent) close_connection(connection);
  handle_progress();
}

// Nothing is delivered any more: operations are cancelled, and their buffers let go, before the worker ends.
void UcxEngine::shut_down() {
  for (auto* listener : listeners_) api_.listener_destroy(listener);
  for (const auto& [endpoint, connection] : std::unordered_map(connections_)) close_connection(connection);
  links_.clear();
  const TimePoint limit = now() + kShutDownLimit;
  requests_.clear();
  arrivals_.clear();
  failures_.clear();
  events_.clear();
  mailbox_->close();
  while (workers_.size() > 1 && now() < limit) {
    if (!progress()) sched_yield();
  }
  if (workers_.size() > 1) {
    log_warning(
        "ucx: " + std::to_string(workers_.size() - 1) +
        " links had operations that could not be cancelled; their memory is left to the system [ucx.not-cancelled]");
    for (const auto& worker : workers_) new UcxWorkerPtr(worker);
    context_ = nullptr;
  }
}

}  // namespace collab
