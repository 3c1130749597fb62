#include "core/runtime/node_settings.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/runtime/schedule.h"
#include "core/runtime/tensors/kept_tensors.h"
#include "core/runtime/tensors/radial_tensors.h"

namespace collab {
namespace {

// Chunks are whole groups of top-k, so that their size does not change what is sent.
constexpr std::uint64_t kGrain = 4096;

// The period that COLLAB_OUTER_LR=auto uses. It must be equal at all sites, so it is not the leader's choice.
[[nodiscard]] std::uint64_t period_of(const Config& config, std::uint32_t fragments) {
  const std::uint64_t steps = period_of_elements(config.sync_every, fragments);
  return steps == 0 ? kReferencePeriod : steps;
}

// With `rda` norms follow a mean: at most 16 bytes for each of 65536 tensors, and two parts with 4096 sites each.
constexpr std::uint32_t kMostRadialKib = 32 * 1024;

}  // namespace

protocol::SiteConfig site_config(const Node::Options& options) {
  const Config& config = options.config;
  return {.coordinators = options.coordinators,
          .join_timeout = config.join_timeout,
          .round_timeout = config.round_timeout,
          .link_grace = config.link_grace,
          .weight = config.weight,
          .terms = protocol::term_limit(std::chrono::system_clock::now().time_since_epoch(), SteadyClock().now())};
}

DataSettings data_settings(const Node::Options& options, std::uint64_t elements, const protocol::Fragments& fragments) {
  const Config& config = options.config;
  KeptTensors kept = kept_tensors(config.keep_fp16, options.model, elements, options.outer_elements);
  for (const std::string& word : kept.unmatched) {
    log_warning("COLLAB_KEEP_FP16: no tensor of the model has " + json_quote(word) +
                " in its name, so it keeps nothing [knob.keeps-nothing]");
  }
  if (fragments.count != config.fragments) {
    log_warning("COLLAB_FRAGMENTS=" + std::to_string(config.fragments) + ": the model has " + std::to_string(elements) +
                " elements, and a fragment at least " + std::to_string(kBlockElements) +
                "; rounds average all of it [knob.too-many-fragments]");
  }
  const bool follows = config.outer_optimizer == OuterId::kRda;
  const std::uint64_t kib = follows ? std::min(config.chunk_kib, kMostRadialKib) : config.chunk_kib;
  const std::uint64_t chunk = kib * 1024 / sizeof(float);
  return {.codec = config.codec,
          .error_feedback = config.error_feedback,
          .feedback_decay = static_cast<float>(config.feedback_decay),
          .kept = std::move(kept.ranges),
          .radial = radial_tensors(options.model, elements, options.outer_elements),
          .outer = {.id = config.outer_optimizer,
                    .lr = static_cast<float>(config.outer_lr),
                    .momentum = static_cast<float>(config.outer_momentum),
                    .clip = static_cast<float>(config.outer_clip),
                    .period = period_of(config, fragments.count)},
          .keeps_mean = config.overlap && config.merge.rule == MergeRule::kRebase,
          .outer_elements = options.outer_elements,
          .chunk_elements = has_top_k(config.codec) ? (chunk + kGrain - 1) / kGrain * kGrain : chunk};
}

SiteStorage::Options storage_options(Node::Options& options, const protocol::Fragments& fragments) {
  const Config& config = options.config;
  StateHeader header;
  header.swarm = config.run;
  header.site = options.site;
  header.fingerprint = options.fingerprint;
  const bool saves = !config.state_dir.empty();
  return {.path = saves ? state_path(config.state_dir, options.site, options.generation) : std::string(),
          .every_rounds = std::uint64_t{config.save_every} * fragments.count,
          .header = std::move(header),
          .model = options.model,
          .found = options.kept,
          .found_ended = options.kept_ended,
          .record = std::exchange(options.record, std::nullopt),
          .disk = options.disk};
}

}  // namespace collab
