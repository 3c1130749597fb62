#include "transport/ucx/ucx_transport.h"

#include <utility>

#include "transport/ucx/ucx_api.h"
#include "transport/ucx/ucx_engine.h"

namespace collab {
namespace {

class UcxTransport final : public Transport {
 public:
  explicit UcxTransport(std::unique_ptr<UcxEngine> engine) : engine_(std::move(engine)) {}
  ~UcxTransport() override {
    // The child of a fork has neither the thread nor the right to the parent's connections.
    if (engine_->in_child()) [[maybe_unused]]
      auto* left_alone = engine_.release();
  }

  [[nodiscard]] std::string name() const override { return "ucx"; }
  [[nodiscard]] Abilities abilities() const override { return {.between_hosts = true, .sees_peer_death = true}; }
  Status start(TransportHandler* handler) override { return engine_->start(handler); }
  Result<std::string> listen(const std::string& address) override { return engine_->listen(address); }
  LinkId connect(const std::string& address, Duration timeout) override { return engine_->connect(address, timeout); }
  void send(LinkId link, TransportMessage message, std::uint64_t token) override {
    engine_->send(link, std::move(message), token);
  }
  void close(LinkId link) override { engine_->close(link); }

 private:
  std::unique_ptr<UcxEngine> engine_;
};

}  // namespace

UcxOptions ucx_options(const LoadedConfig& loaded) {
  UcxOptions options;
  if (loaded.config.connections != 0) options.connections = loaded.config.connections;
  options.insecure = loaded.config.insecure;
  options.listen = loaded.config.listen;
  return options;
}

Result<std::unique_ptr<Transport>> make_ucx_transport(UcxOptions options) {
  if (options.connections < 1 || options.connections > kMaxConnections) {
    return invalid_argument("ucx: expected 1 to " + std::to_string(kMaxConnections) + " connections a link, got " +
                            std::to_string(options.connections) + " [ucx.connections]");
  }
  auto engine = UcxEngine::make(options);
  if (!engine.ok()) return engine.status();
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(std::move(*engine)));
}

Result<UcxDescription> ucx_description(const std::string& library_dir) {
  auto api = load_ucx(library_dir);
  if (!api.ok()) return api.status();
  return UcxDescription{(*api)->version, (*api)->path};
}

}  // namespace collab
