// The engine of the tcp transport: the IO thread, the links and the connections they use.
//
// Threads: the functions of the first group from any thread; all else, the handler's calls included, on the IO thread,
// which sleeps when nothing is due. Handlers only queue commands, so nothing changes under a function that calls one.
// Ownership: owns the event loop, listeners, links and connections; borrows the handler.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "collab/transport.h"
#include "core/base/prng.h"
#include "core/base/rate_limited.h"
#include "transport/tcp/tcp_connection.h"
#include "transport/tcp/tcp_link.h"
#include "transport/tcp/tcp_transport.h"

namespace collab::tcp {

[[nodiscard]] Id draw_id();

inline constexpr Duration kDrainLimit = std::chrono::seconds(2);

class TcpEngine final : private ConnectionOwner {
 public:
  TcpEngine(TcpOptions options, std::shared_ptr<TlsKeys> keys);
  ~TcpEngine() override;
  TcpEngine(const TcpEngine&) = delete;
  TcpEngine& operator=(const TcpEngine&) = delete;

  // From any thread.
  Status start(TransportHandler* handler);
  Result<std::string> listen(const std::string& address);
  LinkId connect(const std::string& address, Duration timeout);
  void send(LinkId link, TransportMessage message, std::uint64_t token);
  void close(LinkId link);
  [[nodiscard]] bool in_child() const;  // of a fork: sockets and thread belong to the parent
  [[nodiscard]] TcpCounters counters() const;
  [[nodiscard]] bool encrypts() const { return around_.keys != nullptr; }

 private:
  struct Command {
    enum class Kind : std::uint8_t { kConnect, kSend, kClose, kResolved, kRoom, kStop };
    Kind kind = Kind::kSend;
    LinkId link;
    TransportMessage message;
    std::uint64_t token = 0;
    std::string address;
    TimePoint deadline = kNever;
    Result<Endpoints> endpoints = Endpoints();
  };
  // Outlives the engine where a look-up does.
  struct Mailbox {
    std::mutex mutex;
    TcpEngine* engine = nullptr;  // null: gone
    std::vector<Command> commands;
    bool posted = false;
  };
  using Acceptor = std::shared_ptr<boost::asio::ip::tcp::acceptor>;
  struct Counters {
    std::atomic<std::uint64_t> opened{0}, refused{0}, again{0}, twice{0}, bytes{0}, resumed{0};
  };

  // tcp_engine.cpp: the thread, commands, what is due.
  static void post(const std::shared_ptr<Mailbox>& mailbox, Command command);
  void run_commands();
  void run(Command& command);
  void stop();
  void ease(TimePoint time);
  void keep_ticking();
  void tick();
  void tick_link(TcpLink& link, TimePoint now);
  void check_closing(TcpLink& link, TimePoint now);
  void check_connection(TcpLink& link, Connection& connection, TimePoint now);
  void tune(TcpLink& link, TimePoint now);
  void watch_exchange(TimePoint now);
  void compare_links();
  void keep_pace(TcpLink& link, TimePoint now, bool backlogged);
  static std::optional<LinkPace::Sight> look(TcpLink& link, const std::vector<Connection*>& carriers);
  static void ask_reachability(TcpLink& link, TimePoint now);
  void search(TcpLink& link, TimePoint now, bool backlogged);
  [[nodiscard]] TimePoint now() const { return clock_.now(); }
  static std::uint64_t stamp_of(TimePoint time) { return static_cast<std::uint64_t>(time.time_since_epoch().count()); }
  [[nodiscard]] TcpLink* find(LinkId id);
  TcpLink& make_link(LinkId id, const std::string& address);
  void end_link(TcpLink& link, const Status& why);
  void end_with_words(TcpLink& link, const Status& why);

  // tcp_strangers.cpp: room for those who have not said who they are.
  void make_room();
  void make_room_for_link();
  template <typename Among>
  void turn_out(Among among);
  void remember_host(const boost::asio::ip::address& host);
  void turn_away(Connection& connection, Refusal why, const std::string& words);
  void tell_turned_away(const Endpoint& from, const std::string& words);
  [[nodiscard]] std::size_t data_connections() const;
  [[nodiscard]] static std::size_t most_data_connections();

  // tcp_connect.cpp: how links and connections come and go.
  void accept_on(const Acceptor& acceptor);
  void accepted(boost::asio::ip::tcp::socket socket, const Endpoint& from);
  void begin_dial(TcpLink& link, const std::string& address, TimePoint deadline);
  void look_up(const TcpLink& link, const HostPort& address);
  void resolved(TcpLink& link, Result<Endpoints> endpoints);
  void dial_slot(TcpLink& link, std::uint16_t index);
  void dial_missing(TcpLink& link);
  void attach(TcpLink& link, const ConnectionPtr& connection);
  void tell_congestion(const std::string& name) const;
  void detach(TcpLink& link, Connection& connection);
  void dial_failed(TcpLink& link, Fault fault, const Status& why);
  void slot_failed(TcpLink& link, std::uint16_t index, Fault fault, const Status& why);
  [[nodiscard]] bool allowed(const Endpoint& peer) const;
  [[nodiscard]] std::uint16_t wanted(const TcpLink& link) const;
  [[nodiscard]] std::size_t in_use(const TcpLink& link) const {
    return options_.connections != 0 ? link.slots.size() : std::size_t{link.search.wanted()};
  }
  Status on_hello(Connection& from, const Hello& hello);
  void tell_proved(const TcpLink& link, const Connection& by);
  Status on_welcome(Connection& from, const Id& process);
  void on_refuse(Connection& from, const Refuse& refusal);
  void failed(const ConnectionPtr& from, Fault fault, const Status& why) override;

  // tcp_session.cpp: what travels on them.
  Result<std::optional<std::span<std::byte>>> segment_begins(Connection& from, const SegmentHeader& header) override;
  Status segment_ended(Connection& from, const SegmentHeader& header, bool placed) override;
  Status frame_came(Connection& from, FrameType type, std::span<const std::byte> body) override;
  Status link_frame_came(TcpLink& link, Connection& from, FrameType type, std::span<const std::byte> body);
  void reading_paused(Connection& from) override;
  void ran_dry(Connection& from) override;
  void segment_written(Connection& from, Lane lane, std::uint64_t number) override;
  void pump(TcpLink& link);
  bool fill(TcpLink& link, Connection& connection, Lane lane, Duration patience);
  void pump_later(TcpLink& link);
  void acknowledge(TcpLink& link);
  void acknowledge_later();
  void deliver_tokens(TcpLink& link, std::vector<std::uint64_t>& tokens);
  Status on_ack(TcpLink& link, Connection& from, const Arrivals& arrivals);
  void on_pong(TcpLink& link, Connection& from, const Pong& pong);
  Status on_bye(TcpLink& link, const Bye& bye);
  void begin_close(TcpLink& link);
  void go_on_closing(TcpLink& link);

  // tcp_caps.cpp: what the user's caps leave to each.
  [[nodiscard]] bool capped(const TcpLink& link) const;
  [[nodiscard]] bool slow(const TcpLink& link, std::size_t carriers) const;
  [[nodiscard]] bool may_send(TcpLink& link);
  bool may_read(Connection& from, std::size_t bytes) override;
  void wait_for_bucket(TimePoint until);
  void go_on_reading();
  void read_on(Connection& connection);
  void has_room(TcpLink& link);  // again, for what is not handled
  void allot(TimePoint now);

  const TcpOptions options_;
  const pid_t pid_;
  const Duration soft_limit_, hard_limit_;  // of silence, on a connection
  const SteadyClock clock_;
  const std::shared_ptr<BufferPool> pool_;
  const std::shared_ptr<UnfinishedBytes> unfinished_ = std::make_shared<UnfinishedBytes>();
  const std::shared_ptr<UnhandledBytes> unhandled_ = std::make_shared<UnhandledBytes>();
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  const Id process_ = draw_id();
  std::atomic<std::uint64_t> next_link_{1};
  Counters counters_;
  boost::asio::io_context io_{1};
  std::thread thread_;

  // The IO thread's own.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  Environment around_;
  TransportHandler* handler_ = nullptr;
  Prng prng_;
  std::vector<Acceptor> acceptors_;
  std::map<LinkId, std::unique_ptr<TcpLink>> links_;
  std::map<Id, LinkId> sessions_;
  std::deque<Id> ended_well_;                        // the newest links that did
  std::vector<std::unique_ptr<TcpLink>> graveyard_;  // ended links, until nothing on the stack can know them
  std::deque<ConnectionPtr> loose_;                  // without a link: not greeted yet, or draining; the oldest first
  std::set<boost::asio::ip::address> hosts_;         // that have had a link here
  std::deque<boost::asio::ip::address> hosts_in_order_;
  Backlog backlog_;                                  // on any link
  std::map<std::string, std::uint16_t> remembered_;  // data connections, by the address that was dialled
  boost::asio::steady_timer ticker_, ack_timer_, bucket_timer_;
  bool was_much_ = false;  // that was unfinished or not handled, or many connections
  std::uint64_t came_before_ = 0;
  bool ticking_ = false, ack_waiting_ = false, stopped_ = false;
  TimePoint last_tick_{}, ease_at_{}, trim_at_{};
  RateLimited not_accepted_{std::chrono::seconds(10)};
  RateLimited turned_away_{std::chrono::seconds(1)};
  RateLimited dropped_{std::chrono::minutes(1)};  // a public port is knocked at all day
  bool told_congestion_ = false;
  TokenBucket up_, down_;
  TimePoint bucket_due_ = kNever;
  std::deque<std::weak_ptr<Connection>> paused_;
  Carrier next_carrier_ = 1;
  std::vector<Command> running_;
};

}  // namespace collab::tcp
