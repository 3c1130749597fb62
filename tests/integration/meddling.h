// A transport between a site and the others that shows what is sent, and interferes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collab/transport.h"
#include "core/wire/encoding.h"

namespace collab::testing {

// What a message announces, if it is a chunk.
[[nodiscard]] inline std::optional<wire::Chunk> chunk_of(const TransportMessage& message) {
  const auto decoded = wire::decode(message.head);
  const auto* chunk = decoded.ok() ? std::get_if<wire::Chunk>(&*decoded) : nullptr;
  return chunk == nullptr ? std::nullopt : std::optional(*chunk);
}

// Shows whatever is sent on a lane to `meddle`, which may change it or keep it back (false).
class Meddling final : public Transport, private TransportHandler {
 public:
  using Meddle = std::function<bool(Meddling&, LinkId, TransportMessage&, std::uint64_t token)>;
  Meddling(std::unique_ptr<Transport> inner, Meddle meddle, Lane lane = Lane::kData)
      : inner_(std::move(inner)), meddle_(std::move(meddle)), lane_(lane) {}
  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] Abilities abilities() const override { return inner_->abilities(); }
  Status start(TransportHandler* handler) override {
    handler_ = handler;
    return inner_->start(this);
  }
  Result<std::string> listen(const std::string& address) override { return inner_->listen(address); }
  LinkId connect(const std::string& address, Duration timeout) override {
    return inner_->connect(dead_ ? "127.0.0.1:65535" : address, timeout);
  }
  void send(LinkId link, TransportMessage message, std::uint64_t token) override {
    if (message.lane == lane_ && !meddle_(*this, link, message, token)) return;
    {
      const std::lock_guard lock(mutex_);
      links_.insert(link);
    }
    inner_->send(link, std::move(message), token);
  }
  void close(LinkId link) override { inner_->close(link); }
  // All links close, as if the process were killed, and there are no others.
  void die() {
    dead_ = true;
    const std::lock_guard lock(mutex_);
    for (const LinkId link : links_) inner_->close(link);
  }
  void pass(LinkId link, TransportMessage message, std::uint64_t token) {
    inner_->send(link, std::move(message), token);
  }

 private:
  void on_accepted(LinkId link, const std::string& peer) override { handler_->on_accepted(link, peer); }
  void on_connected(LinkId link) override { handler_->on_connected(link); }
  void on_message(LinkId link, TransportMessage message) override { handler_->on_message(link, std::move(message)); }
  void on_sent(LinkId link, std::uint64_t token) override { handler_->on_sent(link, token); }
  void on_closed(LinkId link, Status why) override { handler_->on_closed(link, std::move(why)); }

  TransportHandler* handler_ = nullptr;
  std::unique_ptr<Transport> inner_;
  Meddle meddle_;
  const Lane lane_;
  std::atomic<bool> dead_ = false;
  std::mutex mutex_;
  std::set<LinkId> links_;  // used so far
};

// What is kept back, to be given later.
class Held {
 public:
  void keep(Meddling& by, LinkId link, TransportMessage message, std::uint64_t token) {
    messages_.push_back({&by, link, std::move(message), token});
  }
  void release() {
    for (Message& each : messages_) each.by->pass(each.link, std::move(each.message), each.token);
    messages_.clear();
  }

 private:
  struct Message {
    Meddling* by;
    LinkId link;
    TransportMessage message;
    std::uint64_t token;
  };
  std::vector<Message> messages_;
};

}  // namespace collab::testing
