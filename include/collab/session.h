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
  // A view of [offset, offset + count) if those elements are contiguous float32 in host memory, otherwise empty.
  [[nodiscard]] virtual std::span<float> view(std::uint64_t offset, std::uint64_t count) = 0;
  virtual Status read(std::uint64_t offset, std::span<float> out) = 0;
  virtual Status write(std::uint64_t offset, std::span<const float> in) = 0;
  // Whether write(offset, values) would change nothing.
  virtual Result<bool> holds(std::uint64_t offset, std::span<const float> values);
  // Parameters += values, and kept * parameters + (1 - kept) * values; each operation rounded to float32.
  virtual Status add(std::uint64_t offset, std::span<const float> values);
  virtual Status mix(std::uint64_t offset, std::span<const float> values, float kept);
  // The best number of elements per read or write, a multiple of 65,536: large enough to make up for the cost of a
  // call, small enough to stay in the cache between two passes.
  [[nodiscard]] virtual std::uint64_t tile() const { return 65'536; }
  // Prepares host memory that read(), write(), add() or mix() will often use, so that a vector on a device copies
  // faster. The memory stays prepared while the returned object lives; vector and memory must outlive it. Null if
  // nothing is gained.
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
  Digest digest;  // of the bytes; unset for averaged tensors
};

// What the session needs from the site's own process group. All ranks make each call; rank 0 of the site is the root.
class SiteGroup {
 public:
  virtual ~SiteGroup() = default;
  virtual Status broadcast(std::span<std::byte> bytes) = 0;
  // The bytes of all ranks, in the order of ranks. All ranks give equally many.
  virtual Result<std::vector<std::byte>> gather_all(std::span<const std::byte> bytes) = 0;
};

// This rank within its site.
struct SiteLayout {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  bool one_host = true;  // all ranks of the site share this machine
};

// Where the site's durable record is. Empty `dir`: the record is kept in memory.
struct RecordLocation {
  std::string dir;
  std::string scope;  // tells this training's rendezvous from another's
};

struct SessionOptions {
  Config config;
  // COLLAB_RUN was not set, so the rendezvous named the run. State that another run left in the state folder is then
  // continued.
  bool run_of_rendezvous = false;
  std::string site;  // resolved name
  SiteLayout layout;
  // Names the job whose agent (torchrun's) restarts this process after a crash. A process of the same job continues
  // from the anchor that its predecessor left in shared memory. Empty: nothing restarts it, and such an anchor is
  // removed.
  std::string job;
  // Which of the run's models is trained, counted from 1. Only sites of one generation average with each other.
  std::uint32_t generation = 1;
  std::uint64_t egress_spent = 0;         // bytes of COLLAB_EGRESS_BUDGET_GB that earlier generations used
  std::vector<std::string> coordinators;  // "host:port" in order
  RecordLocation record;                  // leader only
  std::vector<TensorInfo> model;
  // The ranks of a site must hold the same values in this many leading elements. Buffers come after them: each rank has
  // its own batch statistics until the next forward.
  std::uint64_t compared_elements = UINT64_MAX;
  bool serves_optimizer = false;  // the leader's caller answers optimizer_wanted()
  bool resumed = false;           // leader: its caller loaded a state into the model or the optimizer
  std::uint64_t world = 0;        // leader: the hub's number of the world that its ranks belong to; 0: none
  // Leader only: makes the transport for links between sites.
  std::function<Result<std::unique_ptr<Transport>>()> make_transport;
  Disk* disk = nullptr;  // writes durable files, and outlives the session; null: the system's
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
  // False if no round was due, if a round was skipped, or if a round has begun behind the training. Such a round ends
  // in a later call.
  bool round_ran = false;
  RoundId round;
  bool took_anchor = false;  // our parameters were unfit: the caller resets optimizer state that is not finite
  bool leaving = false;      // this was the last round, after ask_to_leave(): the caller calls finish()
};

struct SessionStatus {
  std::string site;
  std::uint32_t generation = 1;
  RoundId round;            // last committed
  std::uint64_t steps = 0;  // inner steps in all
  std::uint64_t steps_since_round = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t egress_spent = 0;  // bytes of COLLAB_EGRESS_BUDGET_GB used, earlier generations included
  Digest state;                    // anchor and outer state
};

class Session {
 public:
  virtual ~Session() = default;
  // Round 0: agrees on the first anchor and writes it into the parameters. Blocks up to join_timeout. If the other
  // sites already train a later generation of the model, this site trains alone and logs that whenever a round is due.
  virtual Status begin() = 0;
  // After every inner step, with the samples this rank has processed since the last call. True: a round is due, or a
  // round behind the training is ready to be merged. The caller must then call synchronize().
  virtual Result<bool> count_step(std::uint64_t samples) = 0;
  // Runs what count_step() found due. If nothing is due, runs a round now, which every rank of every site must call,
  // and waits for its result even if rounds run behind the training. A site without steps since its last round has
  // weight 0.
  virtual Result<StepOutcome> synchronize() = 0;
  // Runs a round now as above, and further rounds up to `last`. With rounds behind the training, a faster site may have
  // begun a round that a slower site begins at a later step.
  virtual Result<StepOutcome> synchronize_until(RoundId last) = 0;
  // The value for `last` that averages all steps so far, as far as this rank knows; 0: no step waits to be averaged.
  [[nodiscard]] virtual RoundId settles_at() const = 0;
  // count_step(), then synchronize() if a round is due.
  Result<StepOutcome> step(std::uint64_t samples) {
    const Result<bool> due = count_step(samples);
    if (!due.ok()) return due.status();
    return *due ? synchronize() : Result<StepOutcome>(StepOutcome{});
  }
  // True if count_step() would wait: this rank is some steps ahead of the site's leader, which may still announce a
  // round.
  [[nodiscard]] virtual bool is_ahead() const = 0;
  // The loss that the script logged last. The next round sends it, and the status shows it. Only the leader uses it.
  virtual void note_loss(double loss) = 0;
  // Makes the site leave soon: its leader calls a last round at a step that no rank of the site has reached yet. If the
  // site has several hosts and rounds are not by time, the last round is the next due one. Other ranks ignore this
  // call.
  virtual void ask_to_leave() = 0;
  // ---- the optimizer's state, from a member to a site that joins; the site's leader only
  // True if a joiner wants our optimizer state, until give_optimizer(). Call that between two steps, even while a step
  // blocks in a round. Any thread.
  [[nodiscard]] virtual bool optimizer_wanted() const = 0;
  virtual void give_optimizer(Result<OptimizerCopy> copy) = 0;  // or why there is none
  // Asks the members one after another; each call goes on with the next member, until end_optimizer(). Blocks up to
  // round_timeout. kUnavailable: no member has a state; kTimeout: no answer in time. The message has each member's
  // answer.
  virtual Result<OptimizerOffer> ask_optimizer() = 0;
  // The offered bytes. kUnavailable: they are lost; ask again.
  virtual Result<BufferPtr> take_optimizer() = 0;
  // The state is now in use, or is no longer wanted, for the reason `cold`. Goes to the log and the events.
  virtual void end_optimizer(const std::string& cold) = 0;
  // Called by all ranks of the site: gives them the leader's bytes.
  virtual Status broadcast(std::span<std::byte> bytes) = 0;

  // Runs a last round if there were steps since the previous one, then leaves the swarm. Idempotent. `next_generation`:
  // this site continues at once with that generation in another session, and the other sites wait for it there; 0: it
  // does not.
  virtual Status finish(std::uint32_t next_generation) = 0;
  Status finish() { return finish(0); }
  [[nodiscard]] virtual SessionStatus status() const = 0;
  // Call before finish() if this rank's parameters are not the trained ones and must stay as they are. A single rank
  // keeps its whole site out of the last round: the site leaves, and the other sites run theirs.
  virtual void keep_out() = 0;
};

// How long a rank waits for its leader. This is longer than any wait of the leader for other sites, so that the rank
// learns the reason instead of giving up first.
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
  // The status, with recent events. kTimeout: the coordinator's thread did not answer within five seconds.
  [[nodiscard]] virtual Result<CoordinatorReport> report() const = 0;
  // Blocks until no site is a member any more. kTimeout names the sites that are still there.
  virtual Status wait_until_empty(Duration limit) = 0;
};
[[nodiscard]] Result<std::unique_ptr<CoordinatorServer>> serve_coordinator(const Config& config,
                                                                           std::unique_ptr<Transport> transport,
                                                                           const std::string& listen);

struct HelperOptions {
  Config config;  // shared settings come from the swarm's sites and override these
  std::string site;
  std::vector<std::string> coordinators;  // "host:port" in order
  std::function<Result<std::unique_ptr<Transport>>()> make_transport;
};

// A member without a model of its own. It owns slices of the vector and reduces them, but contributes nothing. It is
// for swarms whose sites cannot be dialled, or whose lines are thin. It waits for sites and joins their swarm. When the
// last site has left, it waits for new ones.
class HelperServer {
 public:
  virtual ~HelperServer() = default;  // leaves
  // Waits for the helper's end and returns the reason. kTimeout: it still runs after `limit`.
  virtual Status wait(Duration limit) = 0;
  // Leaves the swarm in good order, after the exchange in progress. The wait is bounded.
  virtual void leave() = 0;
};
[[nodiscard]] Result<std::unique_ptr<HelperServer>> serve_helper(HelperOptions options);

// Asks the coordinator at `address` for its status; JSON.
[[nodiscard]] Result<std::string> query_status(std::unique_ptr<Transport> transport, const std::string& address,
                                               Duration limit);

// Tells the coordinator at `address` that these sites will not come back. The remaining sites may then continue as
// another run, even if they are too few for a quorum. Returns the effect, in words. kRefused: it had no effect, and
// why.
[[nodiscard]] Result<std::string> tell_forget(std::unique_ptr<Transport> transport, const std::string& address,
                                              const std::vector<std::string>& sites, Duration limit);

}  // namespace collab
