#include "transport/ucx/engine/ucx_engine.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <utility>

#include "core/base/log.h"

namespace collab {
namespace {

constexpr Duration kSpin = std::chrono::microseconds(20);        // looks for work this long before going to sleep
constexpr Duration kCheckEvery = std::chrono::milliseconds(10);  // of deadlines, under traffic
constexpr Duration kShutDownLimit = std::chrono::seconds(2);

}  // namespace

Result<std::unique_ptr<UcxEngine>> UcxEngine::make(const UcxOptions& options) {
  auto api = load_ucx(options.library_dir);
  if (!api.ok()) return api.status();
  std::unique_ptr<UcxEngine> engine(new UcxEngine(**api, options));
  COLLAB_RETURN_IF_ERROR(engine->all_.workers.open());
  return engine;
}

UcxEngine::UcxEngine(const UcxApi& api, const UcxOptions& options) : pid_(getpid()), all_(api, options) {}

UcxEngine::~UcxEngine() {
  stop_ = true;
  if (thread_.joinable()) {
    all_.mailbox->post([] {});  // wakes the thread
    thread_.join();
  }
  all_.mailbox->close();
}

bool UcxEngine::in_child() const { return getpid() != pid_; }

Status UcxEngine::start(TransportHandler* handler) {
  if (all_.calls.started()) return invalid_argument("the ucx transport was started twice [ucx.started-twice]");
  all_.calls.start(handler);
  thread_ = std::thread([this] { run(); });
  return {};
}

Result<std::string> UcxEngine::listen(const std::string& address) {
  if (in_child())
    return unavailable("the ucx transport belongs to the process that made it, not to its fork [ucx.forked]");
  if (!all_.calls.started()) return invalid_argument("the ucx transport listens only after start() [ucx.not-started]");
  if (std::this_thread::get_id() == thread_.get_id()) return all_.acceptor.listen(address);
  auto answer = std::make_shared<std::promise<Result<std::string>>>();
  auto future = answer->get_future();
  all_.mailbox->post([this, answer, address] { answer->set_value(all_.acceptor.listen(address)); });
  return future.get();
}

LinkId UcxEngine::connect(const std::string& address, Duration timeout) {
  const LinkId id = all_.links.draw_id();
  if (in_child()) return id;
  const TimePoint deadline = all_.now() + std::max(timeout, Duration(1));
  all_.mailbox->post([this, id, address, deadline] { all_.dialler.dial(id, address, deadline); });
  return id;
}

void UcxEngine::send(LinkId id, TransportMessage message, std::uint64_t token) {
  if (in_child()) return;
  all_.mailbox->post(
      [this, id, message = std::move(message), token]() mutable { all_.sender.send(id, std::move(message), token); });
}

void UcxEngine::close(LinkId id) {
  if (in_child()) return;
  all_.mailbox->post([this, id] { all_.links.close(id); });
}

void UcxEngine::run() {
  TimePoint last_busy = all_.now();
  while (!stop_) {
    bool busy = run_commands();
    busy |= all_.workers.progress();
    busy |= handle_progress();
    const TimePoint time = all_.now();
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
  all_.mailbox->take(running_);
  for (auto& command : running_) command();
  const bool any = !running_.empty();
  running_.clear();
  return any;
}

bool UcxEngine::handle_progress() {
  bool busy = all_.acceptor.accept_requests();
  busy |= all_.receiver.handle_arrivals();
  busy |= all_.endpoints.handle_failures();
  busy |= all_.sender.pump_due();
  while (!stop_ && all_.calls.deliver()) busy = true;
  return busy;
}

bool UcxEngine::sleep() {
  std::vector<pollfd> waits{{all_.mailbox->fd(), POLLIN, 0}};
  if (!all_.workers.arm(waits)) return false;
  if (!all_.mailbox->fall_asleep()) return true;
  const TimePoint deadline = std::min(all_.links.next_deadline(), all_.endpoints.next_deadline());
  int timeout_ms = -1;
  if (deadline != kNever) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - all_.now()).count();
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  }
  ::poll(waits.data(), waits.size(), timeout_ms);
  all_.mailbox->wake_up();
  next_check_ = all_.now();
  return true;
}

void UcxEngine::check_deadlines() {
  const TimePoint time = all_.now();
  next_check_ = time + kCheckEvery;
  all_.links.end_late(time);
  all_.endpoints.close_silent(time);
  handle_progress();
}

// Delivers nothing more. Cancels operations and releases their buffers before the worker ends.
void UcxEngine::shut_down() {
  all_.acceptor.stop();
  all_.endpoints.close_all();
  all_.links.drop();
  const TimePoint limit = all_.now() + kShutDownLimit;
  all_.receiver.drop_arrivals();
  all_.endpoints.drop_failures();
  all_.calls.drop();
  all_.mailbox->close();
  while (all_.workers.of_links() > 0 && all_.now() < limit) {
    if (!all_.workers.progress()) sched_yield();
  }
  if (all_.workers.of_links() > 0) {
    log_warning(
        "ucx: " + std::to_string(all_.workers.of_links()) +
        " links had operations that could not be cancelled; their memory is left to the system [ucx.not-cancelled]");
    all_.workers.abandon();
  }
}

}  // namespace collab
