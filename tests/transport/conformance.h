// One suite that holds every transport to the interface and to the abilities it declares.
//
// A transport takes part with a World (how its transports are made and driven) and one line,
// INSTANTIATE_TEST_SUITE_P(Name, TransportConformance, testing::Values(Subject{...}), subject_name), in an
// executable that also compiles conformance.cpp.
//
// Threads: a Recorder may be called from any one thread at a time and read from the test's; it fails the test
// when two calls overlap.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "collab/transport.h"

namespace collab::testing {

// Where the transports of one test live.
class World {
 public:
  virtual ~World() = default;
  virtual std::unique_ptr<Transport> make(const std::string& host) = 0;
  // What a transport made for `host` listens on with a free port.
  [[nodiscard]] virtual std::string any_port(const std::string& host) const = 0;
  // Nobody listens there; dials fail.
  [[nodiscard]] virtual std::string nobody() const = 0;
  // Takes the dial and never answers; nothing when there is no such place.
  [[nodiscard]] virtual std::optional<std::string> silent() { return std::nullopt; }
  // Virtual time only: runs the next event, false when nothing is due. Worlds with threads leave it.
  virtual bool step() { return false; }
};

struct Subject {
  std::string name;
  std::function<std::unique_ptr<World>()> make_world = nullptr;
  bool threads = true;  // handlers run on threads of their own (and may be held up by a test)
  std::size_t many_peers = 16;
  // Starts a process that dials the address and sends without end until it is killed. Needed when the
  // transport says it sees a peer's death and its peers are processes.
  std::function<pid_t(const std::string& address)> spawn_peer = nullptr;
};
inline void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }
inline std::string subject_name(const ::testing::TestParamInfo<Subject>& info) { return info.param.name; }

// Keeps what a handler is told.
class Recorder final : public TransportHandler {
 public:
  struct Received {
    LinkId link;
    TransportMessage message;
  };

  // Called on the transport's thread, after the call was recorded. Set before the transport starts.
  std::function<void(LinkId)> when_accepted;
  std::function<void(LinkId)> when_connected;
  std::function<void(LinkId, const TransportMessage&)> when_message;
  std::function<void(LinkId, std::uint64_t)> when_sent;
  bool keep_messages = true;
  bool handles = true;  // false: what comes counts as not handled until forget()

  void on_authenticated(LinkId link, const std::vector<std::string>& names) override;
  void on_accepted(LinkId link, const std::string& peer) override;
  void on_connected(LinkId link) override;
  void on_message(LinkId link, TransportMessage message) override;
  void on_sent(LinkId link, std::uint64_t token) override;
  void on_closed(LinkId link, Status why) override;

  [[nodiscard]] std::vector<LinkId> accepted() const;
  [[nodiscard]] bool connected(LinkId link) const;
  [[nodiscard]] std::size_t messages() const;
  [[nodiscard]] std::size_t sent() const;
  [[nodiscard]] std::vector<Received> received() const;
  [[nodiscard]] std::vector<std::uint64_t> tokens() const;
  [[nodiscard]] std::optional<Status> closed(LinkId link) const;
  [[nodiscard]] std::size_t closed_count() const;
  [[nodiscard]] std::vector<std::string> proved(LinkId link) const;
  void forget();  // the messages that have come

 private:
  class Call;
  std::atomic<int> inside_{0};
  mutable std::mutex mutex_;
  std::vector<LinkId> accepted_, connected_;
  std::vector<Received> received_;
  std::size_t messages_ = 0;
  std::vector<std::uint64_t> tokens_;
  std::map<LinkId, Status> closed_;
  std::map<LinkId, std::vector<std::string>> authenticated_;
};

// A transport and what it told. Destroys the transport first.
struct Peer {
  Recorder seen;
  std::unique_ptr<Transport> transport;
  std::string address;  // when it listens
};

// Holds up handlers until opened.
class Gate {
 public:
  void wait();
  void open();

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

class TransportConformance : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A started transport; `prepare` sees its recorder before the start.
  Peer& add(const std::string& host, const std::function<void(Recorder&)>& prepare = nullptr);
  Peer& add_listening(const std::string& host, const std::function<void(Recorder&)>& prepare = nullptr);
  struct Linked {
    LinkId from, to;
  };
  Linked link(Peer& from, Peer& to);
  // Drives the world until the predicate holds; false after `limit` of real time or when nothing is due.
  bool until(const std::function<bool()>& holds, Duration limit = std::chrono::seconds(20));

  std::unique_ptr<World> world_;
  std::shared_ptr<BufferPool> pool_;
  Gate gate_;  // opened before the transports end
  std::vector<std::unique_ptr<Peer>> peers_;
};

// A message whose bytes follow from `number` and its sizes; check_pattern finds any that differ.
[[nodiscard]] TransportMessage make_message(BufferPool& pool, Lane lane, std::uint64_t number, std::size_t head_bytes,
                                            std::size_t payload_bytes);
[[nodiscard]] std::uint64_t number_of(const TransportMessage& message);
[[nodiscard]] ::testing::AssertionResult follows_pattern(const TransportMessage& message);

}  // namespace collab::testing
