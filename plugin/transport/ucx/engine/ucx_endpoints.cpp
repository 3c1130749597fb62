#include "transport/ucx/engine/ucx_endpoints.h"

#include <algorithm>

#include "transport/ucx/engine/ucx_parts.h"

namespace collab {

Result<UcxConnectionPtr> UcxEndpoints::open(const UcxWorkerPtr& worker, ucp_ep_params_t params, std::string peer) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = this;
  params.err_handler.cb = [](void* self, ucp_ep_h endpoint, ucs_status_t status) {
    auto& endpoints = *static_cast<UcxEndpoints*>(self);
    const UcxConnectionPtr failed = endpoints.find(endpoint);
    if (failed != nullptr) endpoints.note_failure(failed, unavailable(endpoints.all_.reason(status)));
  };
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = all_.api.ep_create(worker->handle, &params, &endpoint);
  if (status != UCS_OK) return unavailable(all_.reason(status));
  auto connection = std::make_shared<UcxConnection>(worker, endpoint, std::move(peer));
  connections_.emplace(endpoint, connection);
  return connection;
}

void UcxEndpoints::close(const UcxConnectionPtr& connection) {
  if (connection->closed()) return;
  const ucp_ep_h endpoint = connection->take_endpoint();
  connections_.erase(endpoint);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  auto worker = std::make_unique<UcxWorkerPtr>(connection->worker());  // keeps the worker until the close is done
  param.user_data = worker.get();
  param.cb.send = [](void* request, ucs_status_t, void* user_data) {
    const std::unique_ptr<UcxWorkerPtr> done(static_cast<UcxWorkerPtr*>(user_data));
    (*done)->api.request_free(request);
  };
  if (UCS_PTR_IS_PTR(all_.api.ep_close_nbx(endpoint, &param))) (void)worker.release();
}

void UcxEndpoints::close_all() {
  for (const auto& [endpoint, connection] : std::unordered_map(connections_)) close(connection);
}

bool UcxEndpoints::handle_failures() {
  auto failures = std::exchange(failures_, {});
  for (const auto& [connection, why] : failures) {
    if (!connection->closed()) all_.links.connection_failed(connection, why);  // otherwise already handled
  }
  return !failures.empty();
}

UcxConnectionPtr UcxEndpoints::find(ucp_ep_h endpoint) const {
  const auto found = connections_.find(endpoint);
  return found != connections_.end() ? found->second : nullptr;
}

std::size_t UcxEndpoints::strangers() const {
  return static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(),
                                                [](const auto& entry) { return entry.second->stranger(); }));
}

UcxWorkerPtr UcxEndpoints::accepted_worker(std::uint64_t client_id) const {
  for (const auto& [endpoint, connection] : connections_) {
    const bool accepted = connection->stranger() || !all_.links.find(connection->link())->dialled();
    if (accepted && connection->worker()->client_id == client_id) return connection->worker();
  }
  return nullptr;
}

TimePoint UcxEndpoints::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [endpoint, connection] : connections_) next = std::min(next, connection->deadline());
  return next;
}

void UcxEndpoints::close_silent(TimePoint now) {
  std::vector<UcxConnectionPtr> silent;
  for (const auto& [endpoint, connection] : connections_) {
    if (connection->deadline() <= now) silent.push_back(connection);
  }
  for (const auto& connection : silent) close(connection);
}

}  // namespace collab
