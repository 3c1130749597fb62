// The engine of the ucx transport: a UCX worker for each link and the thread that progresses them.
//
// Every message is one active message: a preamble (and a small head) in its header, the payload as its data.
// Large payloads travel by rendezvous straight into a pool buffer. A link has several endpoints, over TCP
// several connections: control messages use the first, data messages go to whichever of the others has least
// in flight, and numbers put each lane back in order. What the peer has not taken is bounded per lane, so
// neither side's memory grows when one connection stalls or the other side is slow.
//
// Threads: the functions of the first group from any thread; all else, UCX's callbacks and the handler's
// calls included, on the progress thread, which sleeps in poll() when nothing is due. Callbacks of UCX only
// note what happened; it is dealt with after ucp_worker_progress has returned.
// Ownership: owns the context, workers, endpoints and links; borrows the handler.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collab/transport.h"
#include "core/base/rate_limit.h"
#include "transport/ucx/ucx_api.h"
#include "transport/ucx/ucx_link.h"
#include "transport/ucx/ucx_mailbox.h"
#include "transport/ucx/ucx_preamble.h"
#include "transport/ucx/ucx_transport.h"

namespace collab {

class UcxEngine {
 public:
  static Result<std::unique_ptr<UcxEngine>> make(const UcxOptions& options);
  ~UcxEngine();
  UcxEngine(const UcxEngine&) = delete;
  UcxEngine& operator=(const UcxEngine&) = delete;

  // From any thread.
  Status start(TransportHandler* handler);
  Result<std::string> listen(const std::string& address);
  LinkId connect(const std::string& address, Duration timeout);
  void send(LinkId link, TransportMessage message, std::uint64_t token);
  void close(LinkId link);
  [[nodiscard]] bool in_child() const;  // of a fork: UCX belongs to the parent

 private:
  struct SendOp;
  struct ReceiveOp;
  struct Arrival {
    UcxConnectionPtr connection;
    Preamble preamble;
    TransportMessage message;
  };
  struct Event {
    enum class Kind : std::uint8_t { kAccepted, kConnected, kMessage, kSent, kClosed };
    Kind kind = Kind::kMessage;
    LinkId link;
    TransportMessage message;
    std::uint64_t token = 0;
    Status why;
    std::string peer;
  };
  using Token = std::array<std::uint64_t, 2>;

  UcxEngine(const UcxApi& api, const UcxOptions& options);
  Status open_context();
  [[nodiscard]] std::string net_devices() const;
  Status configure(ucp_config_t* config) const;
  Result<UcxWorkerPtr> open_worker(std::uint64_t client_id);

  // ucx_engine.cpp: the thread.
  void run();
  bool run_commands();
  bool progress();
  bool handle_progress();  // what UCX's callbacks have noted
  void deliver(Event event);
  bool sleep();
  void check_deadlines();
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] TimePoint now() const { return clock_.now(); }
  void shut_down();

  // ucx_connect.cpp: how links begin and end.
  Result<std::string> listen_here(const std::string& address);
  void dial(LinkId id, const std::string& address, TimePoint deadline);
  void resolved(LinkId id, Result<SocketAddresses> addresses);
  void dial_next_address(UcxLink& link);
  void accept(ucp_conn_request_h request);
  Result<UcxWorkerPtr> worker_for(std::uint64_t client_id);
  Result<UcxConnectionPtr> open_connection(const UcxWorkerPtr& worker, ucp_ep_params_t params, std::string peer);
  void greeted(const UcxConnectionPtr& connection, const Preamble& hello);
  void opened(UcxLink& link);
  void begin_close(UcxLink& link);
  void peer_closes(UcxLink& link, const Preamble& bye);
  void finish_close(UcxLink& link);
  void fail_connection(const UcxConnectionPtr& connection, Status why);
  void fail_dial(UcxLink& link, Status why);
  void end_link(UcxLink& link, Status why);
  void close_connection(const UcxConnectionPtr& connection);
  [[nodiscard]] UcxLink* find(LinkId id);
  [[nodiscard]] std::string reason(ucs_status_t status) const;

  // ucx_messages.cpp: what travels on them.
  void pump(UcxLink& link);
  UcxConnectionPtr choose_connection(UcxLink& link, Lane lane);
  void send_message(UcxLink& link, Lane lane, UcxConnectionPtr connection);
  void send_preamble(const UcxConnectionPtr& connection, const Preamble& preamble);
  void submit(std::unique_ptr<SendOp> op);
  void sent(std::unique_ptr<SendOp> op, ucs_status_t status);
  ucs_status_t receive(std::span<const std::byte> header, void* data, std::size_t length,
                       const ucp_am_recv_param_t& param);
  [[nodiscard]] std::optional<Preamble> check_arrival(const UcxConnectionPtr& connection,
                                                      std::span<const std::byte> header, std::size_t length);
  void received(std::unique_ptr<ReceiveOp> op, ucs_status_t status);
  TransportMessage assemble(const Preamble& preamble, std::span<const std::byte> head, BufferPtr data);
  void arrived(Arrival arrival);
  void take_messages(UcxLink& link, Lane lane);
  void tell_taken(UcxLink& link);

  const UcxApi& api_;
  const UcxOptions options_;
  const pid_t pid_;
  const SteadyClock clock_;
  const std::shared_ptr<BufferPool> pool_;
  const std::shared_ptr<UcxMailbox> mailbox_ = std::make_shared<UcxMailbox>();
  std::atomic<std::uint64_t> next_link_{1};
  std::atomic<bool> stop_{false};
  std::thread thread_;

  // The progress thread's own.
  TransportHandler* handler_ = nullptr;
  ucp_context_h context_ = nullptr;
  std::vector<UcxWorkerPtr> workers_;  // the first one listens and has no connections
  std::size_t max_header_ = 0;
  std::vector<ucp_listener_h> listeners_;
  std::map<LinkId, UcxLink> links_;
  std::map<Token, LinkId> half_open_;                           // accepted links that lack a hello
  std::unordered_map<ucp_ep_h, UcxConnectionPtr> connections_;  // every open endpoint
  TimePoint next_check_{};
  RateLimit turned_away_{std::chrono::seconds(1)};

  // Noted by callbacks.
  std::vector<ucp_conn_request_h> requests_;
  std::deque<Arrival> arrivals_;
  std::vector<std::pair<UcxConnectionPtr, Status>> failures_;
  std::vector<LinkId> to_pump_;
  std::deque<Event> events_;
  std::vector<UcxMailbox::Command> commands_;
};

}  // namespace collab
