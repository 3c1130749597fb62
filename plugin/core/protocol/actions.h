// The inputs (events) and outputs (actions) of the protocol's state machines.
//
// The machines (Coordinator, Site, Exchange) are pure: `step(now, event) -> actions`. They own no
// socket, thread, clock or random source; the runtime and the simulator both drive them with these types.
// Threads and ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "collab/types.h"
#include "core/wire/messages.h"

namespace collab::protocol {

// An event worth telling a person or a program. It becomes a line of COLLAB_EVENTS_FILE and of the log.
struct Note {
  enum class Level : std::uint8_t { kDebug, kInfo, kWarning, kError };
  Level level = Level::kInfo;
  std::string event;                                        // "round", "join", "leave", "suspect", "refused", ...
  std::string text;                                         // the reason, one sentence
  std::vector<std::pair<std::string, std::string>> fields;  // extra JSON fields; values are JSON texts
};

// ---- links, common to Coordinator and Site -------------------------------------------------------

struct Received {
  LinkId link;
  wire::Message message;
};
struct Closed {
  LinkId link;
  Status why;
};
struct Tick {};

struct Send {
  LinkId link;
  wire::Message message;
};
// Close the link once all queued messages are sent.
struct CloseLink {
  LinkId link;
  std::string why;
};

// ---- coordinator ---------------------------------------------------------------------------------

// Prefix of a world-wide barrier's name. The training of ranks in a barrier stands still. Other calls may come from a
// thread beside the training.
inline constexpr std::string_view kStandsStill = "barrier: ";

// The call of its world that a site's ranks wait in. The site is not ready before the awaited sites join the call.
struct InCall {
  std::string call;              // for people
  std::set<std::string> awaits;  // names of sites
  bool stands_still = false;     // the call is a barrier: the site cannot become ready before it ends
  bool operator==(const InCall&) const = default;
};
// All such sites, by name. Replaces the list sent before.
struct CallsUnderWay {
  std::map<std::string, InCall> sites;
  bool operator==(const CallsUnderWay&) const = default;
};
// No process answered at the address where a member says that it can be dialled.
struct Undialable {
  LinkId link;  // to the member
  std::string reason;
};
using CoordinatorEvent = std::variant<Received, Closed, Tick, CallsUnderWay, Undialable>;
struct Broadcast {  // one message over many links, in this order
  std::vector<LinkId> links;
  wire::Message message;
};
// Check that the member can be dialled at this address. A transport that cannot cross NAT has nothing to check.
struct ProbeAddress {
  LinkId link;
  std::string address;
};
using CoordinatorAction = std::variant<Send, Broadcast, CloseLink, ProbeAddress, Note>;

// Calls f(link, message) for each message that the action sends. f returns false to stop.
template <typename F>
void each_sent(const CoordinatorAction& action, F f) {
  if (const auto* send = std::get_if<Send>(&action)) static_cast<void>(f(send->link, send->message));
  if (const auto* all = std::get_if<Broadcast>(&action)) {
    for (const LinkId link : all->links) {
      if (!f(link, all->message)) return;
    }
  }
}

// ---- site ----------------------------------------------------------------------------------------

// From the training process.
struct Begin {  // the model is known, its parameters are readable: join the swarm
  wire::Join join;
};
struct Trigger {              // the parameters do not change until RoundDone or RoundSkipped
  std::uint64_t samples = 0;  // total since Begin
  std::uint64_t steps = 0;
  std::vector<float> sampled_delta{};  // the delta's elements at sample_of(n)
  wire::Measured measured{};
};
struct Depart {  // leave the swarm; answered by Left
  std::string reason;
  std::uint32_t next_generation = 0;  // as in wire::Leave
};
// From links.
struct CoordinatorConnected {
  LinkId link;
  bool inquiry = false;                      // as in DialCoordinator
  std::optional<std::uint32_t> candidate{};  // as in DialCoordinator; none: that of the last one
};
struct PeerConnected {  // a dial asked for by DialPeer succeeded
  SiteId site;
  LinkId link;
};
struct DialFailed {  // a DialCoordinator (no site) or DialPeer failed
  std::optional<SiteId> site;
  Status why;
  bool inquiry = false;
  std::optional<std::uint32_t> candidate{};  // as in CoordinatorConnected
};
// From the data plane.
struct ExchangeComplete {  // every chunk of the mean is here and decoded
  RoundId round;
  AttemptId attempt;
  std::vector<Digest> slices;
};
struct ContributionUnfit {  // NaN or Inf in our delta
  RoundId round;
  AttemptId attempt;
  std::string reason;
};
struct ExchangeFailed {  // the data plane refused a peer's data, or lost the peer
  RoundId round;
  AttemptId attempt;
  SiteId peer;
  std::string reason;
};
struct AnchorInPlace {  // the anchor was kept, or received completely; the digest was computed here
  RunId run;
  RoundId round;
  Digest digest;
};
struct AnchorSourceWrong {  // the source's bytes do not match the agreed digest
  SiteId site;
  std::string reason;
  std::uint64_t here = 0;  // elements that are in place nevertheless
};
struct Applied {  // the outer step is done and the parameters are written
  RoundId round;
  Digest state;
};
// From the record store: all records up to this number are durable, or could not be written.
struct Persisted {
  std::uint64_t number = 0;
  Status why;
};
// A joining site fetches optimizer state from another member (optimizer_fetch.h).
struct FindOptimizerSource {};  // ask the next member; answered by OptimizerOffered or NoOptimizer
struct TakeOptimizer {};        // fetch the offered state; answered by OptimizerComplete or OptimizerLost
struct EndOptimizer {};         // the state is in use, or no longer wanted
struct OptimizerPart {          // some bytes of the state arrived
  LinkId link;
  std::uint64_t snapshot = 0;
  ElementRange range;
  bool damaged = false;
};
struct OptimizerUnfit {  // all bytes arrived, but they differ from the offer
  std::string reason;
};
using SiteEvent =
    std::variant<Begin, Trigger, Depart, CoordinatorConnected, PeerConnected, DialFailed, Received, Closed,
                 ExchangeComplete, ContributionUnfit, ExchangeFailed, AnchorInPlace, AnchorSourceWrong, Applied,
                 Persisted, FindOptimizerSource, TakeOptimizer, EndOptimizer, OptimizerPart, OptimizerUnfit, Tick>;

struct DialCoordinator {
  std::uint32_t candidate = 0;  // index into the configured addresses
  bool inquiry = false;         // use a second link, beside the one in use
};
// Make this record durable, then answer with Persisted. Actions that depend on it wait until then.
struct Persist {
  std::uint64_t number = 0;  // counted from 1; a later record replaces all whose writing has not begun
  wire::Record record;
};
struct DialPeer {
  SiteId site;
  std::string address;
};
// Cancels an exchange in flight. links[i] reaches start.participants[i]. It is LinkId{0} for self, and for a
// participant with which nothing is exchanged (neither side owns a slice).
struct StartExchange {
  wire::StartAttempt start;
  SiteId self;
  std::vector<LinkId> links;  // per participant; 0: no link

  [[nodiscard]] std::vector<SiteId> peers() const {  // participants with a link to us
    std::vector<SiteId> peers;
    for (std::size_t i = 0; i < links.size(); ++i) {
      if (links[i] != LinkId{0}) peers.push_back(start.participants[i].site);
    }
    return peers;
  }
};
struct CancelExchange {
  std::string why;
};
// Which part of the training the new anchor already contains. Parameters become new anchor + (parameters - base).
enum class Base : std::uint8_t {
  kParameters,  // everything was contributed: parameters := new anchor
  kOldAnchor,   // nothing was contributed
  kSnapshot,    // the contributed parameters are in the snapshot
  kUnfit,       // the parameters are not finite: parameters := new anchor; check their optimizer
};
// The membership as of an anchor, and its leader's term. Every site that knows the membership has promised that term.
struct KnownMembership {
  TermId promised;
  std::vector<wire::Voter> voters{};
};
struct ApplyCommit {  // take the outer step for this attempt, write the parameters, answer with Applied
  wire::Commit commit;
  Base base = Base::kParameters;
  KnownMembership membership{};  // as of the new anchor, which is never stored or sent without it
};
// A different anchor was received and is in place: move the parameters onto it. No answer.
struct Rebase {
  Base base = Base::kOldAnchor;
};
struct TakeSnapshot {};  // copy the parameters, for the next Rebase or ApplyCommit
// Hold the anchor of (run, round) from now on. It comes from our own parameters or the store, without a transfer.
// Answer with AnchorInPlace.
struct KeepAnchor {
  RunId run;
  RoundId round;
  Digest digest;  // the same anchor may get another name (run, round)
  KnownMembership membership{};
};
// Fetch anchor and outer state from the added sources (an AnchorFetch says which part from which source).
// AnchorInPlace follows. Parts of the same anchor that arrived before are not fetched again.
struct ReceiveAnchor {
  RunId run;
  RoundId round;
  Digest digest;  // expected; on a mismatch the old anchor stays
  KnownMembership membership{};
};
struct AddAnchorSource {
  SiteId site;
  std::string name;
  LinkId over;
};
struct DropAnchorSource {  // the source's link is gone, or it now holds another anchor
  SiteId site;
};
struct StopReceiving {};  // the anchor in transfer is no longer wanted
struct SendAnchor {       // send the requested part
  wire::FetchAnchor part;
  LinkId to;
};
struct JoinDone {  // the anchor is in place; training may start
  SiteId site;
  RunId run;
  RoundId round;
  std::uint32_t period = 0;  // as in RoundDone
};
struct RoundDone {
  RoundId round;
  std::uint32_t attempts = 0;  // attempts in which this site took part
  std::vector<std::string> members;
  std::vector<std::string> contributors;
  std::uint64_t samples = 0;  // samples of this process that the anchor contains, in this round's fragment
  std::uint32_t period = 0;   // set by the leader; 0: none
};
// The trigger ends without a round: train on. The training so far counts in a later round.
struct RoundSkipped {
  RoundId round;
  std::string reason;
};
struct OptimizerOffered {
  std::string from;
  wire::OptimizerState state;
};
struct NoOptimizer {  // no member has offered one
  Status why;
};
struct TakeOptimizerPart {  // the part that just arrived was asked for: put it in its place
  ElementRange range;
};
struct OptimizerComplete {};  // every byte is here: check them
struct OptimizerLost {        // other members may still offer theirs
  std::string reason;
};
struct ServeOptimizer {  // another site asks for ours
  LinkId to;
  std::string name;
  wire::FetchOptimizer asked;
};
struct Left {};
// The machine cannot go on; the runtime tells every waiting caller.
struct Failed {
  Status why;
};
using SiteAction =
    std::variant<Send, CloseLink, DialCoordinator, Persist, DialPeer, StartExchange, CancelExchange, ApplyCommit,
                 KeepAnchor, ReceiveAnchor, AddAnchorSource, DropAnchorSource, StopReceiving, SendAnchor, JoinDone,
                 Rebase, TakeSnapshot, RoundDone, RoundSkipped, OptimizerOffered, NoOptimizer, TakeOptimizerPart,
                 OptimizerComplete, OptimizerLost, ServeOptimizer, Left, Failed, Note>;

// ---- exchange: the chunks of one attempt ----------------------------------------------------------

struct ExchangeStart {};
struct ContributionArrived {
  SiteId from;
  ElementRange range;
};
struct MeanArrived {
  SiteId from;
  ElementRange range;
};
struct ChunkSent {  // the contribution or mean was delivered; the window opens
  SiteId to;
  wire::ChunkKind kind;
};
using ExchangeEvent = std::variant<ExchangeStart, ContributionArrived, MeanArrived, ChunkSent>;

struct Following {  // elements that remain to be sent to the same site after a chunk
  std::uint64_t contributions = 0;
  std::uint64_t means = 0;
};
struct SendContribution {  // encode our delta of this chunk and send it to its owner
  SiteId owner;
  ElementRange range;
  Following more{};
};
struct ReduceChunk {  // every contribution to this chunk is here: reduce, encode, decode
  ElementRange range;
};
struct SendMean {  // send a reduced chunk's mean
  SiteId to;
  ElementRange range;
  Following more{};
};
struct TakeMean {  // decode the mean that just arrived
  ElementRange range;
};
struct ExchangeDone {};
using ExchangeAction = std::variant<SendContribution, ReduceChunk, SendMean, TakeMean, ExchangeDone>;

}  // namespace collab::protocol
