// The IO thread: commands, what is due, how links end.
#include "transport/tcp/tcp_engine.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <random>
#include <utility>

#include "core/base/log.h"

namespace collab::tcp {
namespace {

namespace asio = boost::asio;
constexpr std::size_t kEndedRemembered = 1024;
constexpr int kRateLimited = 4;  // heartbeats
constexpr Duration kEaseEvery = std::chrono::seconds(2);
constexpr Duration kTrimEvery = std::chrono::seconds(10);
constexpr std::uint64_t kManyConnections = 200;
constexpr std::size_t kMuch = std::size_t{64} << 20;
constexpr std::uint16_t kFirstGuess = 12;  // on a long way one or two are held back by the system's buffers

Duration tick_of(const TcpOptions& options) {
  return std::clamp<Duration>(options.heartbeat / 4, std::chrono::milliseconds(5), std::chrono::milliseconds(50));
}

}  // namespace

Id draw_id() {
  std::random_device device;
  Id id;
  for (std::uint8_t& byte : id) byte = static_cast<std::uint8_t>(device());
  return id;
}

TcpEngine::TcpEngine(TcpOptions options, std::shared_ptr<TlsKeys> keys)
    : options_(std::move(options)),
      pid_(::getpid()),
      soft_limit_(5 * options_.heartbeat),
      hard_limit_(20 * options_.heartbeat),
      pool_(options_.pool != nullptr ? options_.pool : make_buffer_pool()),
      work_(asio::make_work_guard(io_)),
      around_{io_,
              *this,
              std::move(keys),
              options_.congestion,
              std::max<Duration>(hard_limit_, std::chrono::seconds(1)),
              std::vector<std::byte>(std::size_t{256} << 10),
              std::vector<std::byte>(std::size_t{16} << 10)},
      prng_(std::random_device{}()),
      ticker_(io_),
      ack_timer_(io_),
      bucket_timer_(io_),
      up_(options_.max_mbit_up * 1e6 / 8),
      down_(options_.max_mbit_down * 1e6 / 8) {
  mailbox_->engine = this;
}

TcpEngine::~TcpEngine() {
  Command stop;
  stop.kind = Command::Kind::kStop;
  post(mailbox_, std::move(stop));
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->engine = nullptr;  // what was posted before is still run
  }
  if (thread_.joinable()) {
    thread_.join();
  } else {
    this->stop();
  }
}

bool TcpEngine::in_child() const { return ::getpid() != pid_; }

Status TcpEngine::start(TransportHandler* handler) {
  if (in_child() || handler_ != nullptr) return invalid_argument("a tcp transport starts once, in one process");
  handler_ = handler;
  thread_ = std::thread([this] { io_.run(); });
  return {};
}

void TcpEngine::post(const std::shared_ptr<Mailbox>& mailbox, Command command) {
  const std::lock_guard lock(mailbox->mutex);
  if (mailbox->engine == nullptr) return;
  mailbox->commands.push_back(std::move(command));
  if (std::exchange(mailbox->posted, true)) return;
  asio::post(mailbox->engine->io_, [engine = mailbox->engine] { engine->run_commands(); });
}

LinkId TcpEngine::connect(const std::string& address, Duration timeout) {
  const LinkId id(next_link_.fetch_add(1));
  if (in_child()) return id;
  Command command;
  command.kind = Command::Kind::kConnect;
  command.link = id;
  command.address = address;
  command.deadline = now() + std::max(timeout, Duration(1));
  post(mailbox_, std::move(command));
  return id;
}

void TcpEngine::send(LinkId link, TransportMessage message, std::uint64_t token) {
  if (in_child()) return;
  Command command;
  command.link = link;
  command.message = std::move(message);
  command.token = token;
  post(mailbox_, std::move(command));
}

void TcpEngine::close(LinkId link) {
  if (in_child()) return;
  Command command;
  command.kind = Command::Kind::kClose;
  command.link = link;
  post(mailbox_, std::move(command));
}

TcpCounters TcpEngine::counters() const {
  return {counters_.opened, counters_.refused, counters_.again, counters_.twice, counters_.bytes, counters_.resumed};
}

void TcpEngine::run_commands() {
  std::set<LinkId> dirty;
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->posted = false;
    running_.swap(mailbox_->commands);
  }
  for (Command& command : running_) {
    run(command);
    if (stopped_) break;
    dirty.insert(command.link);
  }
  running_.clear();
  for (const LinkId id : dirty) {
    if (TcpLink* const link = find(id); link != nullptr) pump(*link);
  }
}

void TcpEngine::run(Command& command) {
  TcpLink* const link = find(command.link);
  switch (command.kind) {
    case Command::Kind::kConnect: {
      TcpLink& made = make_link(command.link, command.address);
      begin_dial(made, command.address, command.deadline);
      return;
    }
    case Command::Kind::kSend:
      if (link == nullptr || link->closing) return;
      if (command.message.head.size() > kMaxHeadBytes ||
          (command.message.payload != nullptr && command.message.payload->view().size() > kMaxPayloadBytes)) {
        end_with_words(*link, invalid_argument("a message larger than a transport carries"));
        return;
      }
      if (command.message.lane == Lane::kControl &&
          link->outbox(Lane::kControl).bytes_to_go() + command.message.head.size() > kMaxControlBytes) {
        end_with_words(*link, unavailable(link->peer + " asks for more than it takes: " +
                                          std::to_string(kMaxControlBytes >> 20) + " MiB of control messages wait"));
        return;
      }
      link->outbox(command.message.lane).push(std::move(command.message), command.token);
      return;
    case Command::Kind::kClose:
      if (link != nullptr && !link->closing) begin_close(*link);
      return;
    case Command::Kind::kResolved:
      if (link != nullptr) resolved(*link, std::move(command.endpoints));
      return;
    case Command::Kind::kRoom:
      if (link != nullptr) has_room(*link);
      return;
    case Command::Kind::kStop: stop(); return;
  }
}

// The other sides hear of it at once, if the system takes the words.
void TcpEngine::stop() {
  stopped_ = true;
  for (auto& [id, link] : links_) {
    if (Connection* const control = link->control(); control != nullptr) {
      control->send(encode_abort("its process ended or left the swarm"));
      control->flush();
    }
    for (Slot& slot : link->slots) {
      if (slot.connection != nullptr) slot.connection->close();
    }
  }
  links_.clear();
  for (const ConnectionPtr& connection : loose_) connection->close();
  loose_.clear();
  for (const Acceptor& acceptor : acceptors_) {
    boost::system::error_code ignored;
    acceptor->close(ignored);
  }
  io_.stop();
}

TcpLink* TcpEngine::find(LinkId id) {
  const auto found = links_.find(id);
  return found != links_.end() ? found->second.get() : nullptr;
}

TcpLink& TcpEngine::make_link(LinkId id, const std::string& address) {
  const auto fixed = static_cast<std::uint16_t>(options_.connections);
  std::uint16_t first = fixed;
  if (fixed == 0) {
    const auto known = remembered_.find(address);
    first = known != remembered_.end() ? known->second : kFirstGuess;
  }
  const ConnectionSearch search(first, fixed != 0 ? fixed : kMaxDataConnections);
  const auto room = [id, mailbox = std::weak_ptr(mailbox_)] {
    const auto open = mailbox.lock();
    if (open == nullptr) return;
    Command command;
    command.kind = Command::Kind::kRoom;
    command.link = id;
    post(open, std::move(command));
  };
  auto& link = links_[id] = std::make_unique<TcpLink>(id, pool_, std::make_shared<UnfinishedShare>(unfinished_),
                                                      std::make_shared<Unhandled>(unhandled_, room), search);
  keep_ticking();
  return *link;
}

void TcpEngine::end_with_words(TcpLink& link, const Status& why) {
  if (Connection* const control = link.control(); control != nullptr && !link.ended) {
    control->send(encode_abort(why.message()));
  }
  end_link(link, why);
}

void TcpEngine::end_link(TcpLink& link, const Status& why) {
  if (link.ended) return;
  link.ended = true;
  if (why.ok()) {
    ended_well_.push_back(link.session);
    if (ended_well_.size() > kEndedRemembered) ended_well_.pop_front();
  }
  for (Slot& slot : link.slots) {
    const ConnectionPtr connection = std::exchange(slot.connection, nullptr);
    if (connection == nullptr) continue;
    connection->link = LinkId();
    if (connection->state() == Connection::State::kAttached) {
      connection->deadline = now() + std::chrono::seconds(2);
      make_room();
      loose_.push_back(connection);
      connection->drain();
    } else if (connection->state() != Connection::State::kDraining) {
      connection->close();
    }
  }
  sessions_.erase(link.session);
  const LinkId id = link.id;
  const auto at = links_.find(id);
  if (graveyard_.empty()) asio::post(io_, [this] { graveyard_.clear(); });
  graveyard_.push_back(std::move(at->second));
  links_.erase(at);
  handler_->on_closed(id, why);
}

// ---- what is due ---------------------------------------------------------------------------------

// What a burst has left goes back to the system.
void TcpEngine::ease(TimePoint time) {
  ease_at_ = time + kEaseEvery;
  pool_->ease();
  const std::size_t held = unfinished_->held + unhandled_->held;
  const std::uint64_t came = counters_.opened + counters_.refused;
  was_much_ = was_much_ || held > kMuch || came > came_before_ + kManyConnections;
  came_before_ = came;
  if (held < kMuch / 4 && time >= trim_at_ && std::exchange(was_much_, false)) {
    trim_at_ = time + kTrimEvery;
    ::malloc_trim(0);  // what was small lies in pieces all over the heap
  }
}

void TcpEngine::keep_ticking() {
  if (ticking_ || stopped_ || (links_.empty() && loose_.empty())) return;
  ticking_ = true;
  if (last_tick_ + soft_limit_ < now()) last_tick_ = now();
  ticker_.expires_after(tick_of(options_));
  ticker_.async_wait([this](const boost::system::error_code& error) {
    ticking_ = false;
    if (!error && !stopped_) tick();
  });
}

void TcpEngine::tick() {
  const TimePoint time = now();
  // We were held up: what others said meanwhile waits to be read, and nobody is to blame.
  const bool held_up = time - last_tick_ > soft_limit_ / 2;
  last_tick_ = time;
  std::vector<LinkId> ids;
  for (const auto& [id, link] : links_) ids.push_back(id);
  for (const LinkId id : ids) {
    TcpLink* const link = find(id);
    if (link == nullptr) continue;
    for (const Slot& slot : link->slots) {
      if (held_up && slot.attached()) slot.connection->last_heard = time;
    }
    tick_link(*link, time);
  }
  watch_exchange(time);
  allot(time);
  if (time >= ease_at_) ease(time);
  if (links_.empty()) pool_->trim();
  const std::vector<ConnectionPtr> loose(loose_.begin(), loose_.end());
  for (const ConnectionPtr& connection : loose) {
    if (connection->deadline > time) continue;
    if (connection->state() == Connection::State::kDraining) {
      connection->close();
    } else {
      connection->fail(Fault::kNoAnswer, timed_out("it did not say who it is in time"));
    }
  }
  std::erase_if(loose_, [](const ConnectionPtr& entry) { return entry->state() == Connection::State::kClosed; });
  keep_ticking();
}

void TcpEngine::tick_link(TcpLink& link, TimePoint time) {
  if (link.state != TcpLink::State::kOpen) {
    const ConnectionPtr dial = link.slots[0].connection;
    if (dial != nullptr && dial->deadline <= time) dial->fail(Fault::kNoAnswer, timed_out("no answer in time"));
    if (time < link.deadline) return;
    std::string words = "no answer from " + link.peer + " in time";
    if (!link.last_fault.empty()) words += " (" + link.last_fault + ")";
    end_link(link, timed_out(words + "; is the address right, and does a firewall let it through?"));
    return;
  }
  for (std::size_t i = 0; i < link.slots.size() && !link.ended; ++i) {
    const ConnectionPtr connection = link.slots[i].connection;
    if (connection != nullptr) check_connection(link, *connection, time);
  }
  if (link.ended) return;
  if (link.alone_since != kNever && !link.closing) {
    const bool gone = link.ended_by_peer && !link.dialled;
    const Duration wait =
        gone ? std::min(options_.link_grace, options_.death_wait + 4 * link.round_trip) : options_.link_grace;
    if (time - link.alone_since >= wait) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait).count();
      const std::string words =
          "no connection to " + link.peer + " for " + std::to_string(ms) + " ms (" + link.last_fault + ")";
      end_link(link, gone ? unavailable(words + ": it closed them all and did not dial again; its process ended")
                          : timed_out(words + ", which is the link's grace (COLLAB_LINK_GRACE)"));
      return;
    }
  }
  if (link.closing) check_closing(link, time);
  if (link.ended) return;
  for (std::size_t i = 0; i < link.slots.size(); ++i) {
    if (link.slots[i].connection == nullptr && link.slots[i].redial_at <= time) {
      if (i != 0 && link.alone()) continue;  // the control connection feels out the way
      dial_slot(link, static_cast<std::uint16_t>(i));
    }
  }
  tune(link, time);
  if (!link.outbox(Lane::kData).empty()) pump(link);  // what hangs
}

void TcpEngine::check_closing(TcpLink& link, TimePoint time) {
  if (time < link.deadline) return;
  const bool all_arrived = link.outbox(Lane::kControl).empty() && link.outbox(Lane::kData).empty();
  end_link(link, all_arrived ? Status()
                             : timed_out("what was queued when the link to " + link.peer +
                                         " was closed could not be delivered in time"));
}

// Asks for a sign of life, and gives up a connection that shows none.
void TcpEngine::check_connection(TcpLink& link, Connection& connection, TimePoint time) {
  if (connection.state() != Connection::State::kAttached) {
    if (connection.deadline <= time) connection.fail(Fault::kNoAnswer, timed_out("no answer in time"));
    return;
  }
  if (!connection.pinged) {
    // Data connections seldom: the control connection tells who lives, and a ping under way spoils a rest.
    if (connection.index != 0 && time - connection.last_heard < kRateLimited * options_.heartbeat) return;
    if (time < connection.deadline) return;
    connection.deadline = time + options_.heartbeat;
    connection.pinged = time;
    connection.send(encode_ping(stamp_of(time)));
    connection.flush();
    return;
  }
  if (connection.pause != Connection::Pause::kNone) return;
  const Duration silent = time - std::max(connection.last_heard, *connection.pinged);
  const Duration soft = std::max(soft_limit_, 4 * link.round_trip);
  if (silent < soft) return;
  const bool kernel_answers = connection.kernel_silence().value_or(silent) < soft;
  if (kernel_answers && silent < std::max(hard_limit_, 16 * link.round_trip)) return;
  connection.fail(
      Fault::kNoAnswer,
      unavailable("silent for " +
                  std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(silent).count()) + " ms"));
}

}  // namespace collab::tcp
