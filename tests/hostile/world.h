// A world whose hub is under attack, as one of its ranks knows it, and a rank in the attacker's hands.
//
// Threads: the caller's. Ownership: plain values; a rank borrows its context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/wire/messages.h"
#include "tests/hostile/attack.h"

namespace collab::hostile {

inline constexpr std::uint64_t kLetterBytes = std::uint64_t{4} << 19;  // as tests/python/scripts/besieged.py sends them

// The Enter of an own world of the attacker, drawn at random, at one site.
[[nodiscard]] wire::Enter draw_enter(Context& context, std::uint32_t ranks);
// The Enter of that rank of the attacked world. It is the same each time, so the next attack is the same process to the
// hub.
[[nodiscard]] wire::Enter enter_of(const World& world, const std::string& swarm, RankId rank);
// The pair that carries the `count`-th letter of this group between these two.
[[nodiscard]] GroupId letter_of(GroupId group, RankId from, RankId to, std::uint32_t tag, std::uint64_t count);

class WorldRank {
 public:
  WorldRank(Context& context, wire::Enter enter) : context_(context), enter_(std::move(enter)) {}
  WorldRank(const WorldRank&) = delete;
  WorldRank& operator=(const WorldRank&) = delete;
  ~WorldRank() {
    if (link_.value != 0) context_.peer->close(link_);
  }

  // In the world, by a new link where it has none; false: it was not let in within some seconds.
  bool come();
  // Like `come`, and again if it is in.
  bool enter();
  bool is_here() const { return link_.value != 0 && context_.peer->is_open(link_); }
  // False: not sent.
  bool send(const wire::Message& message, BufferPtr payload = nullptr);
  // In good order: no rank waits for it, and a world that all ranks have left is forgotten at once.
  void leave() { send(wire::Leave{"for fun", 0}); }
  // A heartbeat, when one is due.
  void beat();
  // The next result. All else that came is passed over.
  [[nodiscard]] std::optional<wire::StepResult> result(Duration limit);
  void acknowledge(const wire::StepResult& result) { send(wire::ResultAck{result.group, result.step, result.ballot}); }

  [[nodiscard]] wire::Enter& said() { return enter_; }
  [[nodiscard]] RankId rank() const { return enter_.rank; }
  [[nodiscard]] const wire::Ballot& ballot() const { return ballot_; }

 private:
  Context& context_;
  wire::Enter enter_;
  LinkId link_{};
  wire::Ballot ballot_{};
  TimePoint beat_at_{};
  std::uint64_t beats_ = 0;
};

// Enters the world as all ranks of the attacker, and does nothing else, so that they are there when an attack begins.
void keep_ranks(Context& context);

}  // namespace collab::hostile
