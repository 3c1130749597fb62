// Two sites agree on a model in one process, with nothing but the installed headers and libraries.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collab/codec.h"
#include "collab/config.h"
#include "collab/session.h"
#include "transport/tcp/tcp_transport.h"

namespace {

class Parameters final : public collab::ParameterVector {
 public:
  Parameters(std::size_t size, float value) : values(size, value) {}
  std::uint64_t size() const override { return values.size(); }
  std::span<float> view(std::uint64_t offset, std::uint64_t count) override {
    return std::span(values).subspan(offset, count);
  }
  collab::Status read(std::uint64_t offset, std::span<float> out) override {
    std::ranges::copy(std::span(values).subspan(offset, out.size()), out.begin());
    return {};
  }
  collab::Status write(std::uint64_t offset, std::span<const float> in) override {
    std::ranges::copy(in, values.begin() + static_cast<std::ptrdiff_t>(offset));
    return {};
  }
  std::vector<float> values;
};

class OneRank final : public collab::SiteGroup {
 public:
  collab::Status broadcast(std::span<std::byte>) override { return {}; }
  collab::Result<std::vector<std::byte>> gather_all(std::span<const std::byte> bytes) override {
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  }
};

int fail(const collab::Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

// Adds `step` to every parameter once, then agrees with the others.
int train(collab::Config config, const std::string& coordinator, std::uint32_t site, float step,
          std::shared_ptr<Parameters> parameters) {
  config.site_index = site;
  collab::SessionOptions options;
  options.config = config;
  options.site = "site" + std::to_string(site);
  options.coordinators = {coordinator};
  options.model = {{"weight", "float32", {parameters->size()}, collab::TensorKind::kAveraged, {}}};
  options.make_transport = [] { return collab::make_tcp_transport({}); };
  auto session = collab::make_session(std::move(options), parameters, std::make_shared<OneRank>());
  if (!session.ok()) return fail(session.status());
  if (auto status = (*session)->begin(); !status.ok()) return fail(status);
  for (float& value : parameters->values) value += step;
  if (auto outcome = (*session)->step(1); !outcome.ok()) return fail(outcome.status());
  if (auto outcome = (*session)->synchronize(); !outcome.ok()) return fail(outcome.status());
  if (auto status = (*session)->finish(); !status.ok()) return fail(status);
  return 0;
}

}  // namespace

int main() {
  const auto loaded = collab::load_config({{"COLLAB_CODEC", "fp32"}, {"COLLAB_LISTEN", "127.0.0.1:0"}});
  if (!loaded.ok()) return fail(loaded.status());
  collab::Config config = loaded->config;
  config.min_sites = 2;
  auto transport = collab::make_tcp_transport({});
  if (!transport.ok()) return fail(transport.status());
  auto coordinator = collab::serve_coordinator(config, std::move(*transport), "127.0.0.1:0");
  if (!coordinator.ok()) return fail(coordinator.status());
  const std::string address = (*coordinator)->address();

  const auto a = std::make_shared<Parameters>(5000, 1.0F);
  const auto b = std::make_shared<Parameters>(5000, 9.0F);  // round 0 gives it the lowest site's
  int failed_a = 1;
  int failed_b = 1;
  std::thread first([&] { failed_a = train(config, address, 0, 1.0F, a); });
  std::thread second([&] { failed_b = train(config, address, 1, 2.0F, b); });
  first.join();
  second.join();
  if (failed_a != 0 || failed_b != 0) return 1;
  const bool agreed = std::ranges::all_of(a->values, [](float x) { return x == 2.5F; }) && a->values == b->values;
  std::printf("two sites %s at %g with the %s codec and %zu knobs\n", agreed ? "agree" : "DISAGREE",
              static_cast<double>(a->values[0]), collab::name_of(config.codec).c_str(), loaded->values.size());
  return agreed ? 0 : 1;
}
