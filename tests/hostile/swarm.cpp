#include "tests/hostile/swarm.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace collab::hostile {
namespace {

constexpr Duration kAnswerLimit = std::chrono::seconds(3);
constexpr std::size_t kMostJoins = 500;

// The value after `key` in JSON as the coordinator writes it, from `at` on; names with quotes are not for us.
std::string_view text_after(std::string_view json, std::string_view key, std::size_t at = 0) {
  const std::size_t found = json.find(key, at);
  if (found == std::string_view::npos) return {};
  const std::size_t begin = found + key.size();
  return json.substr(begin, json.find_first_of("\",}", begin) - begin);
}

std::uint64_t number_after(std::string_view json, std::string_view key, std::size_t at = 0) {
  return std::strtoull(std::string(text_after(json, key, at)).c_str(), nullptr, 10);
}

bool take_kind(std::string_view words, TensorKind& kind) {
  for (const TensorKind each : {TensorKind::kFrozen, TensorKind::kAveraged, TensorKind::kLeftOut}) {
    if (!words.starts_with(name_of(each))) continue;
    kind = each;
    return true;
  }
  return false;
}

// `here, VALUE at SITE`
std::string_view there(std::string_view reason) {
  constexpr std::string_view kBefore = " here, ";
  const std::size_t at = reason.find(kBefore);
  return at == std::string_view::npos ? std::string_view() : reason.substr(at + kBefore.size());
}

// What this refusal tells of entry `index`; false: nothing that is understood.
bool learn_from(std::string_view reason, std::vector<wire::ModelEntry>& model) {
  constexpr std::string_view kBegin = "parameter ";
  if (!reason.starts_with(kBegin)) return false;
  const std::size_t quote = reason.find('"');
  if (quote == std::string_view::npos) return false;
  const std::size_t index = std::strtoull(std::string(reason.substr(kBegin.size())).c_str(), nullptr, 10);
  const std::string_view rest = reason.substr(reason.find('"', quote + 1) + 1);
  if (index == model.size() && rest.starts_with(": at ")) {
    const std::string_view name = reason.substr(quote + 1, reason.find('"', quote + 1) - quote - 1);
    model.push_back({.name = std::string(name), .dtype = "", .shape = {}, .kind = TensorKind::kAveraged, .digest = {}});
    return true;
  }
  if (index >= model.size()) return false;
  wire::ModelEntry& entry = model[index];
  if (rest.starts_with(": dtype ")) {
    entry.dtype = there(rest).substr(0, there(rest).find(' '));
    return true;
  }
  if (rest.starts_with(": shape ")) {
    const std::string sizes(there(rest).substr(0, there(rest).find(']')));
    entry.shape.clear();
    for (const char* at = sizes.c_str(); *at != '\0';) {
      char* end = nullptr;
      const std::uint64_t size = std::strtoull(at, &end, 10);
      if (end != at) entry.shape.push_back(size);
      at = end != at ? end : at + 1;
    }
    return true;
  }
  return take_kind(there(rest), entry.kind);
}

}  // namespace

std::vector<std::string> Swarm::addresses() const {
  std::vector<std::string> all{coordinator};
  for (const wire::Member& member : members) {
    if (!member.address.empty()) all.push_back(member.address);
  }
  return all;
}

std::optional<Swarm> ask_swarm(Peer& peer, const std::string& coordinator) {
  const std::optional<LinkId> link = peer.dial(coordinator);
  if (!link) return std::nullopt;
  peer.send(*link, wire::StatusQuery{});
  std::optional<wire::StatusReport> report = peer.wait_for<wire::StatusReport>(*link, kAnswerLimit);
  peer.close(*link);
  if (!report) return std::nullopt;
  const std::string& json = report->json;
  Swarm swarm;
  swarm.coordinator = coordinator;
  swarm.name = text_after(json, "\"swarm\":\"");
  swarm.term = number_after(json, "\"term\":");
  swarm.generation = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, number_after(json, "\"generation\":")));
  swarm.run = RunId(number_after(json, "\"run\":"));
  swarm.round = RoundId(number_after(json, "\"round\":"));
  swarm.elements = report->elements;
  swarm.settings = std::move(report->settings);
  for (std::size_t at = json.find("{\"site\":"); at != std::string::npos; at = json.find("{\"site\":", at + 1)) {
    swarm.members.push_back({.site = SiteId(static_cast<std::uint32_t>(number_after(json, "\"site\":", at))),
                             .name = std::string(text_after(json, "\"name\":\"", at)),
                             .address = std::string(text_after(json, "\"address\":\"", at))});
  }
  return swarm;
}

wire::Join proper_join(const Swarm& swarm, const std::string& name, const std::string& address, bool helper,
                       Prng& prng) {
  wire::Join join;
  join.swarm = swarm.name;
  join.site = name;
  join.index = wire::kNoIndex;
  join.address = address;
  join.helper = helper;
  join.generation = swarm.generation;
  join.elements = swarm.elements;
  join.settings = swarm.settings;
  if (!helper) join.model = swarm.model;
  join.report.record.acceptor = AcceptorId(1 + prng.below(UINT64_MAX - 1));
  return join;
}

void learn_model(Peer& peer, Swarm& swarm, Prng& prng) {
  for (std::size_t joins = 0; joins < kMostJoins; ++joins) {
    const std::optional<LinkId> link = peer.dial(swarm.coordinator);
    if (!link) return swarm.model.clear();
    // One element too many: the last difference, so that this join too is refused.
    wire::Join join = proper_join(swarm, "curious", "", false, prng);
    ++join.elements;
    peer.send(*link, join);
    const std::optional<wire::Refuse> refusal = peer.wait_for<wire::Refuse>(*link, kAnswerLimit);
    peer.close(*link);
    if (!refusal) return swarm.model.clear();
    if (refusal->reason.starts_with("the parameter vector: ")) return;
    if (!learn_from(refusal->reason, swarm.model)) return swarm.model.clear();
  }
  swarm.model.clear();
}

}  // namespace collab::hostile
