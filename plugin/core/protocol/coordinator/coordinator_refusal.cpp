// Who may not join: what a joiner and the swarm must have in common, and the first thing in which they differ.
#include <algorithm>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::vector<std::string> sizes;
  for (const std::uint64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join_words(sizes) + "]";
}

std::string setting_difference(const wire::Join& join, const Reference& reference) {
  const auto value_in = [](const std::vector<wire::Setting>& settings, const std::string& key) {
    const auto found = std::find_if(settings.begin(), settings.end(), [&](const auto& s) { return s.key == key; });
    return found == settings.end() ? std::string("no such setting") : found->value;
  };
  std::vector<std::string> keys;
  for (const auto& setting : join.settings) keys.push_back(setting.key);
  for (const auto& setting : reference.settings) keys.push_back(setting.key);
  for (const std::string& key : keys) {
    const std::string here = value_in(join.settings, key);
    const std::string there = value_in(reference.settings, key);
    if (here != there) {
      return key + ": this site has " + here + ", the swarm (from " + reference.site + ") has " + there +
             "; set it alike at all sites";
    }
  }
  return {};
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

// Of one model, the sites leave out other buffers: then they have other vectors too, and both lists say why.
std::string left_out_difference(const wire::Join& join, const Reference& reference) {
  if (join.helper || !std::ranges::equal(join.model, reference.model, same_tensor)) return {};
  std::vector<std::string> here;
  std::vector<std::string> there;
  for (std::size_t i = 0; i < join.model.size(); ++i) {
    if (join.model[i].kind == TensorKind::kLeftOut) here.push_back(join.model[i].name);
    if (reference.model[i].kind == TensorKind::kLeftOut) there.push_back(reference.model[i].name);
  }
  if (here == there) return {};
  return "buffers left out of the average: here " + names_text(here, there) + "; at " + reference.site + " " +
         names_text(there, here) +
         ". A buffer is left out that is not persistent, or holds NaN or infinity when training begins: begin with the "
         "same model at all sites, or set COLLAB_BUFFERS=0 at all of them";
}

std::string model_difference(const wire::Join& join, const Reference& reference) {
  if (join.helper || reference.model.empty()) return {};
  const std::size_t common = std::min(join.model.size(), reference.model.size());
  for (std::size_t i = 0; i < common; ++i) {
    const std::string difference = entry_difference(join.model[i], reference.model[i], reference.site);
    if (!difference.empty()) return "parameter " + std::to_string(i) + difference;
  }
  if (join.model.size() != reference.model.size()) {
    const auto& longer = join.model.size() > common ? join.model : reference.model;
    return "parameter " + std::to_string(common) + " " + json_quote(longer[common].name) + ": " +
           (join.model.size() > common ? "here only" : "at " + reference.site + " only") + " (" +
           std::to_string(join.model.size()) + " parameters here, " + std::to_string(reference.model.size()) + " at " +
           reference.site + ")";
  }
  return {};
}

}  // namespace

std::string first_difference(const wire::Join& join, const Reference& reference) {
  if (std::string difference = left_out_difference(join, reference); !difference.empty()) return difference;
  if (std::string difference = setting_difference(join, reference); !difference.empty()) return difference;
  std::string difference = model_difference(join, reference);
  if (difference.empty() && join.elements != reference.elements) {
    difference = "the parameter vector: " + std::to_string(join.elements) + " elements here, " +
                 std::to_string(reference.elements) + " at " + reference.site;
  }
  if (difference.empty()) return {};
  return difference +
         "; all sites must train the same model, with the same parameters frozen at the same values: start the same "
         "script with the same settings everywhere";
}

// Tables computed at the start may differ in the last bit between machines, so this is no reason to refuse anybody.
void Coordinator::State::compare_left_out(const wire::Join& join, const MemberRecord& joiner) {
  if (join.helper || reference->values_told || join.model.size() != reference->model.size()) return;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < join.model.size(); ++i) {
    if (join.model[i].kind != TensorKind::kLeftOut || join.model[i].digest == reference->model[i].digest) continue;
    names.push_back(join.model[i].name);
  }
  if (names.empty()) return;
  reference->values_told = true;
  const std::string text = "buffers that are left out of the average have other values at " + join.site + " than at " +
                           reference->site + ", and each site keeps its own: " + names_text(names, {});
  note(Note::Level::kWarning, "buffers", text, {{"who", json_quote(join.site)}});
  send(joiner, wire::Notice{"buffers", text});
}

std::string Coordinator::State::refusal(const wire::Join& join) const {
  if (join.swarm != config.swarm) {
    return "this coordinator serves the swarm " + json_quote(config.swarm) + ", this site asks for " +
           json_quote(join.swarm) + ": set COLLAB_RUN alike, or another COLLAB_COORDINATOR";
  }
  if (join.site.empty()) return "a site needs a name: set COLLAB_SITE";
  for (const auto& [id, member] : members) {
    if (member.name != join.site && join.index == id.value && join.report.record.voters.empty()) {
      return "index " + std::to_string(join.index) + " is taken by " + member.name +
             ": give this site another COLLAB_SITE_INDEX";
    }
  }
  if (const TermId known = std::max(term, election.term()), said = join.report.record.promised;
      wire::is_too_far_ahead(said, known)) {
    return "its record says that it has promised term " + std::to_string(said.value) + ", the newest known here is " +
           std::to_string(known.value) +
           ", and no swarm gets so far ahead: the record is damaged; remove it (COLLAB_STATE_DIR) and start again";
  }
  if (join.elements == 0) return "its model has no trained parameters, so there is nothing to exchange";
  if (members.size() >= wire::kMaxSites) return "the swarm is full: " + std::to_string(members.size()) + " sites";
  if (std::string difference = init_from_difference(join); !difference.empty()) return difference;
  return reference ? first_difference(join, *reference) : std::string();
}

}  // namespace collab::protocol
