// A transport without peers: it notes what was sent, dialled and closed.
//
// Threads: one. Ownership: what was noted.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collab/transport.h"
#include "core/wire/encoding.h"

namespace collab::testing {

class NotingTransport final : public Transport {
 public:
  struct Sent {
    LinkId link;
    TransportMessage message;
    std::uint64_t token = 0;
  };

  [[nodiscard]] std::string name() const override { return "noting"; }
  [[nodiscard]] Abilities abilities() const override { return {}; }
  Status start(TransportHandler* /*handler*/) override { return {}; }
  Result<std::string> listen(const std::string& address) override { return address; }
  LinkId connect(const std::string& address, Duration /*timeout*/) override {
    dialled.push_back(address);
    return LinkId{1000 + dialled.size()};
  }
  void send(LinkId link, TransportMessage message, std::uint64_t token) override {
    sent.push_back({link, std::move(message), token});
  }
  void close(LinkId link) override { closed.push_back(link); }

  // The oldest that was sent.
  TransportMessage take() {
    EXPECT_FALSE(sent.empty()) << "nothing was sent";
    if (sent.empty()) return {};
    TransportMessage message = std::move(sent.front().message);
    sent.pop_front();
    return message;
  }
  template <typename Message>
  Message take() {
    const Result<wire::Message> message = wire::decode(take().head);
    const auto* as = message.ok() ? std::get_if<Message>(&*message) : nullptr;
    EXPECT_NE(as, nullptr) << "another message was sent";
    return as == nullptr ? Message{} : *as;
  }
  [[nodiscard]] std::vector<std::uint64_t> tokens() const {
    std::vector<std::uint64_t> all;
    for (const Sent& each : sent) all.push_back(each.token);
    return all;
  }

  std::deque<Sent> sent;
  std::vector<std::string> dialled;
  std::vector<LinkId> closed;
};

}  // namespace collab::testing
