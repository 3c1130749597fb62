#include "core/protocol/coordinator/model_reference.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/formatting.h"
#include "core/wire/limits.h"
#include "core/wire/rules.h"

namespace collab::protocol {
namespace {

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::vector<std::string> sizes;
  for (const std::uint64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join_words(sizes) + "]";
}

std::string entry_difference(const wire::ModelEntry& here, const wire::ModelEntry& there, const std::string& site) {
  const auto kind = [](const wire::ModelEntry& entry) { return std::string(name_of(entry.kind)); };
  if (here.name != there.name) return ": " + json_quote(here.name) + " here, " + json_quote(there.name) + " at " + site;
  const std::string name = " " + json_quote(here.name) + ": ";
  if (here.dtype != there.dtype) return name + "dtype " + here.dtype + " here, " + there.dtype + " at " + site;
  if (here.shape != there.shape) {
    return name + "shape " + shape_text(here.shape) + " here, " + shape_text(there.shape) + " at " + site;
  }
  if (here.kind != there.kind) return name + kind(here) + " here, " + kind(there) + " at " + site;
  if (here.kind == TensorKind::kFrozen && here.digest != there.digest) {
    return name + "frozen, and its values differ: digest " + to_hex(here.digest) + " here, " + to_hex(there.digest) +
           " at " + site;
  }
  return {};
}

bool same_tensor(const wire::ModelEntry& a, const wire::ModelEntry& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
}

}  // namespace

ModelReference::ModelReference(const wire::Join& join)
    : site_(join.site),
      elements_(join.elements),
      settings_(join.settings),
      model_(join.helper ? std::vector<wire::ModelEntry>{} : join.model),
      fingerprint_(join.fingerprint) {}

bool ModelReference::weighs_equally() const { return value_of(settings_, "weight") == "equal"; }

bool needs_tensors(const std::vector<wire::Setting>& settings) {
  return value_of(settings, "keep_fp16").value_or("none") != "none" || value_of(settings, "outer_optimizer") == "rda";
}

std::vector<wire::TensorLength> ModelReference::tensors() const {
  std::vector<wire::TensorLength> tensors;
  if (!needs_tensors(settings_)) return tensors;
  std::size_t bytes = 0;
  for (const wire::ModelEntry& entry : model_) {
    if (entry.kind != TensorKind::kAveraged) continue;
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : entry.shape) {
      if (extent == 0) elements = 0;
      elements = extent > 0 && elements > wire::kMaxElements / extent ? wire::kMaxElements : elements * extent;
    }
    tensors.push_back({entry.name, elements});
    bytes += entry.name.size() + 16;
  }
  return bytes > wire::kMaxTensorsBytes ? std::vector<wire::TensorLength>{} : tensors;
}

std::string ModelReference::first_difference(const wire::Join& join) const {
  if (std::string difference = left_out_difference(join); !difference.empty()) return difference;
  if (std::string difference = setting_difference(join); !difference.empty()) return difference;
  std::string difference = model_difference(join);
  if (difference.empty() && join.elements != elements_) {
    difference = "the parameter vector: " + std::to_string(join.elements) + " elements here, " +
                 std::to_string(elements_) + " at " + site_;
  }
  if (difference.empty()) return {};
  return difference +
         "; all sites must train the same model, with the same parameters frozen at the same values: start the same "
         "script with the same settings everywhere [join.model-mismatch]";
}

std::string ModelReference::setting_difference(const wire::Join& join) const {
  const auto text_in = [](const std::vector<wire::Setting>& settings, const std::string& key) {
    return std::string(value_of(settings, key).value_or("no such setting"));
  };
  std::vector<std::string> keys;
  for (const auto& setting : join.settings) keys.push_back(setting.key);
  for (const auto& setting : settings_) keys.push_back(setting.key);
  for (const std::string& key : keys) {
    const std::string here = text_in(join.settings, key);
    const std::string there = text_in(settings_, key);
    if (here != there) {
      return key + ": this site has " + here + ", the swarm (from " + site_ + ") has " + there +
             "; set it to the same value at all sites [join.setting-mismatch]";
    }
  }
  return {};
}

// Two sites with the same model leave out different buffers. Then their vectors differ too, and the two lists say why.
std::string ModelReference::left_out_difference(const wire::Join& join) const {
  if (join.helper || !std::ranges::equal(join.model, model_, same_tensor)) return {};
  std::vector<std::string> here;
  std::vector<std::string> there;
  for (std::size_t i = 0; i < join.model.size(); ++i) {
    if (join.model[i].kind == TensorKind::kLeftOut) here.push_back(join.model[i].name);
    if (model_[i].kind == TensorKind::kLeftOut) there.push_back(model_[i].name);
  }
  if (here == there) return {};
  return "buffers left out of the average: here " + names_text(here, there) + "; at " + site_ + " " +
         names_text(there, here) +
         ". A buffer is left out if it is not persistent, or holds NaN or infinity when training begins: begin with "
         "the same model at all sites, or set COLLAB_BUFFERS=0 at all of them [join.buffers-mismatch]";
}

std::string ModelReference::model_difference(const wire::Join& join) const {
  if (join.helper || model_.empty()) return {};
  const std::size_t common = std::min(join.model.size(), model_.size());
  for (std::size_t i = 0; i < common; ++i) {
    const std::string difference = entry_difference(join.model[i], model_[i], site_);
    if (!difference.empty()) return "parameter " + std::to_string(i) + difference;
  }
  if (join.model.size() != model_.size()) {
    const auto& longer = join.model.size() > common ? join.model : model_;
    return "parameter " + std::to_string(common) + " " + json_quote(longer[common].name) + ": " +
           (join.model.size() > common ? "here only" : "at " + site_ + " only") + " (" +
           std::to_string(join.model.size()) + " parameters here, " + std::to_string(model_.size()) + " at " + site_ +
           ")";
  }
  return {};
}

std::string ModelReference::differing_values(const wire::Join& join) {
  if (join.helper || values_told_ || join.model.size() != model_.size()) return {};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < join.model.size(); ++i) {
    if (join.model[i].kind != TensorKind::kLeftOut || join.model[i].digest == model_[i].digest) continue;
    names.push_back(join.model[i].name);
  }
  if (names.empty()) return {};
  values_told_ = true;
  return "buffers that are left out of the average have different values at " + join.site + " and at " + site_ +
         ", and each site keeps its own: " + names_text(names, {}) + " [join.buffer-values]";
}

}  // namespace collab::protocol
