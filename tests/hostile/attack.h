// What an attack is: a function that does harm as fast as it can until its time is over.
//
// Threads: one attack at a time, on the caller's. Ownership: the context owns the attacker's transport.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collab/clock.h"
#include "core/base/prng.h"
#include "tests/hostile/peer.h"
#include "tests/hostile/raw_connection.h"
#include "tests/hostile/swarm.h"
#include "transport/tcp/tls/tcp_keys.h"

namespace collab::hostile {

// A world of ranks under attack, as one of them knows it.
struct World {
  std::uint64_t number = 0;  // 0: none was named
  std::vector<std::string> sites;
  std::vector<std::uint32_t> site_of;  // of every rank
  RankId rank;                         // of the attacker, as are the ranks after it at its site
  GroupId group;                       // of all ranks of other sites
  GroupId shared;                      // of the others and, last, the attacker's

  [[nodiscard]] std::vector<RankId> others() const;  // of other sites
  [[nodiscard]] std::vector<RankId> own() const;
};

enum class Greeting : std::uint8_t { kNone, kHello };

class Context {
 public:
  Context(std::string target_address, TcpOptions tcp_options, std::shared_ptr<tcp::TlsKeys> tls_keys,
          std::uint64_t seed, Duration length)
      : target(std::move(target_address)),
        options(std::move(tcp_options)),
        keys(std::move(tls_keys)),
        prng(seed),
        length_(length),
        until_(clock_.now() + length) {}

  [[nodiscard]] Duration length() const { return length_; }
  [[nodiscard]] bool over() const { return clock_.now() >= until_; }
  // Over, and it has arrived; on a busy machine an attack that takes many steps is given a little longer to.
  [[nodiscard]] bool done() const {
    constexpr Duration kLonger = std::chrono::seconds(10);
    return over() && (counts.arrived > 0 || clock_.now() >= until_ + kLonger);
  }
  [[nodiscard]] TimePoint now() const { return clock_.now(); }
  [[nodiscard]] std::unique_ptr<RawConnection> raw(const std::string& address, Greeting greeting);
  [[nodiscard]] std::unique_ptr<RawConnection> raw(const std::string& address, const std::optional<tcp::Hello>& hello);
  // A link of the raw kind that the target has welcomed; null: it has not.
  [[nodiscard]] std::unique_ptr<RawConnection> raw_link(const std::string& address);
  // At the end, of a link that was not read until then: what lies there shows that it was answered.
  void read_answers(RawConnection& connection);
  void note_end(const RawConnection& connection) { counts.ended(connection.end()); }
  // Counts and queues it; the caller flushes.
  void queue(RawConnection& connection, std::span<const std::byte> head, Lane lane = Lane::kControl);
  [[nodiscard]] std::string draw_name();
  [[nodiscard]] tcp::Id draw_id();
  [[nodiscard]] tcp::Hello draw_hello();  // that opens a link
  // Bytes that are the same each time, as they cost time to draw.
  [[nodiscard]] BufferPtr payload(std::size_t bytes);

  const std::string target;
  const TcpOptions options;
  const std::shared_ptr<tcp::TlsKeys> keys;
  Prng prng;
  Counts counts;
  Swarm swarm;  // as it was when the attack began
  World world;
  std::unique_ptr<Peer> peer;  // after counts, which it borrows
  std::string address;         // where the peer can be dialled

 private:
  const SteadyClock clock_;
  const Duration length_;
  const TimePoint until_;
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
};

struct Attack {
  std::string_view name;
  std::string_view what;
  void (*run)(Context&);
  bool of_a_world = false;  // by a rank of the world that is named
};

[[nodiscard]] std::span<const Attack> attacks();

// A membership in the attacker's hands: joins, keeps the link alive, and knows what members are told.
class Member {
 public:
  explicit Member(Context& context) : context_(context) {}
  // False: not let in within some seconds. Leaves where it is in already.
  bool join(const std::string& name, bool helper);
  bool join(const wire::Join& join);
  // Sends a heartbeat when one is due; false: the coordinator has closed the link.
  bool beat();
  void leave();
  // What the coordinator has said since, as far as it came within that time.
  void hear(Duration limit = {});
  // The other members of the roster. Waits a moment for the keys.
  [[nodiscard]] std::vector<wire::Member> others();
  // The greeting of a member to that site.
  [[nodiscard]] wire::Hello hello_to(SiteId site) const;
  // The voters of the membership, once the peer was told of the anchor.
  [[nodiscard]] const std::vector<wire::Voter>& voters() const { return voters_; }
  [[nodiscard]] LinkId link() const { return link_; }
  [[nodiscard]] SiteId site() const { return site_; }
  [[nodiscard]] TermId term() const { return term_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  Context& context_;
  LinkId link_{};
  SiteId site_{};
  TermId term_{};
  std::string name_;
  std::map<SiteId, Digest> keys_;
  std::vector<wire::Member> roster_;
  std::vector<wire::Voter> voters_;
  TimePoint beat_at_{};
  std::uint64_t beats_ = 0;
};

// links.cpp
void attack_heads(Context& context);
void attack_silent(Context& context);
void attack_mute(Context& context);
void attack_status(Context& context);
// frames.cpp
void attack_frames(Context& context);
void attack_returns(Context& context);
void attack_answered(Context& context);
// hub.cpp
void attack_enter_gone(Context& context);
void attack_contribute(Context& context);
void attack_unread(Context& context);
// own_worlds.cpp
void attack_held(Context& context);
void attack_calls(Context& context);
void attack_many_groups(Context& context);
void attack_full_hub(Context& context);
// ranks.cpp
void attack_poison(Context& context);
void attack_fail_steps(Context& context);
void attack_squat(Context& context);
void attack_rank_names(Context& context);
void attack_unacknowledged(Context& context);
void attack_promises(Context& context);
// members.cpp
void attack_anchors(Context& context);
void attack_join_and_stall(Context& context);
void attack_impersonate(Context& context);
void attack_churn(Context& context);
void attack_terms(Context& context);
void attack_records(Context& context);
// rounds.cpp
void attack_take_part(Context& context);
void attack_two_that_move(Context& context);
void attack_large_joins(Context& context);
void attack_generations(Context& context);
void attack_unanswered(Context& context);
void attack_many_names(Context& context);
// sites.cpp
void attack_early_chunks(Context& context);
void attack_fetch(Context& context);
void attack_fetch_names(Context& context);
// junk.cpp
void attack_names(Context& context);
void attack_junk(Context& context);

}  // namespace collab::hostile
