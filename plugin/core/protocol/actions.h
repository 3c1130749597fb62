// What the protocol's state machines are told (events) and what they ask for (actions).
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

// One thing worth telling a person or a program: becomes a line of COLLAB_EVENTS_FILE and of the log.
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
// Close after what is queued has been sent.
struct CloseLink {
  LinkId link;
  std::string why;
};

// ---- coordinator ---------------------------------------------------------------------------------

// The name of a world-wide barrier begins with this: the training of ranks in it stands still. Other calls may be made
// by a thread beside the training.
inline constexpr std::string_view kStandsStill = "barrier: ";

// A site whose ranks stand in a call of their world: it is not ready before those it awaits have come to it.
struct InCall {
  std::string call;              // as a text for people
  std::set<std::string> awaits;  // sites
  bool stands_still = false;     // its training stands in a barrier: it cannot come before that has ended
  bool operator==(const InCall&) const = default;
};
// All such sites, by name, in place of those told before.
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
// Try whether that member can be dialled there; where links cannot cross NAT there is nothing to try.
struct ProbeAddress {
  LinkId link;
  std::string address;
};
using CoordinatorAction = std::variant<Send, Broadcast, CloseLink, ProbeAddress, Note>;

// f(link, message) for each copy of what the action sends; f says false to stop.
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
struct Trigger {              // parameters stand still until RoundDone or RoundSkipped
  std::uint64_t samples = 0;  // in all, since Begin
  std::uint64_t steps = 0;
  std::vector<float> sampled_delta{};  // of the delta: sample_of(n)
  wire::Measured measured{};
};
struct Depart {  // leave the swarm; answered by Left
  std::string reason;
  std::uint32_t next_generation = 0;  // as in wire::Leave
};
// From links.
struct CoordinatorConnected {
  LinkId link;
  bool inquiry = false;                      // as asked for
  std::optional<std::uint32_t> candidate{};  // likewise; none: the one asked for last
};
struct PeerConnected {  // a dial asked for by DialPeer succeeded
  SiteId site;
  LinkId link;
};
struct DialFailed {  // a DialCoordinator (no site) or DialPeer came to nothing
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
struct ExchangeFailed {  // the data plane refused what a peer sent, or lost it
  RoundId round;
  AttemptId attempt;
  SiteId peer;
  std::string reason;
};
struct AnchorInPlace {  // it was kept, or received whole; digest as computed here
  RunId run;
  RoundId round;
  Digest digest;
};
struct AnchorSourceWrong {  // it sent other bytes than were agreed on
  SiteId site;
  std::string reason;
  std::uint64_t here = 0;  // elements that are in place all the same
};
struct Applied {  // the outer step is done and the parameters are written
  RoundId round;
  Digest state;
};
// From the store of records: those up to this one are durable, or could not be written.
struct Persisted {
  std::uint64_t number = 0;
  Status why;
};
// An optimizer's state from another member (optimizer_fetch.h), for a site that joins.
struct FindOptimizerSource {};  // the next member; answered by OptimizerOffered or NoOptimizer
struct TakeOptimizer {};        // what was offered; answered by OptimizerComplete or OptimizerLost
struct EndOptimizer {};         // it is in use, or nobody wants it any more
struct OptimizerPart {          // some bytes of it came
  LinkId link;
  std::uint64_t snapshot = 0;
  ElementRange range;
  bool damaged = false;
};
struct OptimizerUnfit {  // all bytes came, and they are not those that were offered
  std::string reason;
};
using SiteEvent =
    std::variant<Begin, Trigger, Depart, CoordinatorConnected, PeerConnected, DialFailed, Received, Closed,
                 ExchangeComplete, ContributionUnfit, ExchangeFailed, AnchorInPlace, AnchorSourceWrong, Applied,
                 Persisted, FindOptimizerSource, TakeOptimizer, EndOptimizer, OptimizerPart, OptimizerUnfit, Tick>;

struct DialCoordinator {
  std::uint32_t candidate = 0;  // index into the configured addresses
  bool inquiry = false;         // on a link of its own, beside the one in use
};
// Make this durable, then answer with Persisted. What depends on it is held back until then.
struct Persist {
  std::uint64_t number = 0;  // counted from 1; a later one replaces those that were not begun
  wire::Record record;
};
struct DialPeer {
  SiteId site;
  std::string address;
};
// Cancels an exchange in flight. links[i] reaches start.participants[i]; LinkId{0} for self and for a participant with
// which nothing is exchanged (neither side owns a slice).
struct StartExchange {
  wire::StartAttempt start;
  SiteId self;
  std::vector<LinkId> links;  // per participant; 0 where there is none

  [[nodiscard]] std::vector<SiteId> peers() const {  // linked with us
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
// What of the parameters is in the new anchor already: they become new anchor + (parameters - base).
enum class Base : std::uint8_t {
  kParameters,  // all of it, they were contributed as they are: parameters := new anchor
  kOldAnchor,   // nothing was contributed
  kSnapshot,    // what was contributed lies in the snapshot
  kUnfit,       // they are not finite: parameters := new anchor, and their optimizer needs a look
};
// A membership as of an anchor, and a term that everybody who knows it has promised: its leader's.
struct KnownMembership {
  TermId promised;
  std::vector<wire::Voter> voters{};
};
struct ApplyCommit {  // take the outer step for this attempt, write the parameters, answer with Applied
  wire::Commit commit;
  Base base = Base::kParameters;
  KnownMembership membership{};  // as of the anchor it makes, which does not travel without
};
// Another anchor than the one before was received and is in place: move the parameters onto it. No answer.
struct Rebase {
  Base base = Base::kOldAnchor;
};
struct TakeSnapshot {};  // of the parameters; it serves the next Rebase or ApplyCommit
// Hold the anchor of (run, round) now: from our own parameters or the store, no transfer needed.
// Answer with AnchorInPlace.
struct KeepAnchor {
  RunId run;
  RoundId round;
  Digest digest;  // the anchor that is held may get another name
  KnownMembership membership{};
};
// Fetch anchor and outer state from the sources that are added (an AnchorFetch says which part from which source).
// AnchorInPlace follows. Parts of the same anchor that arrived before are not fetched again.
struct ReceiveAnchor {
  RunId run;
  RoundId round;
  Digest digest;  // expected; with another one the old anchor stays
  KnownMembership membership{};
};
struct AddAnchorSource {
  SiteId site;
  std::string name;
  LinkId over;
};
struct DropAnchorSource {  // its link is gone, or it holds another anchor by now
  SiteId site;
};
struct StopReceiving {};  // the anchor on its way is not wanted any more
struct SendAnchor {       // the part that is asked for
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
  std::uint32_t attempts = 0;  // that this site had a part in
  std::vector<std::string> members;
  std::vector<std::string> contributors;
  std::uint64_t samples = 0;  // of all this process has trained, in the anchor's fragment of this round by now
  std::uint32_t period = 0;   // as the leader has told it; 0: none
};
// The trigger is answered without a round: train on, what was trained counts later.
struct RoundSkipped {
  RoundId round;
  std::string reason;
};
struct OptimizerOffered {
  std::string from;
  wire::OptimizerState state;
};
struct NoOptimizer {  // of any member
  Status why;
};
struct TakeOptimizerPart {  // what has just arrived was asked for: put it in its place
  ElementRange range;
};
struct OptimizerComplete {};  // every byte is here: are they the right ones?
struct OptimizerLost {        // others may have one yet
  std::string reason;
};
struct ServeOptimizer {  // another site asks for ours
  LinkId to;
  std::string name;
  wire::FetchOptimizer asked;
};
struct Left {};
// The machine cannot go on; every waiter is told.
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
struct ChunkSent {  // a contribution or a mean is there; the window opens
  SiteId to;
  wire::ChunkKind kind;
};
using ExchangeEvent = std::variant<ExchangeStart, ContributionArrived, MeanArrived, ChunkSent>;

struct Following {  // elements that a site is still to be sent after a chunk
  std::uint64_t contributions = 0;
  std::uint64_t means = 0;
};
struct SendContribution {  // encode our delta of this chunk and send it to its owner
  SiteId owner;
  ElementRange range;
  Following more{};
};
struct ReduceChunk {  // every contribution of this chunk of ours is here: reduce, encode, decode
  ElementRange range;
};
struct SendMean {  // what became of a reduced chunk
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
