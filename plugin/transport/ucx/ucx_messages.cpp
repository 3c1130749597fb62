// What travels on the links of the ucx transport.
#include <algorithm>
#include <cstring>

#include "transport/ucx/ucx_engine.h"

namespace collab {
namespace {

constexpr std::size_t kRendezvousBytes = std::size_t{32} << 10;       // smaller ones are copied through
constexpr std::size_t kConnectionBytes = std::size_t{16} << 20;       // in flight, or one message
constexpr std::size_t kSharedConnectionBytes = std::size_t{4} << 20;  // when control shares it with data
constexpr std::size_t kConnectionMessages = 256;
constexpr std::uint64_t kTellMessages = 32;  // taken, before the peer is told
constexpr std::size_t kTellBytes = kLaneBytes / 8;

// A part of a longer buffer.
class PartBuffer final : public Buffer {
 public:
  PartBuffer(BufferPtr whole, std::size_t offset) : whole_(std::move(whole)), offset_(offset) {}
  [[nodiscard]] std::span<std::byte> bytes() override { return whole_->bytes().subspan(offset_); }

 private:
  const BufferPtr whole_;
  const std::size_t offset_;
};

}  // namespace

// An active message on its way out; owns what UCX reads until the callback.
struct UcxEngine::SendOp {
  UcxEngine* engine = nullptr;
  UcxConnectionPtr connection;
  std::vector<std::byte> header;  // preamble, and the head when it is small
  TransportMessage message;
  std::uint64_t token = 0;
  std::size_t bytes = 0;
  std::array<ucp_dt_iov_t, 2> parts{};
};

// A payload on its way in.
struct UcxEngine::ReceiveOp {
  UcxEngine* engine = nullptr;
  UcxConnectionPtr connection;
  Preamble preamble;
  std::vector<std::byte> header;
  BufferPtr data;
};

// Sends what the windows allow, control first; then, when the link is closing, the bye.
void UcxEngine::pump(UcxLink& link) {
  if (link.state != UcxLink::State::kOpen) return;
  for (const Lane which : {Lane::kControl, Lane::kData}) {
    UcxLane& lane = link.lane(which);
    while (!lane.queue.empty() && lane.may_send()) {
      auto connection = choose_connection(link, which);
      if (connection == nullptr) break;
      send_message(link, which, std::move(connection));
    }
  }
  if (link.closing && !link.bye_sent && link.lanes[0].queue.empty() && link.lanes[1].queue.empty()) {
    link.bye_sent = true;
    Preamble bye;
    bye.kind = Preamble::Kind::kBye;
    bye.first = link.lanes[0].sent;
    bye.second = link.lanes[1].sent;
    send_preamble(link.connections.front(), bye);
  }
}

UcxConnectionPtr UcxEngine::choose_connection(UcxLink& link, Lane lane) {
  const auto& all = link.connections;
  const bool alone = all.size() == 1;
  UcxConnectionPtr best = all.front();
  if (lane == Lane::kData && !alone) {
    best = *std::min_element(all.begin() + 1, all.end(),
                             [](const auto& a, const auto& b) { return a->bytes_in_flight < b->bytes_in_flight; });
  }
  const std::size_t limit = lane == Lane::kData && alone ? kSharedConnectionBytes : kConnectionBytes;
  const bool room = best->bytes_in_flight < limit && best->messages_in_flight < kConnectionMessages;
  return room ? best : nullptr;
}

void UcxEngine::send_message(UcxLink& link, Lane which, UcxConnectionPtr connection) {
  UcxLane& lane = link.lane(which);
  UcxLane::Outgoing outgoing = std::move(lane.queue.front());
  lane.queue.pop_front();
  const std::size_t bytes = outgoing.bytes();
  auto op = std::make_unique<SendOp>();
  op->engine = this;
  op->connection = std::move(connection);
  op->message = std::move(outgoing.message);
  op->token = outgoing.token;
  op->bytes = bytes;
  const auto& head = op->message.head;
  Preamble preamble;
  preamble.lane = which;
  preamble.head_bytes = static_cast<std::uint32_t>(head.size());
  preamble.payload_bytes = static_cast<std::uint32_t>(bytes - head.size());
  preamble.first = lane.sent++;
  lane.untaken.push_back(bytes);
  lane.untaken_bytes += bytes;
  const bool head_fits = sizeof(preamble) + head.size() <= max_header_;
  op->header.resize(sizeof(preamble) + (head_fits ? head.size() : 0));
  std::memcpy(op->header.data(), &preamble, sizeof(preamble));
  if (head_fits && !head.empty()) std::memcpy(op->header.data() + sizeof(preamble), head.data(), head.size());
  submit(std::move(op));
}

void UcxEngine::send_preamble(const UcxConnectionPtr& connection, const Preamble& preamble) {
  if (connection->endpoint == nullptr) return;
  auto op = std::make_unique<SendOp>();
  op->engine = this;
  op->connection = connection;
  op->header.resize(sizeof(preamble));
  std::memcpy(op->header.data(), &preamble, sizeof(preamble));
  submit(std::move(op));
}

void UcxEngine::submit(std::unique_ptr<SendOp> op) {
  ++op->connection->messages_in_flight;
  op->connection->bytes_in_flight += op->bytes;
  auto& message = op->message;
  auto payload = message.payload != nullptr ? message.payload->bytes() : std::span<std::byte>();
  const bool head_in_header = op->header.size() > sizeof(Preamble) || message.head.empty();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.user_data = op.get();
  param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    std::unique_ptr<SendOp> done(static_cast<SendOp*>(user_data));
    UcxEngine& engine = *done->engine;
    engine.api_.request_free(request);
    engine.sent(std::move(done), status);
  };
  const void* data = payload.data();
  std::size_t count = payload.size();
  if (!head_in_header) {
    op->parts = {{{message.head.data(), message.head.size()}, {payload.data(), payload.size()}}};
    if (payload.empty()) {
      data = message.head.data();
      count = message.head.size();
    } else {
      param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
      param.datatype = ucp_dt_make_iov();
      data = op->parts.data();
      count = op->parts.size();
    }
  }
  const std::size_t bytes = payload.size() + (head_in_header ? 0 : message.head.size());
  param.flags = UCP_AM_SEND_FLAG_REPLY | (bytes >= kRendezvousBytes ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER);
  SendOp* raw = op.release();  // the callback's, from here on
  const ucs_status_ptr_t request = api_.am_send_nbx(raw->connection->endpoint, kActiveMessage, raw->header.data(),
                                                    raw->header.size(), data, count, &param);
  if (UCS_PTR_IS_PTR(request)) return;
  sent(std::unique_ptr<SendOp>(raw), UCS_PTR_RAW_STATUS(request));
}

void UcxEngine::sent(std::unique_ptr<SendOp> op, ucs_status_t status) {
  UcxConnection& connection = *op->connection;
  --connection.messages_in_flight;
  connection.bytes_in_flight -= op->bytes;
  UcxLink* link = find(connection.link);
  if (link == nullptr || connection.endpoint == nullptr) return;
  if (status != UCS_OK) {
    failures_.emplace_back(op->connection, unavailable(reason(status)));
    return;
  }
  if (op->token != 0) {
    Event event;
    event.kind = Event::Kind::kSent;
    event.link = connection.link;
    event.token = op->token;
    events_.push_back(std::move(event));
  }
  if (op->bytes != 0) {
    if (link->closing) link->deadline = now() + kCloseLimit;
    to_pump_.push_back(connection.link);
  }
}

// UCX's callback for an active message. Nothing is allocated before the preamble has been checked.
ucs_status_t UcxEngine::receive(std::span<const std::byte> header, void* data, std::size_t length,
                                const ucp_am_recv_param_t& param) {
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;
  const auto known = connections_.find(param.reply_ep);
  if (known == connections_.end()) return UCS_OK;  // it was closed while this was on its way
  const UcxConnectionPtr& connection = known->second;
  const auto preamble = check_arrival(connection, header, length);
  if (!preamble) {
    failures_.emplace_back(connection, corrupt("a message that breaks the transport's bounds; is the peer a collab of "
                                               "the same version? [ucx.bad-message]"));
    return UCS_OK;
  }
  auto op = std::make_unique<ReceiveOp>();
  op->engine = this;
  op->connection = connection;
  op->preamble = *preamble;
  op->header.assign(header.begin(), header.end());
  if (length != 0) op->data = pool_->take(length);
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    if (length != 0) std::memcpy(op->data->bytes().data(), data, length);
    received(std::move(op), UCS_OK);
    return UCS_OK;
  }
  ucp_request_param_t receive_param{};
  receive_param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  receive_param.user_data = op.get();
  receive_param.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* user_data) {
    std::unique_ptr<ReceiveOp> done(static_cast<ReceiveOp*>(user_data));
    UcxEngine& engine = *done->engine;
    engine.api_.request_free(request);
    engine.received(std::move(done), status);
  };
  ReceiveOp* raw = op.release();  // the callback's, from here on
  const ucs_status_ptr_t request =
      api_.am_recv_data_nbx(raw->connection->worker->handle, data, raw->data->bytes().data(), length, &receive_param);
  if (!UCS_PTR_IS_PTR(request)) {
    received(std::unique_ptr<ReceiveOp>(raw), UCS_PTR_RAW_STATUS(request));
  }
  return UCS_OK;
}

std::optional<Preamble> UcxEngine::check_arrival(const UcxConnectionPtr& connection, std::span<const std::byte> header,
                                                 std::size_t length) {
  const auto preamble = read_preamble(header);
  if (!preamble) return std::nullopt;
  const std::size_t head_here = header.size() - sizeof(Preamble);
  const std::size_t head_later = preamble->head_bytes - std::min<std::size_t>(head_here, preamble->head_bytes);
  const bool lengths_agree =
      (head_here == 0 || head_here == preamble->head_bytes) && length == head_later + preamble->payload_bytes;
  if (!lengths_agree) return std::nullopt;
  if (preamble->kind != Preamble::Kind::kMessage) return length == 0 ? preamble : std::nullopt;
  UcxLink* link = find(connection->link);
  return link != nullptr && link->lane(preamble->lane).expects(preamble->first) ? preamble : std::nullopt;
}

void UcxEngine::received(std::unique_ptr<ReceiveOp> op, ucs_status_t status) {
  if (op->connection->endpoint == nullptr) return;
  if (status != UCS_OK) {
    failures_.emplace_back(op->connection, unavailable(reason(status)));
    return;
  }
  const auto head = std::span<const std::byte>(op->header).subspan(sizeof(Preamble));
  TransportMessage message = assemble(op->preamble, head, std::move(op->data));
  arrivals_.push_back({std::move(op->connection), op->preamble, std::move(message)});
}

TransportMessage UcxEngine::assemble(const Preamble& preamble, std::span<const std::byte> head, BufferPtr data) {
  TransportMessage message;
  message.lane = preamble.lane;
  if (preamble.head_bytes == head.size()) {
    message.head.assign(head.begin(), head.end());
    message.payload = std::move(data);
  } else {  // a long head came in front of the payload
    const auto bytes = data->view();
    message.head.assign(bytes.begin(), bytes.begin() + preamble.head_bytes);
    if (preamble.payload_bytes != 0) {
      message.payload = std::make_shared<PartBuffer>(std::move(data), preamble.head_bytes);
    }
  }
  return message;
}

void UcxEngine::arrived(Arrival arrival) {
  const UcxConnectionPtr& connection = arrival.connection;
  if (connection->endpoint == nullptr) return;
  const Preamble& preamble = arrival.preamble;
  if (preamble.kind == Preamble::Kind::kHello) {
    greeted(connection, preamble);
    return;
  }
  UcxLink* link = find(connection->link);
  bool sound = link != nullptr;
  if (sound) {
    switch (preamble.kind) {
      case Preamble::Kind::kHello: break;
      case Preamble::Kind::kWelcome:
        sound = link->dialled && link->state == UcxLink::State::kConnecting;
        if (sound) opened(*link);
        break;
      case Preamble::Kind::kMessage:
        sound = link->lane(preamble.lane).expects(preamble.first);
        if (sound) {
          link->lane(preamble.lane).early.emplace(preamble.first, std::move(arrival.message));
          take_messages(*link, preamble.lane);
          finish_close(*link);
        }
        break;
      case Preamble::Kind::kTaken:
        sound = link->lanes[0].peer_has_taken(preamble.first) && link->lanes[1].peer_has_taken(preamble.second);
        to_pump_.push_back(link->id);
        break;
      case Preamble::Kind::kBye:
        sound = !link->peer_said_bye;
        if (sound) peer_closes(*link, preamble);
        if (sound) finish_close(*link);
        break;
      case Preamble::Kind::kByeTaken:
        sound = link->bye_sent;
        link->bye_taken = true;
        if (sound) finish_close(*link);
        break;
    }
  }
  if (!sound)
    failures_.emplace_back(connection, corrupt("a message that does not fit what came before [ucx.out-of-order]"));
}

// Hands over what is next in order, and tells the peer now and then.
void UcxEngine::take_messages(UcxLink& link, Lane which) {
  if (link.state != UcxLink::State::kOpen) return;
  UcxLane& lane = link.lane(which);
  for (auto next = lane.early.begin(); next != lane.early.end() && next->first == lane.taken;
       next = lane.early.erase(next)) {
    Event event;
    event.kind = Event::Kind::kMessage;
    event.link = link.id;
    event.message = std::move(next->second);
    lane.untold_bytes += event.message.bytes();
    ++lane.taken;
    events_.push_back(std::move(event));
  }
  if (lane.taken - lane.told >= kTellMessages || lane.untold_bytes >= kTellBytes) tell_taken(link);
  if (link.closing) link.deadline = now() + kCloseLimit;
}

void UcxEngine::tell_taken(UcxLink& link) {
  for (auto& lane : link.lanes) {
    lane.told = lane.taken;
    lane.untold_bytes = 0;
  }
  Preamble taken;
  taken.kind = Preamble::Kind::kTaken;
  taken.first = link.lanes[0].taken;
  taken.second = link.lanes[1].taken;
  send_preamble(link.connections.front(), taken);
}

}  // namespace collab
