// Every message of the protocol, as a plain struct. encoding.h turns messages into bytes and back;
// docs/protocol/wire.md has the grammar.
//
// Threads and ownership: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "collab/tensor_kind.h"
#include "collab/types.h"
#include "core/wire/hub_messages.h"

namespace collab::wire {

inline constexpr std::uint32_t kNoIndex = 0xFFFF'FFFF;

// ---- parts of several messages --------------------------------------------------------------------

// One site of a membership. Every attempt needs more than half of a membership.
struct Voter {
  SiteId site;  // its number in the attempt's lists
  std::string name;
  AcceptorId acceptor{};  // the memory that counts; a site with another acceptor has lost its record
  bool left = false;      // in good order: whatever the others accept, it accepts
  bool operator==(const Voter&) const = default;
};

struct Participant {
  SiteId site;
  std::string name;
  double weight = 0;  // 0: receives the mean, contributes nothing
  // Contributions to it and from it in this round's attempts from this one on are still valid.
  AttemptId since{};
  bool here = true;  // false: it was lost after its contribution had arrived at all owners
  bool operator==(const Participant&) const = default;
};

struct Slice {
  SiteId owner;
  ElementRange range;
  bool operator==(const Slice&) const = default;
};

// One try at a round, proposed under a ballot (term, attempt). If no participant has a weight, nothing is exchanged and
// there are no slices: the commit only moves the round's number on.
struct StartAttempt {
  TermId term;
  std::uint32_t generation = 1;  // of the model
  Digest fingerprint{};          // of its description
  RunId run;
  RoundId round;
  AttemptId attempt;
  std::vector<Participant> participants;  // ascending SiteId
  std::vector<Slice> slices;              // ascending, without gaps, covering the fragment; none without a weight
  std::vector<Voter> voters{};            // the membership from this attempt's commit on; ascending
  bool operator==(const StartAttempt&) const = default;
};

// Without contributors, the anchor stays as it is.
struct Commit {
  TermId term;
  RunId run;
  RoundId round;
  AttemptId attempt;
  std::vector<SiteId> contributors;
  std::uint32_t period = 0;  // steps until the next round; 0: as before, or as COLLAB_SYNC_EVERY says
  bool operator==(const Commit&) const = default;
};

// ---- site -> coordinator -------------------------------------------------------------------------

// One tensor of the model, in the order of the parameter vector.
struct ModelEntry {
  std::string name;
  std::string dtype;  // "float32", "bfloat16", ...
  std::vector<std::uint64_t> shape;
  TensorKind kind = TensorKind::kAveraged;
  Digest digest;  // of the bytes; none for averaged tensors. Frozen tensors must agree, left-out ones may differ
  bool operator==(const ModelEntry&) const = default;
};

// A knob that must be the same at all sites, as text: "codec"="int8".
struct Setting {
  std::string key;
  std::string value;
  bool operator==(const Setting&) const = default;
};

// An anchor by name. In the offer of a site, run 0 means that it has no anchor yet; `digest` is then of its fresh
// parameters.
struct Offer {
  RunId run;
  RoundId round;
  Digest digest;  // of anchor and outer state
  bool operator==(const Offer&) const = default;
};

// An attempt that a site knows, and whether it has accepted it: an acceptor's (ballot, value).
struct Proposal {
  StartAttempt start;
  bool accepted = false;
  std::vector<Digest> slices{};  // as in Done, when accepted
  TermId settled{};              // the last term under which a successor proposed it again and it was accepted; 0: none
  bool operator==(const Proposal&) const = default;
};

// A committed round, for sites that missed it.
struct Past {
  RunId run;
  RoundId round;
  AttemptId attempt;
  std::vector<std::string> contributors;  // names
  Digest mean;                            // of the slices' digests; zero if nothing was exchanged
  bool operator==(const Past&) const = default;
};

// What an acceptor must not forget. It is durable before the site promises or accepts.
struct Record {
  AcceptorId acceptor{};
  TermId promised{};                  // the site follows no older term
  std::uint32_t generation = 1;       // of the model
  Digest fingerprint{};               // of its description
  Offer anchor{};                     // the newest agreed anchor that it knows; run 0: none
  std::vector<Voter> voters{};        // the membership as of that anchor
  std::vector<Proposal> proposals{};  // at the round after it: the newest attempt, and the newest settled
  std::vector<Past> recent{};         // the last rounds it saw committed, oldest first
  bool operator==(const Record&) const = default;
};

// What a site knows of the past, for a leader that may know less.
struct Report {
  Record record{};
  bool member = false;      // this process has been let in before
  bool training = false;    // it trains, so it comes to its trigger by itself
  bool holds_mean = false;  // it holds its newest accepted attempt's mean, so it can apply the commit
  bool operator==(const Report&) const = default;
};
struct Join {
  std::string swarm;                 // COLLAB_RUN: another swarm is refused
  std::string site;                  // unique in the swarm
  std::uint32_t index = kNoIndex;    // the requested SiteId, or kNoIndex
  std::uint32_t expected_sites = 1;  // round 0 waits for this many
  std::string address;               // where this site can be dialled, "host:port"; empty: it cannot
  bool helper = false;               // it owns slices and trains nothing; its model is not compared
  std::uint32_t generation = 1;      // of the model that it trains, from 1; for a helper: that it holds
  std::uint64_t elements = 0;        // length of the parameter vector
  Digest fingerprint{};              // of the model's description; ignored for a helper
  Offer offer;                       // the anchor it can bring; run 0: none, the digest is of fresh parameters
  Report report{};
  std::vector<Setting> settings;
  std::vector<ModelEntry> model;
  bool resumed = false;       // its script has loaded a state into the model or the optimizer
  std::string init_from{};    // COLLAB_INIT_FROM: the site whose parameters the swarm is to begin with; empty: any
  std::uint64_t process = 0;  // random number of this process, known to coordinators only: proves its identity
  std::uint64_t world = 0;    // the world whose collectives its ranks take part in (Enter::world); 0: none
  bool operator==(const Join&) const = default;
};

// "This anchor is in place here."
struct AnchorInstalled {
  RunId run;
  RoundId round;
  Digest digest;
  AcceptorId acceptor{};  // in that run
  bool operator==(const AnchorInstalled&) const = default;
};

inline constexpr std::uint32_t kNoLoss = 0x7FC00000;  // NaN: no loss was logged, or it was not finite

// What a site has measured up to its trigger. 0: not known.
struct Measured {
  std::uint32_t up_kbit = 0;  // measured rate of its line, for payloads
  std::uint32_t down_kbit = 0;
  std::uint64_t step_us = 0;         // a step of the training since the last trigger
  std::uint64_t round_us = 0;        // the last round, from the trigger to the mean in the parameters
  std::uint32_t waited_ppm = 0;      // part of the time since the last trigger in which the script waited for a round
  std::uint32_t overlapped_ppm = 0;  // part of that time in which a round ran behind the training
  std::uint32_t merged_ppm = 0;      // part of that time spent on merging the result; contained in waited_ppm
  std::uint32_t loss = kNoLoss;      // the loss that its script logged last, as binary32
  bool operator==(const Measured&) const = default;
};

// "My site has reached its trigger for this round, and its parameters do not change."
struct Ready {
  RoundId round;
  double weight = 0;          // by COLLAB_WEIGHT; 0: takes part, contributes nothing
  std::uint64_t samples = 0;  // since the last committed contribution
  std::uint64_t steps = 0;
  Digest state;                                // of the anchor and outer state it holds
  AttemptId since{};                           // as in Participant; 0: nothing is still valid
  std::vector<std::uint32_t> sampled_delta{};  // some elements of the delta, the same ones at every site, as binary32
  Measured measured{};
  std::uint32_t period = 0;  // the period that the site follows; 0: the leader has set none
  bool operator==(const Ready&) const = default;
};

// "My delta cannot be averaged; form the attempt again without it."
struct Decline {
  RoundId round;
  AttemptId attempt;
  std::string reason;
  bool operator==(const Decline&) const = default;
};

// "I cannot exchange with that member in this attempt"; the coordinator forms another.
struct PeerUnreachable {
  RoundId round;
  AttemptId attempt;
  SiteId peer;
  std::string reason;
  bool operator==(const PeerUnreachable&) const = default;
};

struct Done {
  TermId term;
  RoundId round;
  AttemptId attempt;
  std::vector<Digest> slices;  // of the decoded mean, one per slice of the StartAttempt, in its order
  bool operator==(const Done&) const = default;
};

struct Leave {
  std::string reason;
  std::uint32_t next_generation = 0;  // the generation that the site trains next; 0: none
  bool operator==(const Leave&) const = default;
};

// "I follow this term and no older one; this is what I know." Answers Prepare.
struct Promise {
  TermId term;
  Offer offer;
  Report report{};
  bool operator==(const Promise&) const = default;
};

// "I have accepted your proposal under this term, too." Answers Accept.
struct Accepted {
  TermId term;
  bool operator==(const Accepted&) const = default;
};

// ---- coordinator -> site -------------------------------------------------------------------------

struct Welcome {
  TermId term;
  SiteId site;
  std::uint32_t heartbeat_ms = 1000;
  std::uint32_t grace_ms = 60000;
  bool anew = false;  // the site's promises belong to another register: it goes on as a new acceptor
  bool operator==(const Welcome&) const = default;
};

struct Refuse {
  std::string reason;
  bool behind = false;  // the swarm trains a later generation of the model: the site may train alone
  bool operator==(const Refuse&) const = default;
};

// "Wait here: the swarm is not where you are yet." Answers Join in place of Welcome, which follows once it is.
struct Hold {
  std::string reason;
  bool operator==(const Hold&) const = default;
};

enum class MemberState : std::uint8_t { kJoining = 0, kActive = 1, kSuspect = 2 };

struct Member {
  SiteId site;
  std::string name;
  std::string address;
  MemberState state = MemberState::kJoining;
  bool operator==(const Member&) const = default;
};

// The swarm as the coordinator sees it; sent whenever it changes.
struct Roster {
  TermId term;
  std::vector<Member> members;  // ascending SiteId
  bool operator==(const Roster&) const = default;
};

// The key that a site shows another in its Hello. Only these two sites and the leader know it.
struct Key {
  SiteId site;
  Digest key;
  bool operator==(const Key&) const = default;
};

// A new member gets the keys for all others, and each of them gets the key for the new member. They replace earlier
// keys for these sites.
struct Keys {
  std::vector<Key> keys;  // ascending SiteId
  bool operator==(const Keys&) const = default;
};

// Whether a site's contribution is part of the round's commit.
enum class Counted : std::uint8_t { kNo = 0, kYes = 1, kUnknown = 2 };

// "The swarm's anchor is this; take it from `sources` unless you hold it already."
struct InstallAnchor {
  TermId term;
  RunId run;
  RoundId round;
  std::vector<SiteId> sources;  // sites that hold it, ascending; only the receiver: it keeps its anchor
  Digest digest;
  Counted counted = Counted::kNo;  // about the receiver's contribution to the round after the anchor it holds
  std::vector<Voter> voters{};     // the membership as of that anchor
  std::uint32_t generation = 1;    // of the model
  std::uint32_t period = 0;        // as in Commit
  AttemptId attempt{};             // kYes: the committed attempt; the site's earlier process may have contributed
  bool operator==(const InstallAnchor&) const = default;
};

// "No attempt at this round can be formed for now: train on; the anchor stays as it is."
struct RoundSkipped {
  TermId term;
  RoundId round;
  std::string reason;
  bool operator==(const RoundSkipped&) const = default;
};

// "Promise me to follow no older term than this." From a candidate.
struct Prepare {
  TermId term;
  bool operator==(const Prepare&) const = default;
};

// "You have promised me this term: accept under it the attempt that an older term may have committed, if any." From a
// candidate with enough promises.
struct Accept {
  TermId term;
  std::vector<Proposal> proposals{};  // at most one, with this term as `settled`
  bool operator==(const Accept&) const = default;
};

// "This site has left in good order": it counts as accepting, and is no part of the next membership.
struct MemberLeft {
  TermId term;
  std::string site;
  AcceptorId acceptor{};  // as the membership names it; this acceptor is never heard again
  bool operator==(const MemberLeft&) const = default;
};

// "Your leave is noted; nothing more will be asked of you."
struct LeaveAck {
  bool operator==(const LeaveAck&) const = default;
};

// ---- site <-> site -------------------------------------------------------------------------------

// First on a link between sites, both ways.
struct Hello {
  std::string swarm;
  TermId term;
  SiteId site;
  std::string name;
  Digest key{};  // the key of these two sites, from the leader
  bool operator==(const Hello&) const = default;
};

enum class ChunkKind : std::uint8_t {
  kContribution = 0,
  kMean = 1,
  kAnchor = 2,
  kOuter = 3,
  kAnchorDigests = 4,  // digests of tiles of kDigestChunkElements elements
  kOuterDigests = 5,
  kOptimizer = 6,  // bytes of a copy of an optimizer's state
};

// Asks for a part of an anchor, its outer state, or their tiles' digests; one Chunk answers, or AnchorMoved.
struct FetchAnchor {
  RunId run;
  RoundId round;
  ChunkKind kind = ChunkKind::kAnchor;
  ElementRange range;
  bool operator==(const FetchAnchor&) const = default;
};

// "I hold this anchor, not the one you ask for." Run 0: it holds none.
struct AnchorMoved {
  RunId run;
  RoundId round;
  bool operator==(const AnchorMoved&) const = default;
};

// Snapshot 0: "describe your optimizer's state"; the receiver makes a copy of it. Otherwise asks for a part of that
// copy, and one Chunk answers. An empty range: "I no longer need the copy".
struct FetchOptimizer {
  std::uint64_t snapshot = 0;
  ElementRange range;  // of bytes
  bool operator==(const FetchOptimizer&) const = default;
};

// "This is the copy that I made." Snapshot 0: there is no copy, or it is gone; `reason` says why.
struct OptimizerState {
  std::uint64_t snapshot = 0;
  std::uint64_t bytes = 0;
  Digest digest;            // of the bytes
  std::string description;  // JSON: which optimizer the bytes belong to
  std::string reason;
  bool operator==(const OptimizerState&) const = default;
};

// Announces the payload that travels with it on the data lane.
struct Chunk {
  ChunkKind kind = ChunkKind::kContribution;
  RunId run;      // tells equal round numbers of two runs apart; kOptimizer: 0
  RoundId round;  // kOptimizer: the snapshot
  AttemptId attempt;
  SiteId from;
  ElementRange range;  // kOptimizer: in bytes
  CodecId codec = CodecId::kFp32;
  std::uint64_t payload_hash = 0;  // XXH3-64 of the payload
  bool operator==(const Chunk&) const = default;
};

// ---- any direction -------------------------------------------------------------------------------

// From a site to its coordinator: the progress of its exchange in the attempt under way.
struct Exchanged {
  std::uint64_t moved = 0;      // bytes received or sent
  bool means = false;           // means are missing; false: contributions
  std::vector<SiteId> lacks{};  // the first sites whose parts are missing
  bool operator==(const Exchanged&) const = default;
};

struct Heartbeat {
  std::uint64_t sequence = 0;
  bool reply = false;          // true: an answer carrying the sequence it answers
  std::uint64_t progress = 0;  // to the coordinator: bytes of payloads received so far
  Exchanged exchanged{};
  bool operator==(const Heartbeat&) const = default;
};

// "Do you lead a swarm?" From a member of another swarm, or of none, to a candidate.
struct Inquire {
  std::string swarm;
  bool operator==(const Inquire&) const = default;
};

struct Leads {
  bool leads = false;
  std::uint32_t generation = 1;
  RunId run;
  RoundId round;
  std::uint32_t members = 0;
  bool operator==(const Leads&) const = default;
};

// The operator says that these sites will not come: the sites here may go on without them.
struct Forget {
  std::vector<std::string> sites;
  bool operator==(const Forget&) const = default;
};

struct StatusQuery {
  bool operator==(const StatusQuery&) const = default;
};

// An averaged tensor of the model, in the order of the parameter vector.
struct TensorLength {
  std::string name;
  std::uint64_t elements = 0;
  bool operator==(const TensorLength&) const = default;
};

struct StatusReport {
  std::string json;
  // A helper joins with these, as the first site brought them. 0: no site is here.
  std::uint64_t elements = 0;
  std::vector<Setting> settings{};
  std::vector<TensorLength> tensors{};  // if a setting depends on them: keep_fp16, rda
  bool operator==(const StatusReport&) const = default;
};

// A message for a site's user; goes to the site's log.
struct Notice {
  std::string event;
  std::string text;
  bool operator==(const Notice&) const = default;
};

using Message =
    std::variant<Join, AnchorInstalled, Ready, Decline, PeerUnreachable, Done, Leave, Welcome, Refuse, Roster,
                 InstallAnchor, StartAttempt, Commit, LeaveAck, Hello, FetchAnchor, AnchorMoved, Chunk, Heartbeat,
                 StatusQuery, StatusReport, RoundSkipped, Prepare, Promise, MemberLeft, Enter, Assemble, Disband,
                 Contribute, ResultAck, ResolveSender, Entered, Stands, SenderResolved, Part, StepResult, Notice,
                 FetchOptimizer, OptimizerState, Hold, Accept, Accepted, Inquire, Leads, Forget, PrepareWorld,
                 AcceptEpoch, AcceptedEpoch, ChosenEpoch, Keys>;

}  // namespace collab::wire
