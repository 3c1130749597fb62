// What the first joiner brought and all others must match: the settings and the description of the model.
//
// Pure. Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <string>
#include <vector>

#include "core/protocol/fragments.h"
#include "core/wire/messages.h"

namespace collab::protocol {

// True if one of the settings depends on single tensors.
[[nodiscard]] bool needs_tensors(const std::vector<wire::Setting>& settings);

class ModelReference {
 public:
  explicit ModelReference(const wire::Join& join);

  [[nodiscard]] std::uint64_t elements() const { return elements_; }
  [[nodiscard]] const std::vector<wire::Setting>& settings() const { return settings_; }
  [[nodiscard]] Fragments fragments() const { return fragments_of(settings_, elements_); }
  [[nodiscard]] Digest fingerprint() const { return fingerprint_; }
  [[nodiscard]] bool weighs_equally() const;                          // COLLAB_WEIGHT=equal
  [[nodiscard]] bool knows_model() const { return !model_.empty(); }  // a helper does not
  // The averaged tensors, if a setting depends on them: this is what a helper needs to know of the model. Empty if they
  // would not fit into a message.
  [[nodiscard]] std::vector<wire::TensorLength> tensors() const;

  // Why two sites cannot be in one swarm: the first difference with both sides' values; empty when alike.
  [[nodiscard]] std::string first_difference(const wire::Join& join) const;
  // Names the left-out buffers that have other values at the joiner. Only once: the first answer that names any is the
  // last. Tables computed at the start may differ in the last bit between machines, so this is no reason to refuse
  // anybody.
  [[nodiscard]] std::string differing_values(const wire::Join& join);

 private:
  friend struct Inside;
  [[nodiscard]] std::string setting_difference(const wire::Join& join) const;
  [[nodiscard]] std::string left_out_difference(const wire::Join& join) const;
  [[nodiscard]] std::string model_difference(const wire::Join& join) const;

  std::string site_;
  std::uint64_t elements_ = 0;
  std::vector<wire::Setting> settings_;
  std::vector<wire::ModelEntry> model_;
  Digest fingerprint_{};
  bool values_told_ = false;
};

}  // namespace collab::protocol
