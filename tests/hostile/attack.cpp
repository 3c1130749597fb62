#include "tests/hostile/attack.h"

#include <algorithm>
#include <array>
#include <utility>

namespace collab::hostile {
namespace {

constexpr int kWelcomeMs = 2000;
constexpr Duration kJoinLimit = std::chrono::seconds(3);
constexpr Duration kBeat = std::chrono::milliseconds(100);
constexpr Duration kTold = std::chrono::milliseconds(100);

constexpr std::array kAttacks{
    Attack{"status", "asks for the status and who leads as fast as it can, and reads no answer", &attack_status},
    Attack{"silent", "opens thousands of links that greet and say nothing", &attack_silent},
    Attack{"mute", "opens thousands of connections that never greet", &attack_mute},
    Attack{"join-and-stall",
           "joins as a site or a helper, never installs the anchor, and comes back at once when expelled",
           &attack_join_and_stall},
    Attack{"bring", "enters worlds of its own and brings parts of up to 64 MiB to calls that never end",
           &attack_contribute},
    Attack{"unread", "asks the hub for a step that is over, again and again, and acknowledges no answer",
           &attack_unread},
    Attack{"junk", "random bytes, and valid messages of every type mutated, on links that joined and that did not",
           &attack_junk},
    Attack{"fetch", "asks sites for the anchor's parts and the optimizer's state, and reads no answer", &attack_fetch},
    Attack{"heads", "announces many messages of 8 MiB on many links and finishes none", &attack_heads},
    Attack{"frames",
           "pings, half frames and questions on all connections of a few links, and links that linger when closed",
           &attack_frames},
    Attack{"returns", "greets, cuts its link, and greets again", &attack_returns},
    Attack{"answered", "answers a dial of its address with a Join, and wants 64 connections", &attack_answered},
    Attack{"enter-gone", "enters worlds with lists of maximal length, all ranks gone", &attack_enter_gone},
    Attack{"early-chunks", "sends sites large chunks of future rounds, its own and in other names",
           &attack_early_chunks},
    Attack{"terms", "claims absurd terms, and voters' memories", &attack_terms},
    Attack{"records", "claims to have trained later rounds and later models, without a proof", &attack_records},
    Attack{"anchors", "says that it holds the anchor, then that it holds another", &attack_anchors},
    Attack{"impersonate", "joins in members' names from their addresses, and greets sites in others' names",
           &attack_impersonate},
    Attack{"names", "names that a terminal obeys, that are too long, and empty ones", &attack_names},
    Attack{"churn", "joins and leaves under random names as fast as it can", &attack_churn},
    Attack{"take-part", "joins, holds the anchor, is ready, and in the round lies, accuses, leaves or keeps silent",
           &attack_take_part},
    Attack{"two-that-move", "takes part under two names that send nothing and say in turn that something moves",
           &attack_two_that_move},
    Attack{"large-joins", "joins with models, settings and memberships of 8 MiB, of this generation and of others",
           &attack_large_joins},
    Attack{"generations", "waits under many names for models that nobody trains", &attack_generations},
    Attack{"unanswered", "joins and goes under addresses at which no dial is answered", &attack_unanswered},
    Attack{"many-names", "is helpers and ranks of worlds of its own, as many as it can be, all heard",
           &attack_many_names},
    Attack{"held", "enters worlds of its own again and again, each time with other results that it says it holds",
           &attack_held},
    Attack{"calls", "has worlds of its own with the members' names, whose ranks wait for each other in barriers",
           &attack_calls},
    Attack{"many-groups", "opens as many groups as it may, and asks for what passes over all of them",
           &attack_many_groups},
    Attack{"full-hub", "brings all that a hub may hold, and begins as many worlds as one host may", &attack_full_hub},
    Attack{"fetch-names", "asks sites for the anchor under 64 names, and reads a trickle", &attack_fetch_names},
    Attack{"poison", "says that it has completed steps of others' groups that nobody has come to", &attack_poison,
           true},
    Attack{"fail-steps", "fails steps ahead of the others, and of groups that they never open", &attack_fail_steps,
           true},
    Attack{"squat", "takes the numbers of others' letters, and of their group's twin", &attack_squat, true},
    Attack{"rank-names", "enters and leaves as ranks of others", &attack_rank_names, true},
    Attack{"unacknowledged", "takes what the others send and never says so", &attack_unacknowledged, true},
    Attack{"promises", "raises the ballot as many ranks, as often as each may", &attack_promises, true},
};

}  // namespace

std::span<const Attack> attacks() { return kAttacks; }

std::unique_ptr<RawConnection> Context::raw(const std::string& to, Greeting greeting) {
  return raw(to, greeting == Greeting::kHello ? std::optional(draw_hello()) : std::nullopt);
}

std::unique_ptr<RawConnection> Context::raw(const std::string& to, const std::optional<tcp::Hello>& hello) {
  auto made = std::make_unique<RawConnection>(to, keys != nullptr ? keys->current() : nullptr, hello);
  ++(made->open() ? counts.opened : counts.failed);
  return made;
}

std::unique_ptr<RawConnection> Context::raw_link(const std::string& to) {
  auto made = raw(to, Greeting::kHello);
  if (made->wait_for_welcome(kWelcomeMs)) return made;
  counts.ended(made->open() ? "no welcome" : made->end());
  return nullptr;
}

void Context::read_answers(RawConnection& connection) {
  const std::uint64_t before = connection.segments_came();
  connection.look();
  counts.arrives(connection.segments_came() - before);
}

void Context::queue(RawConnection& connection, std::span<const std::byte> head, Lane lane) {
  connection.queue_message(lane, head);
  ++counts.messages;
  counts.bytes += head.size();
}

std::string Context::draw_name() {
  std::string name = "mallory-";
  for (int i = 0; i < 8; ++i) name += static_cast<char>('a' + prng.below(26));
  return name;
}

tcp::Id Context::draw_id() {
  tcp::Id id{};
  for (std::uint8_t& byte : id) byte = static_cast<std::uint8_t>(prng.next());
  return id;
}

tcp::Hello Context::draw_hello() { return {.link = draw_id(), .process = draw_id(), .connection = 0, .opens = true}; }

BufferPtr Context::payload(std::size_t bytes) {
  BufferPtr made = pool_->take(bytes);
  std::ranges::fill(made->bytes(), static_cast<std::byte>(prng.next()));
  return made;
}

bool Member::join(const std::string& name, bool helper) {
  return join(proper_join(context_.swarm, name, context_.address, helper, context_.prng));
}

bool Member::join(const wire::Join& join) {
  leave();
  const std::optional<LinkId> link = context_.peer->dial(context_.target);
  if (!link) return false;
  context_.peer->send(*link, join);
  const std::optional<wire::Welcome> welcome = context_.peer->wait_for<wire::Welcome>(*link, kJoinLimit);
  if (!welcome) {
    context_.peer->close(*link);
    return false;
  }
  keys_.clear();
  roster_.clear();
  voters_.clear();
  link_ = *link;
  site_ = welcome->site;
  term_ = welcome->term;
  name_ = join.site;
  return true;
}

void Member::hear(Duration limit) {
  const TimePoint until = context_.now() + limit;
  while (std::optional<wire::Message> message = context_.peer->next(link_, until - context_.now())) {
    if (const auto* told = std::get_if<wire::Keys>(&*message)) {
      for (const wire::Key& each : told->keys) keys_[each.site] = each.key;
    } else if (auto* roster = std::get_if<wire::Roster>(&*message)) {
      roster_ = std::move(roster->members);
    } else if (auto* install = std::get_if<wire::InstallAnchor>(&*message)) {
      voters_ = std::move(install->voters);
    }
    if (context_.now() >= until && limit.count() != 0) return;
  }
}

std::vector<wire::Member> Member::others() {
  hear();
  if (keys_.empty() || roster_.empty()) hear(kTold);
  std::vector<wire::Member> found = roster_;
  std::erase_if(found, [&](const wire::Member& each) { return each.site == site_ || !keys_.contains(each.site); });
  return found;
}

wire::Hello Member::hello_to(SiteId site) const {
  const auto key = keys_.find(site);
  return {context_.swarm.name, term_, site_, name_, key == keys_.end() ? Digest() : key->second};
}

bool Member::beat() {
  if (link_.value == 0 || !context_.peer->is_open(link_)) return false;
  if (context_.now() < beat_at_) return true;
  beat_at_ = context_.now() + kBeat;
  return context_.peer->send(link_, wire::Heartbeat{++beats_, false});
}

void Member::leave() {
  if (link_.value == 0) return;
  context_.peer->send(link_, wire::Leave{"for fun", 0});
  context_.peer->close(link_);
  link_ = {};
}

}  // namespace collab::hostile
