// Routes events to the parts.
#include "core/protocol/collectives/collective_hub.h"

#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_parts.h"
#include "core/protocol/formatting.h"
#include "core/wire/byte_io.h"
#include "core/wire/limits.h"

namespace collab::protocol {

void HubParts::send(LinkId link, wire::Message message, Payload payload) {
  if (link.value != 0) out.emplace_back(HubSend{link, std::move(message), std::move(payload)});
}

void HubParts::note(Note::Level level, const char* event, const std::string& text) {
  out.emplace_back(make_note(level, event, wire::fit_sentence(text, wire::kMaxReasonBytes)));
}

namespace {

void on_event(HubParts& all, const HubReceived& event) {
  if (all.worlds.is_closing(event.link)) return;
  if (const auto* enter = std::get_if<wire::Enter>(&event.message)) return all.worlds.on_enter(event, *enter);
  const HubWorlds::Place* const found = all.worlds.find_place(event.link);
  if (found == nullptr) return;
  const HubWorlds::Place place = *found;
  all.worlds.at(place.world).on_message(place.rank, event);
  if (std::holds_alternative<wire::Leave>(event.message)) all.worlds.on_left(place.world);
}

void on_event(HubParts& all, const Closed& event) { all.worlds.on_closed(event.link); }
void on_event(HubParts& all, const Tick&) { all.worlds.on_tick(); }

}  // namespace

CollectiveHub::CollectiveHub(HubConfig config) : parts_(std::make_unique<HubParts>(std::move(config))) {}
CollectiveHub::~CollectiveHub() = default;

std::vector<HubAction> CollectiveHub::step(TimePoint now, const HubEvent& event) {
  parts_->now = now;
  std::visit([this](const auto& what) { on_event(*parts_, what); }, event);
  return std::exchange(parts_->out, {});
}

bool CollectiveHub::knows(LinkId link) const { return parts_->worlds.knows(link); }

std::vector<std::string> CollectiveHub::present() const {
  std::vector<std::string> names;
  for (const auto& [number, world] : parts_->worlds) {
    for (std::uint32_t i = 0; i < world.ranks.size(); ++i) {
      const HubRank& rank = world.ranks[RankId(i)];
      const bool here = rank.entered && !rank.away() && !world.ranks.is_suspect(RankId(i));
      if (here) names.push_back(world.ranks.text(RankId(i)));
    }
  }
  return names;
}

CallsUnderWay CollectiveHub::calls_under_way(const SitesOf& sites_of) const {
  CallsUnderWay all;
  for (const auto& [number, world] : parts_->worlds) {
    const std::set<std::string> sites = sites_of(number);
    if (sites.empty()) continue;
    CallsUnderWay calls;
    world.groups.collect_calls(calls);
    std::erase_if(calls.sites, [&](const auto& entry) { return !sites.contains(entry.first); });
    all.sites.merge(calls.sites);
  }
  return all;
}

std::uint64_t CollectiveHub::changes() const { return parts_->counters.changes(); }
std::uint64_t CollectiveHub::changes_of_calls() const { return parts_->counters.changes_of_calls(); }

std::size_t CollectiveHub::held() const { return parts_->worlds.held(); }

std::size_t CollectiveHub::bytes_held() const {
  std::size_t bytes = 0;
  for (const auto& [number, world] : parts_->worlds) {
    for (const auto& [id, group] : world.groups) bytes += group.bytes_held();
  }
  return bytes;
}

std::size_t CollectiveHub::steps_known() const {
  std::size_t steps = 0;
  for (const auto& [number, world] : parts_->worlds) {
    for (const auto& [id, group] : world.groups) steps += group.steps();
  }
  return steps;
}

std::uint64_t CollectiveHub::looked_at() const { return parts_->counters.all_looked_at(); }

TimePoint CollectiveHub::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [number, world] : parts_->worlds) next = std::min(next, world.next_deadline());
  return next;
}

}  // namespace collab::protocol
