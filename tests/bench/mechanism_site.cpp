// One site of bench_mechanisms.py: rounds of a vector of float32 over tcp, with one mechanism of the transport switched
// off (BENCH_OFF), or none. What it trains is made up; where its rounds are measured is the emulated network around it.
//
//   BENCH_OFF            a name of the table below, or empty     BENCH_INDEX, BENCH_SITES  this site, and how many
//   BENCH_ELEMENTS       float32                                 BENCH_WARM, BENCH_ROUNDS  rounds before, and measured
//   BENCH_COORDINATOR    HOST:PORT; site 0 serves it             BENCH_ADDRESS             this site's host
//   BENCH_RESULT         file: the seconds of each round that is measured, as JSON
// Knobs are COLLAB_..., as for any site. `mechanism_site --names` prints the table.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collab/codec.h"
#include "collab/config.h"
#include "collab/session.h"
#include "core/base/log.h"
#include "core/runtime/tensors/host_vector.h"
#include "transport/tcp/pace/mechanisms.h"
#include "transport/tcp/tcp_transport.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace collab {
namespace tcp {
namespace {

struct Named {
  std::string_view name;
  Mechanism mechanism;
};
constexpr Named kNames[] = {
    {"rotation", Mechanism::kRotation}, {"patience", Mechanism::kPatience},
    {"shares", Mechanism::kShares},     {"second-copies", Mechanism::kSecondCopies},
    {"search", Mechanism::kSearch},     {"unverified-look", Mechanism::kUnverifiedLook},
    {"pace", Mechanism::kPace},         {"way-out", Mechanism::kWayOut},
    {"drain", Mechanism::kDrain},       {"small-segments", Mechanism::kSmallSegments},
    {"batches", Mechanism::kBatches},   {"little-unsent", Mechanism::kLittleUnsent},
};
static_assert(std::size(kNames) == static_cast<std::size_t>(Mechanism::kCount));

Mechanism switched_off = Mechanism::kCount;  // none

}  // namespace

bool off(Mechanism which) { return which == switched_off; }

}  // namespace tcp

namespace {

std::string setting(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

std::size_t number(const char* name) { return std::strtoull(setting(name).c_str(), nullptr, 10); }

// The only rank of its site.
class Alone final : public SiteGroup {
 public:
  Status broadcast(std::span<std::byte> /*bytes*/) override { return {}; }
  Result<std::vector<std::byte>> gather_all(std::span<const std::byte> bytes) override {
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  }
};

Result<LoadedConfig> knobs() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with("COLLAB_") && equals != std::string::npos) {
      found.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return load_config(found, {});
}

Status train(Session& session, HostVector& parameters, std::vector<double>& seconds) {
  COLLAB_RETURN_IF_ERROR(session.begin());
  const std::size_t warm = number("BENCH_WARM"), rounds = warm + number("BENCH_ROUNDS");
  const auto site = static_cast<float>(number("BENCH_INDEX") + 1);
  for (std::size_t round = 0; round < rounds; ++round) {
    float step = 1e-3F * site;
    for (float& value : parameters.values()) value += step = -step;
    const Result<bool> counted = session.count_step(1);
    if (!counted.ok()) return counted.status();
    const auto begun = std::chrono::steady_clock::now();
    if (const Result<StepOutcome> outcome = session.synchronize(); !outcome.ok()) return outcome.status();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    if (round >= warm) seconds.push_back(took.count());
  }
  return session.finish();
}

Status run(std::vector<double>& seconds) {
  const Result<LoadedConfig> loaded = knobs();
  if (!loaded.ok()) return loaded.status();
  set_log_level(LogLevel::kWarning);
  set_log_source("bench", std::nullopt);
  const TcpOptions tcp = tcp_options(*loaded);
  SessionOptions options;
  options.config = loaded->config;
  options.config.min_sites = static_cast<std::uint32_t>(number("BENCH_SITES"));
  options.config.site_index = static_cast<std::uint32_t>(number("BENCH_INDEX"));
  options.config.listen = setting("BENCH_ADDRESS") + ":0";
  options.site = "s" + setting("BENCH_INDEX");
  options.coordinators = {setting("BENCH_COORDINATOR")};
  options.model = {{"weights", "float32", {number("BENCH_ELEMENTS")}, TensorKind::kAveraged, {}}};
  options.make_transport = [&] { return make_tcp_transport(tcp); };

  std::unique_ptr<CoordinatorServer> coordinator;
  if (number("BENCH_INDEX") == 0) {
    Result<std::unique_ptr<Transport>> transport = make_tcp_transport(tcp);
    if (!transport.ok()) return transport.status();
    auto served = serve_coordinator(options.config, std::move(*transport), setting("BENCH_COORDINATOR"));
    if (!served.ok()) return served.status();
    coordinator = std::move(*served);
  }
  const auto parameters = std::make_shared<HostVector>(std::vector<float>(number("BENCH_ELEMENTS"), 0.5F));
  auto session = make_session(options, parameters, std::make_shared<Alone>());
  if (!session.ok()) return session.status();
  COLLAB_RETURN_IF_ERROR(train(**session, *parameters, seconds));
  return coordinator != nullptr ? coordinator->wait_until_empty(std::chrono::seconds(60)) : Status();
}

}  // namespace
}  // namespace collab

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--names") {
    for (const auto& row : collab::tcp::kNames) std::cout << row.name << "\n";
    return 0;
  }
  const std::string wanted = collab::setting("BENCH_OFF");
  for (const auto& row : collab::tcp::kNames) {
    if (row.name == wanted) collab::tcp::switched_off = row.mechanism;
  }
  if (!wanted.empty() && collab::tcp::switched_off == collab::tcp::Mechanism::kCount) {
    std::cerr << "mechanism_site: BENCH_OFF=" << wanted << " is none of `mechanism_site --names`\n";
    return 2;
  }
  std::vector<double> seconds;
  if (const collab::Status status = collab::run(seconds); !status.ok()) {
    std::cerr << "mechanism_site: " << status.message() << "\n";
    return 1;
  }
  std::ofstream file(collab::setting("BENCH_RESULT"));
  for (std::size_t i = 0; i < seconds.size(); ++i) file << (i == 0 ? "[" : ", ") << seconds[i];
  file << "]\n";
  return file.flush() ? 0 : 1;
}
