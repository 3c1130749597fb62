#include "tests/transport/conformance.h"
#include "tests/transport/loopback_transport.h"

namespace collab::testing {
namespace {

class LoopbackWorld final : public World {
 public:
  std::unique_ptr<Transport> make(const std::string&) override { return make_loopback_transport(hub_); }
  [[nodiscard]] std::string any_port(const std::string& host) const override { return host + ":0"; }
  [[nodiscard]] std::string nobody() const override { return "nobody:1"; }

 private:
  const std::shared_ptr<LoopbackHub> hub_ = std::make_shared<LoopbackHub>();
};

INSTANTIATE_TEST_SUITE_P(Loopback, TransportConformance,
                         ::testing::Values(Subject{"loopback", [] { return std::make_unique<LoopbackWorld>(); }}),
                         subject_name);

}  // namespace
}  // namespace collab::testing
