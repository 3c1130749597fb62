// A Transport in front of an engine that runs on a thread of its own.
//
// Threads and ownership: as collab/transport.h says; owns the engine, except in a forked child.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "collab/transport.h"

namespace collab {

template <typename Engine>
class EngineTransport final : public Transport {
 public:
  EngineTransport(std::string name, Abilities abilities, std::unique_ptr<Engine> engine)
      : name_(std::move(name)), abilities_(abilities), engine_(std::move(engine)) {}
  ~EngineTransport() override {
    // A forked child has neither the thread nor the right to the parent's connections.
    if (engine_->in_child()) [[maybe_unused]]
      auto* left_alone = engine_.release();
  }

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] Abilities abilities() const override { return abilities_; }
  Status start(TransportHandler* handler) override { return engine_->start(handler); }
  Result<std::string> listen(const std::string& address) override { return engine_->listen(address); }
  LinkId connect(const std::string& address, Duration timeout) override { return engine_->connect(address, timeout); }
  void send(LinkId link, TransportMessage message, std::uint64_t token) override {
    engine_->send(link, std::move(message), token);
  }
  void close(LinkId link) override { engine_->close(link); }
  [[nodiscard]] const Engine& engine() const { return *engine_; }

 private:
  std::string name_;
  Abilities abilities_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace collab
