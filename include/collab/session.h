// A rank's part in a swarm: counts inner steps, and takes part in rounds when they are due.
//
// The site's leader (rank 0 of the site) talks to other sites through a Node; the host's other ranks
// take the new parameters from the shared-memory arena; ranks on other hosts get them over the site's own
// process group. All ranks of a site make the same calls in the same order, as with any collective.
//
// Threads: one caller at a time. Every call blocks until it is done or a bounded wait has run out.
// Ownership: owns the node, the arena and the store it makes; borrows nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collab/clock.h"
#include "collab/config.h"
#include "collab/status.h"
#include "collab/swarm_status.h"
#include "collab/tensor_kind.h"
#include "collab/transport.h"
#include "collab/types.h"

namespace collab {

class Disk;

// The model's trained parameters as one vector of float32, implemented by the caller (the torch adapter). A thread of
// the session calls it only while the session's caller is blocked in a call. This also holds if rounds run behind the
// training (COLLAB_OVERLAP): these work on a copy.
class ParameterVector {
 public:
  virtual ~ParameterVector() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;  // elements
  // A view of [offset, offset + count) if it is contiguous float32 in host memory, otherwise empty.
  [[nodiscard]] virtual std::span<float> view(std::uint64_t offset, std::uint64_t count) = 0;
  virtual Status read(std::uint64_t offset, std::span<float> out) = 0;
  virtual Status write(std::uint64_t offset, std::span<const float> in) = 0;
  // Whether write(offset, values) would change nothing.
  virtual Result<bool> holds(std::uint64_t offset, std::span<const float> values);
  // Parameters += values, and kept * parameters + (1 - kept) * values; each operation rounded to float32.
  virtual Status add(std::uint64_t offset, std::span<const float> values);
  virtual Status mix(std::uint64_t offset, std::span<const float> values, float kept);
  // Elements that are best read or written at a time, a multiple of 65,536: enough to make up for what a call costs,
  // few enough to stay in the cache between two passes.
  [[nodiscard]] virtual std::uint64_t tile() const { return 65'536; }
  // Prepares host memory that read(), write(), add() or mix() will often use, so that a vector on a device copies
  // faster. This holds while the returned object lives; vector and memory must outlive it. Null if there is nothing to
  // gain.
  [[nodiscard]] virtual std::shared_ptr<void> pin_memory([[maybe_unused]] std::span<const float> memory) {
    return nullptr;
  }
};

// One tensor of the model as sites compare it at join; the adapter fills it.
struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  TensorKind kind = TensorKind::kAveraged;
  Digest digest;  // of the bytes, not of averaged tensors
};

// What the session needs from the site's own process group. All ranks call; rank 0 of the site is root.
class SiteGroup {
 public:
  virtual ~SiteGroup() = default;
  virtual Status broadcast(std::span<std::byte> bytes) = 0;
  // What all ranks gave, as many bytes each, in the order of ranks.
  virtual Result<std::vector<std::byte>> gather_all(std::span<const std::byte> bytes) = 0;
};

// This rank within its site.
struct SiteLayout {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  bool one_host = true;  // all ranks of the site share this machine
};

// Of the site's durable record. An empty folder: the record is in memory.
struct RecordLocation {
  std::string dir;
  std::string scope;  // tells this training's rendezvous from another's
};

struct SessionOptions {
  Config config;
  // COLLAB_RUN was not given, and the rendezvous named the run. The state that another run left in the named folder is
  // used to go on.
  bool run_of_rendezvous = false;
  std::string site;  // resolved name
  SiteLayout layout;
  // Names what restarts this process after a crash (torchrun's agent): a process of the same job goes on from the
  // anchor its predecessor left in shared memory. Empty: nothing does, and such an anchor is removed.
  std::string job;
  // Which of the models that the sites of a run train one after the other; from 1. Sites of one generation average.
  std::uint32_t generation = 1;
  std::uint64_t egress_spent = 0;         // of COLLAB_EGRESS_BUDGET_GB, in bytes, by the generations before
  std::vector<std::string> coordinators;  // "host:port" in order
  RecordLocation record;                  // leader only
  std::vector<TensorInfo> model;
  // The ranks of a site must hold the same values in this many leading elements. Buffers lie behind: each rank's
  // batch statistics are its own until the next forward.
  std::uint64_t compared_elements = UINT64_MAX;
  bool serves_optimizer = false;  // the leader's caller answers optimizer_wanted()
  bool resumed = false;           // leader: its caller had loaded a state into the model or the optimizer
  std::uint64_t world = 0;        // leader: the number of its ranks' world of collectives at the hub; 0: there is none
  // Leader only: makes the transport for links between sites.
  std::function<Result<std::unique_ptr<Transport>>()> make_transport;
  Disk* disk = nullptr;  // what is to be durable is written by it, and it outlives the session; none: the system's
};

// A copy of an optimizer's state, as the caller describes and reads it; the core carries both unread.
struct OptimizerCopy {
  std::string description;  // JSON
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // of the bytes
};
struct OptimizerOffer {
  std::string source;  // the site
  std::string description;
  std::uint64_t bytes = 0;
};

struct StepOutcome {
  // False if no round was due, if a round was skipped, or if a round has begun behind the training: that one ends in a
  // later call.
  bool round_ran = false;
  RoundId round;
  bool took_anchor = false;  // our parameters were unfit: the caller resets optimizer state that is not finite
  bool leaving = false;      // it was the last one here, as ask_to_leave() asked: the caller calls finish()
};

struct SessionStatus {
  std::string site;
  std::uint32_t generation = 1;
  RoundId round;            // last committed
  std::uint64_t steps = 0;  // inner steps in all
  std::uint64_t steps_since_round = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t egress_spent = 0;  // of COLLAB_EGRESS_BUDGET_GB, in bytes, with what was spent before
  Digest state;                    // anchor and outer state
};

class Session {
 public:
  virtual ~Session() = default;
  // Round 0: agrees on the first anchor and writes it into the parameters. Blocks up to join_timeout. Where the other
  // sites train a later generation of the model already, this one trains alone, and says so whenever a round is due.
  virtual Status begin() = 0;
  // After every inner step, with the samples this rank has processed since the last call. True: a round is due, or the
  // one that runs behind the training is to be merged, and synchronize() is to follow.
  virtual Result<bool> count_step(std::uint64_t samples) = 0;
  // Runs what count_step() found due. If nothing is due, runs a round now, which every rank of every site must call,
  // and waits for its result even if rounds run behind the training. A site without steps since its last round has
  // weight 0.
  virtual Result<StepOutcome> synchronize() = 0;
  // A round now as above, and more of them up to this one: where sites of unequal speed make the same rounds behind the
  // training, one of them may have begun a round that another will begin with a later step.
  virtual Result<StepOutcome> synchronize_until(RoundId last) = 0;
  // Which round that must be, as far as this rank knows; 0: nothing waits to be averaged.
  [[nodiscard]] virtual RoundId settles_at() const = 0;
  // Both.
  Result<StepOutcome> step(std::uint64_t samples) {
    const Result<bool> due = count_step(samples);
    if (!due.ok()) return due.status();
    return *due ? synchronize() : Result<StepOutcome>(StepOutcome{});
  }
  // count_step() would wait: this rank is steps ahead of the site's leader, which may still announce the next round.
  [[nodiscard]] virtual bool is_ahead() const = 0;
  // The loss that the script logged last. It is sent with the next round, and shown with the status. Only the leader
  // uses it.
  virtual void note_loss(double loss) = 0;
  // The site is to leave soon: its leader calls a last round at a step that no rank of the site has reached yet. On
  // several hosts, without rounds by time, it is the next one that is due. Ignored at the other ranks.
  virtual void ask_to_leave() = 0;
  // ---- the optimizer's state, from a member to a site that joins; the site's leader only
  // A joiner wants ours: true until give_optimizer(), which is to be called between two steps, also while one blocks in
  // a round. Any thread.
  [[nodiscard]] virtual bool optimizer_wanted() const = 0;
  virtual void give_optimizer(Result<OptimizerCopy> copy) = 0;  // or why there is none
  // Asks one member after the other; the next one with each call until end_optimizer(). Blocks up to round_timeout.
  // kUnavailable: none has any; kTimeout: none in time. The message tells what each said.
  virtual Result<OptimizerOffer> ask_optimizer() = 0;
  // The bytes that were offered. kUnavailable: they are lost, ask again.
  virtual Result<BufferPtr> take_optimizer() = 0;
  // It is in use, or not wanted any more, because of `cold`; goes to the log and the events.
  virtual void end_optimizer(const std::string& cold) = 0;
  // All ranks of the site: they are given its leader's bytes.
  virtual Status broadcast(std::span<std::byte> bytes) = 0;

  // A last round when there were steps since the last one, then leaves the swarm. Idempotent. `next_generation`: this
  // site goes on at once with that one, in another session, and the others are to wait for it there; 0: it does not.
  virtual Status finish(std::uint32_t next_generation) = 0;
  Status finish() { return finish(0); }
  [[nodiscard]] virtual SessionStatus status() const = 0;
  // Before finish(): the parameters of this rank are not what was trained, and stay as they are. One rank's word keeps
  // its site out of the last round; the site leaves, and the others have theirs.
  virtual void keep_out() = 0;
};

// How long a rank waits for its leader: longer than any wait of the leader for other sites, so that it is told why
// instead of giving up first.
[[nodiscard]] inline std::chrono::milliseconds leader_wait_limit(const Config& config) {
  return config.join_timeout + 8 * config.round_timeout + config.link_grace + std::chrono::minutes(2);
}

[[nodiscard]] Result<std::unique_ptr<Session>> make_session(SessionOptions options,
                                                            std::shared_ptr<ParameterVector> parameters,
                                                            std::shared_ptr<SiteGroup> group);

// Serves the protocol's coordinator on a transport of its own; used by the leader of site 0 in one world and
// by `collab coordinator`.
class CoordinatorServer {
 public:
  virtual ~CoordinatorServer() = default;
  [[nodiscard]] virtual std::string address() const = 0;  // "host:port" as bound
  // Includes what happened lately. kTimeout: the coordinator's thread has not answered within five seconds.
  [[nodiscard]] virtual Result<CoordinatorReport> report() const = 0;
  // Blocks until no site is a member any more. kTimeout names the sites that are still there.
  virtual Status wait_until_empty(Duration limit) = 0;
};
[[nodiscard]] Result<std::unique_ptr<CoordinatorServer>> serve_coordinator(const Config& config,
                                                                           std::unique_ptr<Transport> transport,
                                                                           const std::string& listen);

struct HelperOptions {
  Config config;  // what the swarm's sites share is taken from them, whatever it says
  std::string site;
  std::vector<std::string> coordinators;  // "host:port" in order
  std::function<Result<std::unique_ptr<Transport>>()> make_transport;
};

// A member without a model of its own. It owns slices of the vector and reduces them, but contributes nothing. It is
// for swarms whose sites cannot be dialled, or whose lines are thin. It waits until sites are there and joins them.
// When the last of them has left, it waits for others.
class HelperServer {
 public:
  virtual ~HelperServer() = default;  // leaves
  // Why it has come to its end; kTimeout: it has not within `limit`.
  virtual Status wait(Duration limit) = 0;
  // Leaves the swarm in good order, after an exchange that is under way; bounded.
  virtual void leave() = 0;
};
[[nodiscard]] Result<std::unique_ptr<HelperServer>> serve_helper(HelperOptions options);

// Asks the coordinator at `address` for its status; JSON.
[[nodiscard]] Result<std::string> query_status(std::unique_ptr<Transport> transport, const std::string& address,
                                               Duration limit);

// Tells the coordinator at `address` that these sites will not come. Sites that are too few without them may then go on
// by themselves, as another run. Gives the effect, in words. kRefused: there is none, and why.
[[nodiscard]] Result<std::string> tell_forget(std::unique_ptr<Transport> transport, const std::string& address,
                                              const std::vector<std::string>& sites, Duration limit);

}  // namespace collab
