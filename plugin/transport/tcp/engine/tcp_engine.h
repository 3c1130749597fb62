// The engine of the tcp transport: the IO thread and its inputs. It routes calls, frames and ticks to its parts
// (engine_parts.h) and decides nothing.
//
// Threads: the functions of the first group from any thread; all else on the IO thread, including calls of the handler.
// This thread sleeps when nothing is due. Handlers only queue commands, so no state changes under a function that calls
// one.
// Ownership: owns its parts, including the event loop; borrows the handler.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collab/transport.h"
#include "transport/tcp/engine/engine_parts.h"

namespace collab::tcp {

class TcpEngine final : private ConnectionOwner {
 public:
  TcpEngine(TcpOptions options, std::shared_ptr<TlsKeys> keys);
  ~TcpEngine() override;
  TcpEngine(const TcpEngine&) = delete;
  TcpEngine& operator=(const TcpEngine&) = delete;

  // From any thread.
  Status start(TransportHandler* handler);
  Result<std::string> listen(const std::string& address) { return all_.pending.listen(address); }
  LinkId connect(const std::string& address, Duration timeout);
  void send(LinkId link, TransportMessage message, std::uint64_t token);
  void close(LinkId link);
  [[nodiscard]] bool in_child() const { return all_.context.in_child(); }
  [[nodiscard]] TcpCounters counters() const;
  [[nodiscard]] bool encrypts() const { return all_.encrypts(); }

 private:
  // Events of connections.
  Result<std::optional<std::span<std::byte>>> on_segment_begin(Connection& from, const SegmentHeader& header) override;
  Status on_segment_end(Connection& from, const SegmentHeader& header, bool placed) override;
  Status on_frame(Connection& from, FrameType type, std::span<const std::byte> body) override;
  Status on_link_frame(TcpLink& link, Connection& from, FrameType type, std::span<const std::byte> body);
  void on_reading_paused(Connection& from) override;
  bool admit_read(Connection& from, std::size_t bytes) override { return all_.caps.admit_read(from, bytes); }
  void on_send_queue_empty(Connection& from) override;
  void on_segment_written(Connection& from, Lane lane, std::uint64_t number) override;
  void failed(const ConnectionPtr& from, Fault fault, const Status& why) override;

  void run_commands();
  void run(Command& command);
  void tick();
  void tick_link(TcpLink& link, TimePoint now);
  void stop();

  EngineParts all_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::vector<Command> running_;
  std::thread thread_;
};

}  // namespace collab::tcp
