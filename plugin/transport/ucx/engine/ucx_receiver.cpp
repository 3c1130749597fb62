#include "transport/ucx/engine/ucx_receiver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/ucx/engine/ucx_parts.h"

namespace collab {
namespace {

// The end of a longer buffer, as a buffer.
class PartBuffer final : public Buffer {
 public:
  PartBuffer(BufferPtr whole, std::size_t offset) : whole_(std::move(whole)), offset_(offset) {}
  [[nodiscard]] std::span<std::byte> bytes() override { return whole_->bytes().subspan(offset_); }

 private:
  const BufferPtr whole_;
  const std::size_t offset_;
};

TransportMessage assemble(const Preamble& preamble, std::span<const std::byte> head, BufferPtr data) {
  TransportMessage message;
  message.lane = preamble.lane;
  if (preamble.head_bytes == head.size()) {
    message.head.assign(head.begin(), head.end());
    message.payload = std::move(data);
  } else {  // a long head precedes the payload
    const auto bytes = data->view();
    message.head.assign(bytes.begin(), bytes.begin() + preamble.head_bytes);
    if (preamble.payload_bytes != 0) {
      message.payload = std::make_shared<PartBuffer>(std::move(data), preamble.head_bytes);
    }
  }
  return message;
}

}  // namespace

// An active message on its way in.
struct UcxReceiver::Operation {
  UcxReceiver* receiver = nullptr;
  UcxConnectionPtr connection;
  Preamble preamble;
  std::vector<std::byte> header;
  BufferPtr data;
};

UcxReceiver::UcxReceiver(UcxParts& all)
    : all_(all), pool_(all.options.pool != nullptr ? all.options.pool : make_buffer_pool()) {}

// Nothing is allocated before the preamble has been checked.
ucs_status_t UcxReceiver::receive(std::span<const std::byte> header, void* data, std::size_t length,
                                  const ucp_am_recv_param_t& param) {
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;
  const UcxConnectionPtr connection = all_.endpoints.find(param.reply_ep);
  if (connection == nullptr) return UCS_OK;  // the connection was closed while this message was in flight
  const auto preamble = check(*connection, header, length);
  if (!preamble) {
    all_.endpoints.note_failure(connection,
                                corrupt("a message that breaks the transport's bounds; is the peer a collab of "
                                        "the same version? [ucx.bad-message]"));
    return UCS_OK;
  }
  auto operation = std::make_unique<Operation>();
  operation->receiver = this;
  operation->connection = connection;
  operation->preamble = *preamble;
  operation->header.assign(header.begin(), header.end());
  if (length != 0) operation->data = pool_->take(length);
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    if (length != 0) std::memcpy(operation->data->bytes().data(), data, length);
    received(std::move(operation), UCS_OK);
    return UCS_OK;
  }
  ucp_request_param_t receive_param{};
  receive_param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  receive_param.user_data = operation.get();
  receive_param.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* user_data) {
    std::unique_ptr<Operation> done(static_cast<Operation*>(user_data));
    UcxReceiver& receiver = *done->receiver;
    receiver.all_.api.request_free(request);
    receiver.received(std::move(done), status);
  };
  Operation* raw = operation.release();  // UCX's callback owns it from here on
  const ucs_status_ptr_t request = all_.api.am_recv_data_nbx(raw->connection->worker()->handle, data,
                                                             raw->data->bytes().data(), length, &receive_param);
  if (!UCS_PTR_IS_PTR(request)) {
    received(std::unique_ptr<Operation>(raw), UCS_PTR_RAW_STATUS(request));
  }
  return UCS_OK;
}

std::optional<Preamble> UcxReceiver::check(const UcxConnection& connection, std::span<const std::byte> header,
                                           std::size_t length) {
  const auto preamble = read_preamble(header);
  if (!preamble) return std::nullopt;
  const std::size_t head_here = header.size() - sizeof(Preamble);
  const std::size_t head_later = preamble->head_bytes - std::min<std::size_t>(head_here, preamble->head_bytes);
  const bool lengths_agree =
      (head_here == 0 || head_here == preamble->head_bytes) && length == head_later + preamble->payload_bytes;
  if (!lengths_agree) return std::nullopt;
  if (preamble->kind != Preamble::Kind::kMessage) return length == 0 ? preamble : std::nullopt;
  UcxLink* link = all_.links.find(connection.link());
  return link != nullptr && link->lane(preamble->lane).expects(preamble->first) ? preamble : std::nullopt;
}

void UcxReceiver::received(std::unique_ptr<Operation> operation, ucs_status_t status) {
  if (operation->connection->closed()) return;
  if (status != UCS_OK) {
    all_.endpoints.note_failure(operation->connection, unavailable(all_.reason(status)));
    return;
  }
  const auto head = std::span<const std::byte>(operation->header).subspan(sizeof(Preamble));
  TransportMessage message = assemble(operation->preamble, head, std::move(operation->data));
  arrivals_.push_back({std::move(operation->connection), operation->preamble, std::move(message)});
}

bool UcxReceiver::handle_arrivals() {
  bool any = false;
  for (; !arrivals_.empty(); any = true) {
    Arrival arrival = std::move(arrivals_.front());
    arrivals_.pop_front();
    handle(std::move(arrival));
  }
  return any;
}

void UcxReceiver::handle(Arrival arrival) {
  const UcxConnectionPtr& connection = arrival.connection;
  if (connection->closed()) return;
  if (arrival.preamble.kind == Preamble::Kind::kHello) {
    all_.acceptor.greeted(connection, arrival.preamble);
    return;
  }
  UcxLink* link = all_.links.find(connection->link());
  if (link == nullptr || !pass_on(*link, arrival.preamble, std::move(arrival.message))) {
    all_.endpoints.note_failure(connection, corrupt("a message that does not fit what came before [ucx.out-of-order]"));
  }
}

// False: the message does not fit the earlier ones.
bool UcxReceiver::pass_on(UcxLink& link, const Preamble& preamble, TransportMessage message) {
  switch (preamble.kind) {
    case Preamble::Kind::kHello: break;  // belongs to no link yet
    case Preamble::Kind::kWelcome: return all_.links.welcomed(link);
    case Preamble::Kind::kMessage:
      if (!link.lane(preamble.lane).expects(preamble.first)) return false;
      link.lane(preamble.lane).arrived(preamble.first, std::move(message));
      take_messages(link, preamble.lane);
      all_.links.finish_close(link);
      break;
    case Preamble::Kind::kTaken:
      all_.sender.pump_soon(link.id());
      return link.lanes[0].peer_has_taken(preamble.first) && link.lanes[1].peer_has_taken(preamble.second);
    case Preamble::Kind::kBye: return all_.links.peer_closes(link, preamble);
    case Preamble::Kind::kByeTaken: return all_.links.peer_has_all(link);
  }
  return true;
}

void UcxReceiver::take_messages(UcxLink& link, Lane which) {
  if (!link.open()) return;
  UcxLane& lane = link.lane(which);
  while (auto message = lane.take()) all_.calls.message(link.id(), std::move(*message));
  if (lane.ack_is_due()) send_ack(link);
  link.go_on(all_.now());
}

void UcxReceiver::send_ack(UcxLink& link) {
  for (UcxLane& lane : link.lanes) lane.told();
  Preamble taken;
  taken.kind = Preamble::Kind::kTaken;
  taken.first = link.lanes[0].taken();
  taken.second = link.lanes[1].taken();
  all_.sender.send(link.control(), taken);
}

}  // namespace collab
