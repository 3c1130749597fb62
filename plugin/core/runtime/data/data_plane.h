// Moves the tensors of one site: executes the Exchange machine's chunk actions on real memory, takes the outer
// step at commit, and streams anchors to joiners.
//
// Memory, in multiples of the parameters: the arena's two slots (2), the contributions of the others to our own
// slices, encoded (at most 1 with equal shares and fp32), a window of contributions on their way out, and the means of
// our own slices that the slowest peer is still to be sent, encoded. With error feedback one more for the residual, and
// what our own means leave out, as much as we own. Chunks that come before their attempt: at most two encoded vectors.
// While nobody tells whether a complete attempt was committed and the site trains on: a copy of the parameters and one
// of the mean. Where the training copy is moved onto an anchor of others: one of what it was (TrainingCopy).
// Threads: the node's loop thread only. Ownership: its buffers; borrows transport, arena and parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collab/codec.h"
#include "collab/config.h"
#include "collab/session.h"
#include "collab/transport.h"
#include "core/arena/arena.h"
#include "core/base/digest.h"
#include "core/outer/outer.h"
#include "core/outer/radial_norms.h"
#include "core/protocol/actions.h"
#include "core/protocol/exchange/exchange.h"
#include "core/protocol/site/carryover.h"
#include "core/protocol/site/rate_meter.h"
#include "core/runtime/data/anchor_streams.h"
#include "core/runtime/data/chunk_sender.h"
#include "core/runtime/data/early_chunks.h"
#include "core/runtime/storage/anchor_record.h"
#include "core/runtime/tensors/parameter_change.h"
#include "core/runtime/tensors/residual.h"
#include "core/runtime/tensors/training_copy.h"

namespace collab {

struct Traffic {  // heads and payloads that are sent, payloads that come
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

// Of the current round's exchange; what joiners are given meanwhile is no part of it.
struct RoundTraffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  TimePoint first_payload = kNever;
  TimePoint last_payload{};

  void passed(TimePoint now) {
    first_payload = std::min(first_payload, now);
    last_payload = now;
  }
};

class DataPlane {
 public:
  using Events = std::vector<protocol::SiteEvent>;

  struct Parts {
    Transport* transport = nullptr;
    const Clock* clock = nullptr;
    ArenaWriter* arena = nullptr;
    ParameterVector* parameters = nullptr;
    std::function<void(const protocol::Note&)> tell{};  // how a transfer gets on
    std::span<const TensorInfo> model{};                // names the vector's tensors
    TrainingCopy* copy = nullptr;                       // the parameters, where rounds run behind the training
    std::function<void()> passing{};                    // often, in a pass over all elements, which may take minutes
  };
  struct Settings {
    Codecs codec = CodecId::kFp32;
    bool error_feedback = true;          // where a codec needs it
    float feedback_decay = 1.0F;         // see Residual
    std::vector<ElementRange> kept{};    // at 16 bits; see MixedCodec
    std::vector<ElementRange> radial{};  // the tensors that `rda` takes one by one; see RadialNorms
    OuterConfig outer;
    bool keeps_mean = false;  // who merges a round's result needs the mean beside the new anchor
    // Elements from here on are buffers (batch statistics): their mean is taken as it is, whatever the outer optimizer.
    std::uint64_t outer_elements = UINT64_MAX;
    std::uint64_t chunk_elements = 256 * 1024;
    // Of the digests of anchors and outer states, at all sites alike; less in tests, whose vectors are short.
    std::uint64_t tile_elements = kDigestChunkElements;
    // Of contributions on their way to all peers, or of means; at least to each, which is 1 Gbit/s at 100 ms.
    std::size_t window_bytes = std::size_t{24} << 20;
    std::size_t least_window_bytes = std::size_t{12} << 20;
  };

  // `residual` lay on disk.
  DataPlane(const Settings& settings, const Parts& parts, std::optional<StoredResidual> residual = {});
  DataPlane(const DataPlane&) = delete;
  DataPlane& operator=(const DataPlane&) = delete;

  // ---- exchange
  Events start(const protocol::StartExchange& action);
  void cancel();                                     // contributions that are here stay, for the next attempt
  void forget_contributions() { carried_.clear(); }  // no attempt comes that could use them
  // Of the others to our slices, for this attempt and the next.
  [[nodiscard]] std::size_t contributions_held() const { return carried_.held().size(); }
  Events on_chunk(LinkId link, SiteId from, const wire::Chunk& chunk, BufferPtr payload);
  Events on_sent(std::uint64_t token);
  // How the exchange under way gets on, and whose parts it lacks.
  [[nodiscard]] wire::Exchanged exchanged();

  struct Applied {
    ParameterChange change = ParameterChange::kUnchanged;
    ElementRange range = kWholeVector;  // of which elements
    Digest state;
    float outer_lr = 0;       // of the step that was taken; 0: none was
    double clipped_norm = 0;  // of the mean delta, which was more than it may be; 0: it was not
  };
  Result<Applied> apply(const protocol::ApplyCommit& action);

  // ---- parameters that have moved on alone
  // The anchor that was received last is sealed; the one before lies in the other slot.
  Status rebase(protocol::Base base);
  // Copies of the parameters and of the mean that is complete but not committed: both slots and the parameters are
  // free to change until the next rebase() or apply().
  Status take_snapshot();
  // For the site's other ranks: the parameters into the arena's other slot.
  Status publish_parameters();

  // What payloads have left out so far. It changes in apply() and rebase() only, and when the first anchor is in place.
  [[nodiscard]] const Residual& residual() const { return residual_; }

  // Some elements of anchor - parameters (protocol::sample_of); none before there is an anchor.
  [[nodiscard]] std::vector<float> sample_delta() const;
  // Are the parameters bit for bit the anchor's? Ends at the first that is not; false before there is an anchor.
  [[nodiscard]] bool is_unchanged() const;

  // ---- anchors
  // Seals our own parameters as the anchor of (run, round) unless the arena holds that already.
  Result<SealedAnchor> keep_anchor(const protocol::KeepAnchor& action);
  [[nodiscard]] AnchorStreams& anchors() { return anchors_; }
  // The arena's free slot is for that from here on.
  void receive_anchor(const protocol::ReceiveAnchor& action);
  void link_closed(LinkId link) {
    anchors_.link_closed(link);
    early_.link_closed(link);
  }
  // Held for attempts that have not begun here.
  [[nodiscard]] const EarlyChunks& early() const { return early_; }

  [[nodiscard]] Traffic traffic() const { return {sender_.bytes(), bytes_received_}; }
  [[nodiscard]] const RoundTraffic& round_traffic() const { return round_traffic_; }
  void start_round_clock();
  // Of rounds, per second; 0: not known.
  [[nodiscard]] std::uint32_t up_kbit() const { return up_rate_.kbit_per_second(); }
  [[nodiscard]] std::uint32_t down_kbit() const { return down_rate_.kbit_per_second(); }

 private:
  using Incoming = IncomingChunk;
  // Of one fragment; empty: none.
  struct Snapshot {
    ElementRange range{};
    std::vector<float> values{};
    [[nodiscard]] Residual::Reader reader() const;
  };
  // Of the anchor in place, so that a round need not look at what it leaves alone. Empty unless rounds move fragments.
  struct TileDigests {
    Digest state{};
    std::vector<Digest> anchor{};
    std::vector<Digest> outer{};
  };
  // One attempt's data.
  struct Attempt {
    wire::StartAttempt start;
    SiteId self;
    ElementRange range;  // the fragment that is averaged: all slices
    std::map<SiteId, LinkId> links;
    std::size_t peers = 0;  // that have a link
    protocol::Exchange exchange;
    std::vector<float> scales;                   // per participant, site order
    OuterConfig outer;                           // the step, as it is for those who contribute
    std::optional<RadialNorms> norms{};          // with `rda`, where there is more than one contributor
    std::vector<RadialNorms::Factor> factors{};  // by what their tensors' means are multiplied
    float shrink = 1.0F;                         // of the mean, which is too long
    std::map<std::uint64_t, BufferPtr> means;    // encoded means not yet decoded
    struct OwnMean {
      wire::Chunk chunk;
      BufferPtr payload;
      std::size_t to_go = 0;  // peers that have not been sent it
    };
    std::map<std::uint64_t, OwnMean> own_means;
    struct Hashed {
      Digest digest;
      std::uint64_t elements = 0;
    };
    // Of what each chunk of the mean has become, by first element: the next anchor if steps_at_once(), else the mean.
    std::map<std::uint64_t, Hashed> digests;
    bool complete = false;
    std::uint64_t moved = 0;  // bytes of chunks that have come or left
  };

  Events advance(const protocol::ExchangeEvent& event, SiteId peer);
  Events run(const protocol::SendContribution& action);
  Events run(const protocol::ReduceChunk& action);
  Events run(const protocol::SendMean& action);
  Events run(const protocol::TakeMean& action);
  Events run(const protocol::ExchangeDone& action);
  Events accept(Incoming incoming);
  Events close_lossy();
  void seal(const SealedAnchor& anchor);
  Events fail(SiteId peer, std::string reason);
  Events unfit(std::string reason);
  Events not_finite(ElementRange range);
  [[nodiscard]] Result<std::span<const float>> parameters_at(ElementRange range);
  // What went wrong, and with whose payload.
  struct Fault {
    SiteId with;
    Status why;
  };
  // In the attempt under way.
  [[nodiscard]] float scale_of_self() const;
  [[nodiscard]] SiteId owner_of(ElementRange chunk) const;
  [[nodiscard]] const MixedCodec& codec_of(wire::ChunkKind kind) const;
  [[nodiscard]] Status check_payload(const wire::Chunk& chunk, std::size_t bytes) const;
  // What follows the payload of a mean.
  [[nodiscard]] std::size_t norms_size(ElementRange chunk) const;
  // The weighted sum in site order; false: our own delta is not finite. With `rda` the squares of what is added, too.
  [[nodiscard]] bool reduce_into(std::span<float> sum, ElementRange range, std::vector<double>& squares,
                                 std::optional<Fault>& fault);
  // How much of what was contributed, less the mean, a commit takes out of the parameters: see Residual::commit().
  [[nodiscard]] float taken_of_difference(protocol::Base base) const;
  // The residual after the commit of the attempt under way.
  Status keep_left_out(protocol::Base base, const Snapshot& snapshot);
  // A mean's payload into the arena's free slot, and what follows it. The owner of a lossless one has it there already.
  Status open_mean(ElementRange range, std::span<const std::byte> bytes, bool decode);
  void take_mean(std::uint64_t begin, std::span<float> mean);
  // The new anchor in place of the mean of the elements from `begin` on; `outer` is empty or as long.
  void step_from(std::uint64_t begin, std::span<float> mean, std::span<float> outer);
  // The mean's norm if it is too long; it is then to be shrunk. Else 0.
  double clip_mean();
  // The average of one model is that model, bit for bit; a - (a - x) is not always x.
  [[nodiscard]] bool averages_itself() const;
  // Passes over the elements of `range`, or over all, that say on their way that they go on.
  void passing() const {
    if (parts_.passing) parts_.passing();
  }
  void copy_passing(std::span<const float> from, std::span<float> to) const;
  Status read_passing(std::uint64_t offset, std::span<float> out);
  Status change_passing(ParameterChange change, std::span<const float> anchor, Previous previous,
                        ElementRange range = kWholeVector);
  // Before an ordinary write to the parameters.
  void before_change(protocol::Base base, ElementRange range = kWholeVector);
  // It is moved on by what the round changed, not written to.
  [[nodiscard]] bool displaces_copy(protocol::Base base) const;
  // Elements of the fragment, at a commit: the mean in `tile` becomes the anchor, and the parameters what `end` says.
  struct End {
    ParameterChange change = ParameterChange::kUnchanged;
    bool sole = false;            // the mean is the parameters
    bool displaces = false;       // the copy is displaced
    std::span<const float> base;  // of the fragment, where the change needs it
  };
  // With the digest of the state as it is then; `before`: as it was.
  Result<Digest> step_anchor(const Digest& before, const End& end);
  void end_tile(std::uint64_t begin, std::span<float> tile, std::span<float> outer, const End& end);
  // The parameters, once the next anchor is there in `stretch`.
  Status follow(ElementRange stretch, const End& end);
  // Likewise; the copy is displaced.
  void displace_tile(std::uint64_t begin, std::span<float> tile, std::span<float> outer);
  // The outer step is taken chunk by chunk, before the commit.
  [[nodiscard]] bool steps_at_once() const;
  // What goes before a payload of the attempt under way.
  [[nodiscard]] wire::Chunk announce(wire::ChunkKind kind, ElementRange range, Buffer& payload) const;
  void keep_mean();
  void send_chunk(SiteId to, const wire::Chunk& chunk, BufferPtr payload, const protocol::Following& more);

  Settings settings_;
  Parts parts_;
  MixedCodec up_;
  MixedCodec down_;
  Residual residual_;
  std::shared_ptr<BufferPool> pool_;
  std::vector<float> staging_;    // parameters that are not plain float32 in host memory
  std::vector<float> measured_;   // what one site contributes to a chunk, with `rda`
  ElementRange contributed_{};    // the fragment of the exchange that was started last
  Snapshot snapshot_;             // of the parameters as they were contributed
  std::vector<float> kept_mean_;  // of an attempt that is complete while the site trains on; empty: it is in the arena
  TileDigests tiles_;
  std::optional<Attempt> attempt_;
  protocol::Carryover<BufferPtr> carried_;  // the others' contributions to our slices, encoded, kept until the commit
  EarlyChunks early_;                       // for an attempt we have not started yet
  std::map<std::uint64_t, protocol::ChunkSent> chunks_on_their_way_;  // of the attempt under way, by token
  ChunkSender sender_;
  AnchorStreams anchors_;
  std::uint64_t bytes_received_ = 0;
  RoundTraffic round_traffic_;
  protocol::RateMeter up_rate_;
  protocol::RateMeter down_rate_;
  std::map<std::uint64_t, std::uint64_t> bytes_on_their_way_;  // of a round's chunks, by token
};

}  // namespace collab
