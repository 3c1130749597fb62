#include "transport/ucx/engine/ucx_workers.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "transport/ucx/engine/ucx_parts.h"

namespace collab {
namespace {

constexpr unsigned kProgressBatch = 32;  // then commands and the handler get a turn
constexpr std::size_t kMostHeader = 1024;

}  // namespace

UcxWorkers::~UcxWorkers() {
  workers_.clear();
  if (context_ != nullptr) all_.api.cleanup(context_);
}

// Besides the listener, each worker listens at a port of its own choice on every interface that UCX uses. If the
// address to listen at is not the wildcard, this restricts UCX to that address's interfaces. A UCX_NET_DEVICES of the
// user takes precedence.
std::string UcxWorkers::net_devices() const {
  if (all_.options.listen.empty() || std::getenv("UCX_NET_DEVICES") != nullptr) return {};
  const Result<HostPort> place = parse_host_port(all_.options.listen);
  if (!place.ok()) return {};  // listen() will report the error
  const Result<SocketAddresses> addresses = resolve_name(*place, true);
  if (!addresses.ok() || is_any(addresses->front().storage)) return {};
  return interfaces_with(*addresses);
}

Status UcxWorkers::configure(ucp_config_t* config) const {
  const auto set = [&](const char* name, const std::string& value) {
    const ucs_status_t status = value.empty() ? UCS_OK : all_.api.config_modify(config, name, value.c_str());
    if (status == UCS_OK) return Status();
    return invalid_argument(std::string("UCX does not take ") + name + "=" + value + ": " + all_.reason(status) +
                            " [ucx.setting]");
  };
  COLLAB_RETURN_IF_ERROR(set("TLS", all_.options.transports));
  return set("NET_DEVICES", net_devices());
}

Status UcxWorkers::open() {
  std::optional<GuestEnvironment> guest(std::in_place);
  ucp_config_t* config = nullptr;
  ucs_status_t status = all_.api.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK)
    return internal_error("UCX cannot read its configuration: " + all_.reason(status) + " [ucx.configuration]");
  if (Status configured = configure(config); !configured.ok()) {
    all_.api.config_release(config);
    return configured;
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = all_.api.init_version(1, 13, &params, config, &context_);
  all_.api.config_release(config);
  if (status != UCS_OK)
    return unavailable("UCX cannot start (" + all_.api.path + "): " + all_.reason(status) + " [ucx.start]");

  guest.reset();
  if (all_.mailbox->fd() < 0) return internal_error("no eventfd could be made: too many open files? [ucx.no-eventfd]");
  return add(0).status();
}

Result<UcxWorkerPtr> UcxWorkers::add(std::uint64_t client_id) {
  auto worker = std::make_shared<UcxWorker>(all_.api);
  worker->client_id = client_id;
  COLLAB_RETURN_IF_ERROR(prepare(*worker));
  workers_.push_back(worker);
  return worker;
}

Status UcxWorkers::prepare(UcxWorker& worker) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_CLIENT_ID;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.client_id = worker.client_id;
  const GuestEnvironment guest;  // UCX reads the settings of its own transports here
  ucs_status_t status = all_.api.worker_create(context_, &params, &worker.handle);
  if (status != UCS_OK) return unavailable("UCX cannot open a worker: " + all_.reason(status) + " [ucx.worker]");
  if (status = all_.api.worker_get_efd(worker.handle, &worker.wake_fd); status != UCS_OK) {
    return unavailable("UCX cannot wake a thread that waits for it: " + all_.reason(status) + " [ucx.wake]");
  }
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  if (status = all_.api.worker_query(worker.handle, &attributes); status != UCS_OK) {
    return internal_error("UCX does not say how long a header may be: " + all_.reason(status) + " [ucx.header-limit]");
  }
  max_header_ = std::min<std::size_t>(attributes.max_am_header, kMostHeader);
  if (max_header_ < sizeof(Preamble))
    return unavailable("UCX carries no headers with active messages here [ucx.no-headers]");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kActiveMessage;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.arg = &all_.receiver;
  handler.cb = [](void* receiver, const void* header, std::size_t header_length, void* data, std::size_t length,
                  const ucp_am_recv_param_t* param) {
    return static_cast<UcxReceiver*>(receiver)->receive({static_cast<const std::byte*>(header), header_length}, data,
                                                        length, *param);
  };
  if (status = all_.api.worker_set_am_recv_handler(worker.handle, &handler); status != UCS_OK) {
    return internal_error("UCX does not take a handler for active messages: " + all_.reason(status) + " [ucx.handler]");
  }
  return {};
}

bool UcxWorkers::progress() {
  bool busy = false;
  for (const auto& worker : workers_) {
    for (unsigned i = 0; i < kProgressBatch && all_.api.worker_progress(worker->handle) != 0; ++i) busy = true;
  }
  // A worker that nothing refers to any more has no endpoint and no operation left.
  std::erase_if(workers_, [&](const auto& worker) { return worker != workers_.front() && worker.use_count() == 1; });
  return busy;
}

bool UcxWorkers::arm(std::vector<pollfd>& waits) {
  for (const auto& worker : workers_) {
    const ucs_status_t armed = all_.api.worker_arm(worker->handle);
    if (armed == UCS_ERR_BUSY) return false;
    COLLAB_CHECK(armed == UCS_OK, "UCX cannot wait for events: " + all_.reason(armed));
    waits.push_back({worker->wake_fd, POLLIN, 0});
  }
  return true;
}

void UcxWorkers::abandon() {
  for (const auto& worker : workers_) new UcxWorkerPtr(worker);
  context_ = nullptr;
}

}  // namespace collab
