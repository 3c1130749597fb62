#include "transport/ucx/engine/ucx_sender.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "transport/ucx/engine/ucx_parts.h"

namespace collab {
namespace {

constexpr std::size_t kRendezvousBytes = std::size_t{32} << 10;       // smaller payloads are copied through buffers
constexpr std::size_t kConnectionBytes = std::size_t{16} << 20;       // most bytes in flight, or one message
constexpr std::size_t kSharedConnectionBytes = std::size_t{4} << 20;  // when control shares it with data
constexpr std::size_t kConnectionMessages = 256;

// The first connection for control; for data, the one of the others with the least in flight. Null: no room.
UcxConnectionPtr choose_connection(const UcxLink::Connections& all, Lane lane) {
  const bool alone = all.size() == 1;
  UcxConnectionPtr best = all.front();
  if (lane == Lane::kData && !alone) {
    best = *std::min_element(all.begin() + 1, all.end(),
                             [](const auto& a, const auto& b) { return a->bytes_in_flight() < b->bytes_in_flight(); });
  }
  const std::size_t limit = lane == Lane::kData && alone ? kSharedConnectionBytes : kConnectionBytes;
  const bool room = best->bytes_in_flight() < limit && best->messages_in_flight() < kConnectionMessages;
  return room ? best : nullptr;
}

}  // namespace

// An active message on its way out.
struct UcxSender::Operation {
  UcxSender* sender = nullptr;
  UcxConnectionPtr connection;
  std::vector<std::byte> header;  // the preamble, and the head if it is small
  TransportMessage message;
  std::uint64_t token = 0;
  std::size_t bytes = 0;
  std::array<ucp_dt_iov_t, 2> parts{};
};

void UcxSender::send(LinkId id, TransportMessage message, std::uint64_t token) {
  UcxLink* link = all_.links.find(id);
  if (link == nullptr || link->closing.begun()) return;
  auto& lane = link->lane(message.lane);
  lane.push(std::move(message), token);
  pump_soon(id);
}

bool UcxSender::pump_due() {
  const auto due = std::exchange(due_, {});
  for (const LinkId id : due) {
    if (UcxLink* link = all_.links.find(id); link != nullptr) pump(*link);
  }
  return !due.empty();
}

// Sends as much as the windows allow, control first; if the link is closing, sends the bye last.
void UcxSender::pump(UcxLink& link) {
  if (!link.open()) return;
  for (const Lane which : {Lane::kControl, Lane::kData}) {
    const UcxLane& lane = link.lane(which);
    while (lane.waits() && lane.has_room()) {
      auto connection = choose_connection(link.connections(), which);
      if (connection == nullptr) break;
      send_next(link, which, std::move(connection));
    }
  }
  if (link.closing.may_say_bye() && !link.lanes[0].waits() && !link.lanes[1].waits()) {
    link.closing.mark_bye_sent();
    Preamble bye;
    bye.kind = Preamble::Kind::kBye;
    bye.first = link.lanes[0].sent();
    bye.second = link.lanes[1].sent();
    send(link.control(), bye);
  }
}

void UcxSender::send_next(UcxLink& link, Lane which, UcxConnectionPtr connection) {
  UcxLane& lane = link.lane(which);
  Preamble preamble;
  preamble.lane = which;
  preamble.first = lane.sent();
  UcxLane::Outgoing outgoing = lane.next();
  auto operation = std::make_unique<Operation>();
  operation->sender = this;
  operation->connection = std::move(connection);
  operation->message = std::move(outgoing.message);
  operation->token = outgoing.token;
  operation->bytes = operation->message.bytes();
  const auto& head = operation->message.head;
  preamble.head_bytes = static_cast<std::uint32_t>(head.size());
  preamble.payload_bytes = static_cast<std::uint32_t>(operation->bytes - head.size());
  const bool head_fits = sizeof(preamble) + head.size() <= all_.workers.max_header();
  auto& header = operation->header;
  header.resize(sizeof(preamble) + (head_fits ? head.size() : 0));
  std::memcpy(header.data(), &preamble, sizeof(preamble));
  if (head_fits && !head.empty()) std::memcpy(header.data() + sizeof(preamble), head.data(), head.size());
  submit(std::move(operation));
}

void UcxSender::send(const UcxConnectionPtr& connection, const Preamble& preamble) {
  if (connection->closed()) return;
  auto operation = std::make_unique<Operation>();
  operation->sender = this;
  operation->connection = connection;
  operation->header.resize(sizeof(preamble));
  std::memcpy(operation->header.data(), &preamble, sizeof(preamble));
  submit(std::move(operation));
}

void UcxSender::submit(std::unique_ptr<Operation> operation) {
  operation->connection->begin(operation->bytes);
  auto& message = operation->message;
  auto payload = message.payload != nullptr ? message.payload->bytes() : std::span<std::byte>();
  const bool head_in_header = operation->header.size() > sizeof(Preamble) || message.head.empty();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.user_data = operation.get();
  param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    std::unique_ptr<Operation> done(static_cast<Operation*>(user_data));
    UcxSender& sender = *done->sender;
    sender.all_.api.request_free(request);
    sender.sent(std::move(done), status);
  };
  const void* data = payload.data();
  std::size_t count = payload.size();
  if (!head_in_header) {
    operation->parts = {{{message.head.data(), message.head.size()}, {payload.data(), payload.size()}}};
    if (payload.empty()) {
      data = message.head.data();
      count = message.head.size();
    } else {
      param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
      param.datatype = ucp_dt_make_iov();
      data = operation->parts.data();
      count = operation->parts.size();
    }
  }
  const std::size_t bytes = payload.size() + (head_in_header ? 0 : message.head.size());
  param.flags = UCP_AM_SEND_FLAG_REPLY | (bytes >= kRendezvousBytes ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER);
  Operation* raw = operation.release();  // UCX's callback owns it from here on
  const ucs_status_ptr_t request = all_.api.am_send_nbx(raw->connection->endpoint(), kActiveMessage, raw->header.data(),
                                                        raw->header.size(), data, count, &param);
  if (UCS_PTR_IS_PTR(request)) return;
  sent(std::unique_ptr<Operation>(raw), UCS_PTR_RAW_STATUS(request));
}

void UcxSender::sent(std::unique_ptr<Operation> operation, ucs_status_t status) {
  UcxConnection& connection = *operation->connection;
  connection.end(operation->bytes);
  UcxLink* link = all_.links.find(connection.link());
  if (link == nullptr || connection.closed()) return;
  if (status != UCS_OK) {
    all_.endpoints.note_failure(operation->connection, unavailable(all_.reason(status)));
    return;
  }
  if (operation->token != 0) all_.calls.sent(link->id(), operation->token);
  if (operation->bytes != 0) {
    link->go_on(all_.now());
    pump_soon(link->id());
  }
}

}  // namespace collab
