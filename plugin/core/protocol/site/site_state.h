// What a site knows, shared by its sub-protocols: site.cpp (dispatch), site_acceptor.cpp, site_inquiry.cpp,
// site_join.cpp, site_optimizer.cpp, site_peers.cpp, site_reachability.cpp, site_round.cpp. Nobody else includes this.
//
// Threads: one caller at a time. Ownership: plain values.
//
//   membership (site_join.cpp)                        round (site_round.cpp)
//
//      idle --Begin--> dialing <--------------+             training <--------------------------- applying
//                       |  ^ no answer:       |  RoundSkipped, ^  |                                  ^
//             connected |  | the next address | link no answer |  | Trigger                          | Commit
//                       v  |                  | lost           |  v                                  |
//     (Prepare,  ---- asking --Refuse--> failed|            ready --StartAttempt--> linking          |
//      Accept) --------> | Welcome            |              ^   \                     | all links  |
//                        v                    |              |    \                    v            |
//                     waiting ----------------+              +-----<-- exchanging --complete--> done-+
//                        | InstallAnchor      |         declined, unreachable,                    |
//                        v                    |         coordinator lost, next StartAttempt       | coordinator lost:
//                        |                    |                                                   v training, and the
//                        |                    |                                                     mean is kept
//                    installing <--repair--+  |                                            training, the mean kept
//                        | in place        |  |
//                        v                 |  |
//                     active --------------+--+
//
//   Depart leads from every state through leaving to left. Ready is sent when the round is `ready` (or `done`) and the
//   membership is `active`, whichever comes last; links to other sites (site_peers.cpp) outlive both.
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/formatting.h"
#include "core/protocol/site/site.h"

namespace collab::protocol {

inline constexpr Duration kFirstBackoff = std::chrono::milliseconds(200);
inline constexpr Duration kLastBackoff = std::chrono::seconds(5);
inline constexpr Duration kDialLimit = std::chrono::seconds(15);  // a dial the runtime has not answered
// With one candidate, for a dial and for an answer to Join: a quarter of the grace, within these.
inline constexpr Duration kLeastPatience = std::chrono::seconds(3);
inline constexpr Duration kMostPatience = std::chrono::seconds(15);
// At the first candidate that can be reached all wait longer: at any time most of them are there together.
// Whom the other side cannot reach may reach it: so long one of two dials, then both.
inline constexpr Duration kOneDials = std::chrono::seconds(3);
inline constexpr Duration kLinkLimit = std::chrono::seconds(20);   // links to all members of an attempt
inline constexpr Duration kHelloLimit = std::chrono::seconds(20);  // a Hello from a site the roster does not list yet
inline constexpr Duration kLeaveAckLimit = std::chrono::seconds(5);
inline constexpr Duration kDepartLimit = std::chrono::seconds(2);  // for finding a coordinator to say it to
inline constexpr std::size_t kMaxUnknownPeers = 64;
inline constexpr int kTransferTries = 2;
inline constexpr std::size_t kMaxFetches = 256;  // of one site, that wait for our anchor
// The coordinator bounds a round; should it fail to, the site does after this many of the round's limits.
inline constexpr int kRoundLimits = 4;
inline constexpr std::size_t kRecentRounds = 4;  // commits that are reported to a leader

enum class SitePhase : std::uint8_t {
  kIdle,        // Begin has not come
  kDialing,     // a dial is under way, or waits for its back-off
  kAsking,      // Join is sent (or waits for a commit being applied); Welcome or Refuse comes
  kWaiting,     // welcomed; InstallAnchor comes once enough sites are there, or once our own trigger has
  kInstalling,  // the swarm's anchor is being put in place
  kActive,      // a member
  kLeaving,     // Leave is sent
  kLeft,
  kFailed,
};

enum class RoundPhase : std::uint8_t {
  kTraining,    // no round is due
  kReady,       // parameters stand still; Ready is sent when active
  kLinking,     // a StartAttempt is here; links to its members are being made
  kExchanging,  // chunks flow
  kDone,        // the mean is here, Done is sent
  kApplying,    // committed; the outer step is being taken
};

struct CoordinatorLink {
  std::optional<LinkId> link;
  std::uint32_t candidate = 0;
  bool dial_out = false;         // DialCoordinator was asked, no answer yet
  TimePoint dial_at = kNever;    // the back-off's end
  TimePoint answer_by = kNever;  // an answer to a dial, to Join; the InstallAnchor after Welcome
  bool join_sent = false;
  Duration backoff = kFirstBackoff;
  TimePoint give_up = kNever;  // join_timeout after Begin or after the loss
  std::string last_reason = "no answer";
  std::string told;  // for whom the candidates wait, by one of them
  // What the candidate here says of itself, with each heartbeat, to who waits there.
  std::optional<wire::Leads> here;
  TimePoint stays_until{};  // it is being elected: who leaves now delays that
  struct Inquiry {          // of other candidates: does one of them lead a swarm that has agreed on more?
    std::optional<std::uint32_t> of{};
    std::optional<LinkId> link{};
    std::uint32_t last = 0;  // asked
    TimePoint next{};
  } inquiry{};
  TimePoint last_heard{};
  TimePoint next_heartbeat = kNever;
  std::uint64_t sequence = 0;
  Duration heartbeat = std::chrono::seconds(1);
  Duration grace = std::chrono::seconds(60);
};

// The anchor this site holds.
struct Holding {
  RunId run;
  RoundId round;
  Digest digest;
};

struct Installation {
  wire::InstallAnchor install;
  bool keeps = false;                    // nothing to fetch
  std::map<SiteId, LinkId> over;         // sources that are being fetched from
  std::set<SiteId> useless;              // sources that sent other bytes, or hold another anchor by now
  bool overtaken = false;                // one of them does
  int tries = 0;                         // all sources were useless, or what they sent was, and nothing more had come
  std::uint64_t here = 0;                // elements in place, as last heard
  std::uint64_t here_then = 0;           // the same at the last try
  TimePoint unreachable_since = kNever;  // linked with none of the sources, nor with one that may yet become one
  TimePoint give_up = kNever;
};

struct RoundState {
  RoundPhase phase = RoundPhase::kTraining;
  Trigger trigger;
  TimePoint since = kNever;  // of the trigger
  bool ready_sent = false;
  AttemptId exchanged_since{};  // our first attempt at this round, with these parameters and this anchor; 0: none
  std::optional<wire::StartAttempt> start;  // the newest; older ones are ignored
  std::uint32_t attempts = 0;               // formed with us
  TimePoint link_by = kNever;               // kLinking
  TimePoint both_dial = kNever;             // kLinking: from then on
  bool declined = false;                    // our delta is unfit: take the anchor outright
  RoundDone outcome;                        // kApplying: told once it is applied
};

// A contribution that may have been committed, for all we know: its exchange began.
struct Pending {
  Trigger total;          // as it was contributed
  bool snapshot = false;  // we have trained on since; what was contributed was set aside
};

// The life of a link between sites; the drawing is in site_peers.cpp.
enum class PeerState : std::uint8_t {
  kGreeting,  // dialled by us: our Hello is out
  kUnlisted,  // dialled by them: its Hello came, the roster does not list it yet
  kAnswered,  // dialled by them: our Hello is out, its next message shows that it has arrived
  kUsable,    // both know each other: anything may be sent
};

struct PeerLink {
  PeerState state = PeerState::kUnlisted;
  SiteId site;
  std::string name;
  std::string address;  // as the roster had it: of another process it is another one
  Digest key{};         // that it has shown; dialled by us: that we have
  bool dialed = false;  // by us
  TimePoint since{};
};

// Dials to a site that have not succeeded.
struct PeerDial {
  bool dial_out = false;
  TimePoint at = kNever;  // the next try; or the limit of the one that is out
  Duration backoff = kFirstBackoff;
  std::string last_reason = "no answer";
};

// Where a copy of an optimizer's state is to come from; the drawing is in site_optimizer.cpp.
enum class FetchPhase : std::uint8_t {
  kNone,     // nothing is sought, or the caller has to say what is next
  kLinking,  // with a member that is to be asked
  kAsking,   // it makes its copy
  kOffered,  // the caller has the description
  kTaking,   // the bytes come
};

struct OptimizerFetch {
  FetchPhase phase = FetchPhase::kNone;
  bool begun = false;
  std::vector<SiteId> members{};  // that were not tried yet, the next one last
  SiteId from;
  LinkId link;
  TimePoint until = kNever;    // of this phase; while bytes come, of the next ones
  TimePoint give_up = kNever;  // of it all
  int silent = 0;              // members that did not answer
  wire::OptimizerState offer{};
  std::uint64_t asked = 0;           // bytes from the first
  std::set<std::uint64_t> awaited;   // first byte of each part on its way
  std::vector<std::string> words{};  // what each member said, or why it was left
};

// Records on their way to be durable, and what may be said once they are.
struct Writes {
  struct Held {
    std::uint64_t number = 0;
    LinkId link;
    wire::Message message;
  };
  std::uint64_t asked = 0;
  std::uint64_t written = 0;
  TimePoint since = kNever;  // the oldest that is on its way
  std::vector<Held> held;
};

struct Site::State {
  explicit State(SiteConfig c) : config(std::move(c)) {}

  SiteConfig config;
  wire::Join join;  // as given by Begin; its offer is kept current
  SitePhase membership = SitePhase::kIdle;
  CoordinatorLink up;
  TermId term;
  std::optional<SiteId> self;
  bool dials_out = false;   // nobody gets through to our address
  bool was_member = false;  // welcomed once
  bool join_done = false;   // JoinDone was told
  std::map<SiteId, wire::Member> roster;
  std::map<SiteId, Digest> keys;  // of those in the roster
  std::optional<Holding> anchor;  // in place here
  std::optional<Installation> installation;
  bool overwritten = false;  // in part, perhaps, what this site held: by another anchor that was on its way here
  RoundState round;
  AcceptorId acceptor{};
  wire::Offer agreed;                       // the newest anchor that was agreed on, as far as this site knows
  std::vector<wire::Voter> voters;          // the membership as of that anchor
  std::set<AcceptorId> member_left;         // left since the newest list of voters was sent
  std::optional<wire::Proposal> attempted;  // the newest attempt at the round after it
  bool holds_mean = false;                  // of that one, which is accepted
  std::optional<wire::Proposal> settled;    // the newest attempt a successor was about to commit
  std::vector<wire::Past> recent;
  Writes writes;
  std::optional<Pending> pending;
  std::optional<wire::Commit> owed;  // committed while we trained on: applied at the next trigger
  std::optional<Base> owed_base;     // of a Rebase, which waits for the next trigger: the parameters move
  Trigger counted;                   // of all that was trained, this much is in the anchor (or was unfit)
  TimePoint lost_at = kNever;        // no coordinator since
  TimePoint no_quorum_since = kNever;
  std::map<LinkId, PeerLink> peers;
  std::map<SiteId, LinkId> link_of;  // the usable link to a site
  std::map<SiteId, PeerDial> peer_dials;
  OptimizerFetch optimizer_fetch;
  std::map<LinkId, std::vector<wire::FetchAnchor>> fetches;  // asked of us before our anchor was in place
  std::optional<wire::Leave> leave_ack;  // this site leaves: to be said to the coordinator, once there is one
  bool was_held = false;                 // at any coordinator
  std::optional<std::string> hold;       // kAsking: the coordinator has said for whom this site waits there
  TimePoint leave_by = kNever;
  // Of the step under way.
  TimePoint now{};
  std::vector<SiteAction> out;

  // site.cpp
  void on_event(const Begin& event);
  void on_event(const Trigger& event);
  void on_event(const Depart& event);
  void on_event(const CoordinatorConnected& event);
  void on_event(const PeerConnected& event);
  void on_event(const DialFailed& event);
  [[nodiscard]] bool is_final(const Status& why) const;
  void on_event(const Received& event);
  void on_event(const Closed& event);
  void on_event(const ExchangeComplete& event);
  void on_event(const ContributionUnfit& event);
  void on_event(const ExchangeFailed& event);
  void on_event(const AnchorInPlace& event);
  void on_event(const AnchorSourceWrong& event);
  void on_event(const Applied& event);
  void on_event(const Persisted& event);
  void on_event(const SeekOptimizer& event);
  void on_event(const TakeOptimizer& event);
  void on_event(const EndOptimizer& event);
  void on_event(const OptimizerPart& event);
  void on_event(const OptimizerUnfit& event);
  void on_event(const Tick& event);
  void from_coordinator(const wire::Message& message);
  void ack_leave();
  void fail(Status why);
  void leave_done();
  void hang_up_everywhere(const std::string& why);
  [[nodiscard]] bool over() const { return membership == SitePhase::kLeft || membership == SitePhase::kFailed; }
  void send_up(wire::Message message) {
    if (up.link) out.emplace_back(Send{*up.link, std::move(message)});
  }
  void note(Note::Level level, std::string event, std::string text) {
    out.emplace_back(make_note(level, std::move(event), std::move(text)));
  }
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] std::string waiting_for(TimePoint at) const;
  [[nodiscard]] std::string name_of(SiteId site) const;

  // site_acceptor.cpp
  [[nodiscard]] wire::Record record() const;
  [[nodiscard]] wire::Report report() const;
  void keep_record();                            // durable before long; nothing waits for it
  void say_when_durable(wire::Message message);  // to the leader
  void on_prepare(const wire::Prepare& prepare);
  void on_accept(const wire::Accept& accept);
  void on_write_tick();
  void agree_on(const wire::Offer& anchor, std::vector<wire::Voter> list);  // as this site now knows
  void forget_promises();
  void take_voters(std::vector<wire::Voter> list);                                     // less those who have left since
  [[nodiscard]] KnownMembership as_known(const std::vector<wire::Voter>& list) const;  // to go with its anchor

  // site_inquiry.cpp
  [[nodiscard]] bool waits() const;
  [[nodiscard]] bool held() const;
  [[nodiscard]] bool inquires() const;
  void inquire();  // at another candidate, once in a while
  void on_leads(const wire::Leads& leads);
  void end_inquiry(const std::string& why);

  // site_join.cpp
  void dial_coordinator();
  void dial_again(const std::string& reason);  // after the back-off, the next candidate
  void send_join();
  void lose_coordinator(const std::string& reason);
  void drop_coordinator(const std::string& reason);  // hang up, then as if it had closed
  void on_refuse(const wire::Refuse& refuse);
  void on_hold(const wire::Hold& told);
  void on_welcome(const wire::Welcome& welcome);
  void on_install_anchor(const wire::InstallAnchor& install);
  [[nodiscard]] bool names_us(const wire::InstallAnchor& install) const {
    return install.sources == std::vector<SiteId>{*self};
  }
  [[nodiscard]] std::string sources_text() const;
  void receive_anchor();
  void pursue_installation();  // link up, fetch
  void give_up_source(SiteId source);
  void settle_sources();                      // go on with those that are left
  void begin_again(const std::string& what);  // the transfer, from all sources
  void on_anchor_moved(SiteId source, const wire::AnchorMoved& moved);
  void drop_installation();
  void installation_done();
  // Onto an anchor that was received (or held under another name) while our parameters had moved on.
  void rebase(const wire::InstallAnchor& install, bool received);
  [[nodiscard]] wire::Offer offer() const;
  void forget_round();
  void on_anchor_in_place(const AnchorInPlace& event);
  void on_join_tick();
  void on_coordinator_silence();
  [[nodiscard]] std::string addresses() const;
  // Who waits is answered once a heartbeat.
  [[nodiscard]] Duration patience() const {
    return std::max(std::clamp(up.grace / 4, kLeastPatience, kMostPatience), 3 * up.heartbeat);
  }

  // site_reachability.cpp
  [[nodiscard]] bool cannot_be_dialled() const { return join.address.empty() || dials_out; }
  [[nodiscard]] bool reaches() const;  // linked with who gives the anchor, or may do so before long
  [[nodiscard]] TimePoint unreachable_until() const;
  void unreachable(const std::string& what);
  void on_unreachable_tick();
  [[nodiscard]] std::string unreachable_text(TimePoint at) const;

  // site_peers.cpp
  void on_roster(const wire::Roster& roster);
  void on_keys(const wire::Keys& told);
  [[nodiscard]] bool is_proved(const PeerLink& peer) const;  // it is who it says it is
  void from_peer(LinkId link, const wire::Message& message);
  void on_hello(LinkId link, const wire::Hello& hello);
  void greet(LinkId link);
  void answer_peer(LinkId link);  // dialled by them, and listed
  void use_peer(LinkId link);
  void hang_up_peer(LinkId link, const std::string& why);
  void forget_peer(LinkId link, const std::string& why);
  [[nodiscard]] bool stands_in_roster(const PeerLink& peer) const;
  [[nodiscard]] bool linked(SiteId site) const { return link_of.count(site) != 0; }
  void dial_peer(SiteId site);  // unless a dial is out or its back-off runs
  void dial_everyone();         // for a site that cannot be dialled
  void on_fetch(LinkId link, const wire::FetchAnchor& fetch);
  void answer_fetches();
  void on_peers_tick();

  // site_optimizer.cpp
  void seek_optimizer();                            // of the next member that is left
  void pursue_optimizer();                          // kLinking: dial, or ask
  void leave_optimizer(const std::string& reason);  // that of the member under way
  void on_optimizer_state(LinkId link, const wire::OptimizerState& state);
  void ask_for_parts();
  void on_optimizer_tick();

  // site_round.cpp
  void send_ready();
  void on_start_attempt(const wire::StartAttempt& start);
  void on_commit(const wire::Commit& commit);
  void apply(const wire::Commit& commit);
  void on_applied(const Applied& event);
  void on_round_skipped(const wire::RoundSkipped& skip_round);
  void skip(const std::string& reason);  // answers the trigger without a round
  void forget_attempt();                 // it was not committed and never will be
  [[nodiscard]] bool at_trigger() const {
    return round.phase != RoundPhase::kTraining && round.phase != RoundPhase::kApplying;
  }
  [[nodiscard]] bool kept_done() const { return attempted && attempted->accepted && holds_mean; }
  [[nodiscard]] bool coordinator_given_up() const { return lost_at != kNever && now >= later(lost_at, up.grace); }
  void pursue_links();  // kLinking: dial whom we dial; start when all are there
  void start_exchange();
  [[nodiscard]] bool contributes() const;                    // to the current form
  [[nodiscard]] bool dials(const wire::Member& peer) const;  // of two, we are the one who dials
  void back_to_ready(const std::string& why);
  void report_unreachable(SiteId peer, const std::string& reason);
  void lose_exchange_link(SiteId peer, const std::string& why);
  void confirm(const wire::Commit& commit);
  [[nodiscard]] bool exchanges_with(SiteId peer) const;  // in the current form
  [[nodiscard]] bool in_attempt(RoundId number, AttemptId attempt) const;
  void on_round_tick();
  [[nodiscard]] TimePoint gives_up_at() const;  // on the round it stands at its trigger for
};

}  // namespace collab::protocol
