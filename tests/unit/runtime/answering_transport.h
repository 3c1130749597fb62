// A transport whose only peer is a function. It gets each message and answers at once, on the thread that sends.
//
// Threads: as the caller. Ownership: the function, and what was noted.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collab/transport.h"
#include "core/wire/encoding.h"

namespace collab::testing {

class AnsweringTransport final : public Transport {
 public:
  struct Heard {
    std::mutex mutex;
    std::vector<wire::Message> messages;
    std::vector<std::string> dialled;
    template <typename Message>
    [[nodiscard]] std::vector<Message> all() {
      const std::lock_guard lock(mutex);
      std::vector<Message> found;
      for (const wire::Message& each : messages) {
        if (const auto* message = std::get_if<Message>(&each)) found.push_back(*message);
      }
      return found;
    }
  };
  using Answer = std::function<std::vector<wire::Message>(const wire::Message&)>;

  // No answers at all: nobody listens.
  AnsweringTransport(std::shared_ptr<Heard> heard, Answer answer)
      : heard_(std::move(heard)), answer_(std::move(answer)) {}

  [[nodiscard]] std::string name() const override { return "answering"; }
  [[nodiscard]] Abilities abilities() const override { return {}; }
  Status start(TransportHandler* handler) override {
    handler_ = handler;
    return {};
  }
  Result<std::string> listen(const std::string& address) override { return address; }
  LinkId connect(const std::string& address, Duration /*timeout*/) override {
    {
      const std::lock_guard lock(heard_->mutex);
      heard_->dialled.push_back(address);
    }
    const LinkId link{++links_};
    if (answer_) {
      handler_->on_connected(link);
    } else {
      handler_->on_closed(link, unavailable("nobody listens at " + address));
    }
    return link;
  }
  void send(LinkId link, TransportMessage message, std::uint64_t /*token*/) override {
    const Result<wire::Message> said = wire::decode(message.head);
    {
      const std::lock_guard lock(heard_->mutex);
      heard_->messages.push_back(*said);
    }
    for (const wire::Message& each : answer_(*said)) {
      handler_->on_message(link, {.lane = Lane::kControl, .head = wire::encode(each), .payload = nullptr});
    }
  }
  void close(LinkId link) override { handler_->on_closed(link, {}); }

 private:
  std::shared_ptr<Heard> heard_;
  Answer answer_;
  TransportHandler* handler_ = nullptr;
  std::uint64_t links_ = 0;
};

}  // namespace collab::testing
