// A swarm in one process: every rank of every site is a Session on a thread of its own, over the transport a test
// chooses, training a vector with a made-up rule that differs between sites and is the same within one.
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collab/codec.h"
#include "collab/session.h"
#include "core/runtime/tensors/host_vector.h"
#include "tests/transport/loopback_transport.h"

namespace collab::testing {

using PlainVector = HostVector;

// What a site's optimizer would do in one step: small, irregular, different at each site.
inline void train_one_step(std::vector<float>& values, std::size_t site, std::size_t step) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto noise = static_cast<float>((i * 2654435761U + step * 40503U + site * 97U) % 2001U) - 1000.0F;
    values[i] -= 1e-6F * noise * (1.0F + static_cast<float>(site));
  }
}

[[nodiscard]] inline std::vector<float> fresh_values(std::size_t elements, std::size_t seed) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = static_cast<float>((i * 7919U + seed * 104729U) % 10007U) / 10007.0F - 0.5F;
  }
  return values;
}

// What torch's process group is to a site of several hosts: collectives among the threads of one site.
class ThreadsSiteGroup {
 public:
  explicit ThreadsSiteGroup(std::size_t ranks) : given_(ranks), barrier_(static_cast<std::ptrdiff_t>(ranks)) {}

  [[nodiscard]] std::shared_ptr<SiteGroup> of_rank(std::size_t rank) { return std::make_shared<Rank>(*this, rank); }

 private:
  class Rank final : public SiteGroup {
   public:
    Rank(ThreadsSiteGroup& group, std::size_t rank) : group_(group), rank_(rank) {}
    Status broadcast(std::span<std::byte> bytes) override {
      if (rank_ == 0) group_.sent_ = bytes;
      group_.barrier_.arrive_and_wait();
      if (rank_ != 0) {
        COLLAB_CHECK(bytes.size() == group_.sent_.size(), "the ranks broadcast different sizes");
        std::ranges::copy(group_.sent_, bytes.begin());
      }
      group_.barrier_.arrive_and_wait();
      return {};
    }
    Result<std::vector<std::byte>> gather_all(std::span<const std::byte> bytes) override {
      group_.given_[rank_] = bytes;
      group_.barrier_.arrive_and_wait();
      std::vector<std::byte> all;
      for (const auto& given : group_.given_) all.insert(all.end(), given.begin(), given.end());
      group_.barrier_.arrive_and_wait();
      return all;
    }

   private:
    ThreadsSiteGroup& group_;
    std::size_t rank_;
  };

  std::vector<std::span<const std::byte>> given_;
  std::span<std::byte> sent_;
  std::barrier<> barrier_;
};

struct Swarm {
  std::size_t sites = 2;
  std::size_t ranks = 1;  // a site
  std::size_t elements = 10'000;
  Config config;  // of every site
  std::function<void(SessionOptions&, std::size_t site)> adjust = [](SessionOptions&, std::size_t) {};
  std::shared_ptr<LoopbackHub> hub = std::make_shared<LoopbackHub>();
  std::function<std::unique_ptr<Transport>()> transport = [this] { return make_loopback_transport(hub); };

  std::unique_ptr<CoordinatorServer> coordinator;
  std::vector<std::shared_ptr<PlainVector>> parameters;  // site-major

  void start_coordinator() {
    config.min_sites = static_cast<std::uint32_t>(sites);
    auto served = serve_coordinator(config, transport(), "127.0.0.1:0");
    COLLAB_CHECK(served.ok(), served.status().to_string());
    coordinator = std::move(*served);
    for (std::size_t i = 0; i < sites * ranks; ++i) {
      parameters.push_back(std::make_shared<PlainVector>(fresh_values(elements, 1 + i / ranks)));
    }
  }

  [[nodiscard]] SessionOptions options(std::size_t site, std::size_t rank) {
    SessionOptions options;
    options.config = config;
    options.config.site_index = static_cast<std::uint32_t>(site);
    options.config.listen = "127.0.0.1:0";
    options.site = "site" + std::to_string(site);
    options.layout.rank = static_cast<std::uint32_t>(rank);
    options.layout.size = static_cast<std::uint32_t>(ranks);
    options.coordinators = {coordinator->address()};
    options.model = {{"weights", "float32", {elements}, TensorKind::kAveraged, {}}};
    options.make_transport = [this]() -> Result<std::unique_ptr<Transport>> { return transport(); };
    adjust(options, site);
    return options;
  }

  // As the coordinator knows them; none while it is too busy to say.
  [[nodiscard]] std::vector<MemberStatus> members() const {
    const Result<CoordinatorReport> report = coordinator->report();
    return report.ok() ? report->status.members : std::vector<MemberStatus>();
  }

  // Runs `body(session, site, parameters)` on a thread for each rank; the first failure of each rank is returned.
  std::vector<Status> run(const std::function<Status(Session&, std::size_t site, std::vector<float>& values)>& body) {
    std::vector<Status> results(sites * ranks);
    std::vector<std::unique_ptr<ThreadsSiteGroup>> groups;
    for (std::size_t site = 0; site < sites; ++site) groups.push_back(std::make_unique<ThreadsSiteGroup>(ranks));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < sites * ranks; ++i) {
      threads.emplace_back([&, i] {
        auto session =
            make_session(options(i / ranks, i % ranks), parameters[i], groups[i / ranks]->of_rank(i % ranks));
        results[i] = session.ok() ? (*session)->begin() : session.status();
        if (results[i].ok()) results[i] = body(**session, i / ranks, parameters[i]->values());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
};

// `steps` steps with batches of 8 * (site + 1) samples, then a clean end.
[[nodiscard]] inline std::function<Status(Session&, std::size_t, std::vector<float>&)> train(std::size_t steps) {
  return [steps](Session& session, std::size_t site, std::vector<float>& values) -> Status {
    for (std::size_t step = 0; step < steps; ++step) {
      train_one_step(values, site, step);
      const Result<StepOutcome> outcome = session.step(8 * (site + 1));
      if (!outcome.ok()) return outcome.status();
    }
    return session.finish();
  };
}

}  // namespace collab::testing
