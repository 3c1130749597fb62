// Routes messages to the parts of a world.
#include "core/protocol/collectives/hub_world.h"

#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_parts.h"

namespace collab::protocol {

HubWorld::HubWorld(HubParts& all, const wire::Enter& first, std::string first_host, const wire::Ballot& ballot,
                   HubTotal& parts, HubTotal& memory_total)
    : hub(all),
      number(first.world),
      host(std::move(first_host)),
      only_hub(first.candidates == 1),
      ranks(*this, first),
      memory(*this, parts, memory_total),
      membership(*this, ballot),
      groups(*this) {
  ranks.await_ranks(first.returning);
}

std::string HubWorld::why_refused(const wire::Enter& message) const {
  std::string why = ranks.why_refused(message);
  return why.empty() ? membership.why_refused(message) : why;
}

TimePoint HubWorld::next_deadline() const { return std::min(ranks.next_deadline(), groups.next_deadline()); }

void HubWorld::on_enter(LinkId link, const wire::Enter& message) {
  if (!ranks.may_enter(link, message.rank)) {
    return hub.worlds.close_link(link,
                                 ranks.text(message.rank) + " enters again and again over one link [hub.enters-again]");
  }
  if (!ranks.any_linked() && !only_hub) ranks.await_ranks(message.returning);
  if (message.returning) ranks.expect_soon();
  membership.raise_above(message);
  if (ranks.enter(link, message)) membership.on_new_link(message.rank);
  if (memory.recall(message)) membership.on_enter(link, message);
}

void HubWorld::on_message(RankId rank, const HubReceived& event) {
  ranks.heard(rank);
  if (const auto* beat = std::get_if<wire::Heartbeat>(&event.message)) {
    return beat->reply ? void() : hub.send(event.link, wire::Heartbeat{beat->sequence, true});
  }
  if (const auto* m = std::get_if<wire::Leave>(&event.message)) return ranks.on_leave(rank, *m);
  if (const auto* m = std::get_if<wire::AcceptedEpoch>(&event.message)) return membership.on_accepted(rank, *m);
  const bool in = ranks[rank].in;  // otherwise the message belongs to an older ballot, and will be sent again
  if (const auto* m = std::get_if<wire::Assemble>(&event.message)) return in ? groups.on_assemble(rank, *m) : void();
  if (const auto* m = std::get_if<wire::Disband>(&event.message)) return in ? groups.on_disband(rank, *m) : void();
  if (const auto* m = std::get_if<wire::Contribute>(&event.message)) {
    return in ? groups.on_contribute(rank, *m, whole(event.payload)) : void();
  }
  if (const auto* m = std::get_if<wire::ResultAck>(&event.message)) return in ? groups.on_result_ack(rank, *m) : void();
  if (const auto* m = std::get_if<wire::ResolveSender>(&event.message))
    return in ? groups.on_resolve(rank, *m) : void();
  hub.worlds.refuse(event.link,
                    "expected a message for a world's collectives, got one of another kind [hub.unexpected-message]");
}

void HubWorld::on_tick() {
  if (hub.now >= ranks.next_deadline()) ranks.on_tick();
  groups.on_tick();
}

void HubWorld::send(RankId rank, wire::Message message, Payload payload) {
  hub.send(ranks[rank].link, std::move(message), std::move(payload));
}

void HubWorld::refuse(RankId rank, const std::string& why) { hub.worlds.refuse(ranks[rank].link, why); }

}  // namespace collab::protocol
