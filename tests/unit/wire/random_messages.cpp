#include "tests/unit/wire/random_messages.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>

#include "core/wire/limits.h"

namespace collab::wire {
namespace {

std::string draw_text(Prng& prng, std::size_t max_bytes) {
  // One to four bytes a character.
  constexpr std::array<std::string_view, 8> kPieces{"a", "Z", " ", "\n", "\xC3\xBC", "\xE2\x82\xAC", "\xF0\x9F\x8C\x8D",
                                                    "7"};
  std::string text;
  const std::size_t length = prng.chance(0.05) ? max_bytes : prng.below(std::min<std::size_t>(max_bytes, 40) + 1);
  while (text.size() + 4 <= length) text += kPieces.at(prng.below(kPieces.size()));
  return text;
}

std::string draw_name(Prng& prng, std::size_t max_bytes) {
  std::string name = draw_text(prng, max_bytes);
  std::replace(name.begin(), name.end(), '\n', '-');
  return name;
}

// Small numbers, large ones, and those at the edges of a type.
template <typename U>
U draw_number(Prng& prng, std::uint64_t max = std::numeric_limits<U>::max()) {
  switch (prng.below(4)) {
    case 0: return static_cast<U>(prng.below(std::min<std::uint64_t>(max, 9) + 1));
    case 1: return static_cast<U>(max);
    default:
      return static_cast<U>(max == std::numeric_limits<std::uint64_t>::max() ? prng.next() : prng.below(max + 1));
  }
}

template <typename Id>
Id draw_id(Prng& prng) {
  return Id(draw_number<decltype(Id::value)>(prng));
}

TermId draw_term(Prng& prng) { return TermId(draw_number<std::uint64_t>(prng, kMaxTerm)); }
RoundId draw_round(Prng& prng) { return RoundId(draw_number<std::uint64_t>(prng, kMaxRound)); }
std::uint32_t draw_generation(Prng& prng) { return draw_number<std::uint32_t>(prng, kMaxGeneration); }
double draw_weight(Prng& prng) { return prng.chance(0.2) ? 0.0 : prng.uniform() * 1e9; }
Digest draw_digest(Prng& prng) { return {prng.next(), prng.next()}; }

// Ascending, each once.
std::vector<SiteId> draw_sites(Prng& prng, std::size_t min_count) {
  std::vector<SiteId> sites(min_count + prng.below(8));
  std::uint32_t last = 0;
  for (SiteId& site : sites) site = SiteId(last += 1 + static_cast<std::uint32_t>(prng.below(1000)));
  return sites;
}

ModelEntry draw_entry(Prng& prng) {
  ModelEntry entry{draw_text(prng, kMaxNameBytes),
                   draw_text(prng, 20),
                   {},
                   static_cast<TensorKind>(prng.below(3)),
                   draw_digest(prng)};
  entry.shape.resize(prng.below(kMaxDims + 1));
  for (auto& dim : entry.shape) dim = draw_number<std::uint64_t>(prng, kMaxElements);
  return entry;
}

std::vector<Voter> draw_voters(Prng& prng) {
  std::vector<Voter> voters;
  for (const SiteId site : draw_sites(prng, 0)) {
    voters.push_back({site, draw_name(prng, kMaxNameBytes), draw_id<AcceptorId>(prng), prng.chance(0.2)});
  }
  return voters;
}

void draw(Prng& prng, StartAttempt& m) {
  m = {draw_term(prng),
       draw_generation(prng),
       draw_digest(prng),
       draw_id<RunId>(prng),
       draw_round(prng),
       draw_id<AttemptId>(prng),
       {},
       {},
       draw_voters(prng)};
  const auto sites = draw_sites(prng, 1);
  for (const SiteId site : sites) {
    m.participants.push_back({site, draw_name(prng, kMaxNameBytes), draw_weight(prng), draw_id<AttemptId>(prng)});
  }
  if (prng.chance(0.2)) {  // nobody has a weight
    for (Participant& participant : m.participants) participant.weight = 0;
    return;
  }
  m.participants[prng.below(sites.size())].weight = 1 + prng.uniform();
  std::uint64_t begin = 0;
  for (std::size_t i = 1 + prng.below(10); i > 0; --i) {
    const std::uint64_t end = begin + 1 + prng.below(std::uint64_t{1} << 30);
    m.slices.push_back({sites[prng.below(sites.size())], {begin, end}});
    begin = end;
  }
  for (Participant& participant : m.participants) {
    const bool owns =
        std::any_of(m.slices.begin(), m.slices.end(), [&](const Slice& s) { return s.owner == participant.site; });
    participant.here = owns || prng.chance(0.8);
  }
}
void draw(Prng& prng, Commit& m) {
  m.term = draw_term(prng);
  m.run = draw_id<RunId>(prng);
  m.round = draw_round(prng);
  m.attempt = AttemptId(1 + static_cast<std::uint32_t>(prng.below(100)));
  m.contributors = draw_sites(prng, 0);
  m.period = draw_number<std::uint32_t>(prng, kMaxPeriod);
}
Proposal draw_proposal(Prng& prng) {
  Proposal proposal;
  draw(prng, proposal.start);
  proposal.accepted = prng.chance(0.5);
  if (proposal.accepted) proposal.slices.resize(proposal.start.slices.size(), draw_digest(prng));
  if (prng.chance(0.3)) proposal.settled = draw_term(prng);
  return proposal;
}
Report draw_report(Prng& prng) { return {random_record(prng), prng.chance(0.5), prng.chance(0.5), prng.chance(0.5)}; }

void draw(Prng& prng, Join& m) {
  m.swarm = draw_name(prng, kMaxNameBytes);
  m.site = draw_name(prng, kMaxNameBytes);
  m.index = draw_number<std::uint32_t>(prng);
  m.expected_sites = draw_number<std::uint32_t>(prng, kMaxSites);
  m.address = draw_name(prng, kMaxAddressBytes);
  m.helper = prng.chance(0.2);
  m.generation = 1 + draw_number<std::uint32_t>(prng, 1'000'000);
  m.elements = draw_number<std::uint64_t>(prng, kMaxElements);
  m.fingerprint = draw_digest(prng);
  m.offer = {draw_id<RunId>(prng), draw_round(prng), draw_digest(prng)};
  m.report = draw_report(prng);
  m.report.record.acceptor = AcceptorId(1 + prng.below(1'000'000));
  for (std::size_t i = prng.below(6); i > 0; --i) m.settings.push_back({draw_text(prng, 30), draw_text(prng, 30)});
  for (std::size_t i = prng.below(6); i > 0; --i) m.model.push_back(draw_entry(prng));
  m.resumed = prng.chance(0.5);
  m.init_from = draw_name(prng, kMaxNameBytes);
  m.process = prng.next();
  m.world = prng.next();
}
void draw(Prng& prng, AnchorInstalled& m) {
  m = {draw_id<RunId>(prng), draw_round(prng), draw_digest(prng), draw_id<AcceptorId>(prng)};
}
void draw(Prng& prng, Ready& m) {
  m = {draw_round(prng),  draw_weight(prng),       draw_number<std::uint64_t>(prng), draw_number<std::uint64_t>(prng),
       draw_digest(prng), draw_id<AttemptId>(prng)};
  for (std::uint64_t i = prng.below(5); i > 0; --i) m.sampled_delta.push_back(draw_number<std::uint32_t>(prng));
  Measured& measured = m.measured;
  for (std::uint32_t* rate : {&measured.up_kbit, &measured.down_kbit})
    *rate = static_cast<std::uint32_t>(prng.below(kMaxRateKbit + 1));
  for (std::uint64_t* time : {&measured.step_us, &measured.round_us}) *time = prng.below(kMaxMeasuredUs + 1);
  for (std::uint32_t* share : {&measured.waited_ppm, &measured.overlapped_ppm, &measured.merged_ppm})
    *share = static_cast<std::uint32_t>(prng.below(kMillion + 1));
  measured.loss = draw_number<std::uint32_t>(prng);
  m.period = static_cast<std::uint32_t>(prng.below(kMaxPeriod + 1));
}
void draw(Prng& prng, Decline& m) {
  m = {draw_round(prng), draw_id<AttemptId>(prng), draw_text(prng, kMaxReasonBytes)};
}
void draw(Prng& prng, PeerUnreachable& m) {
  m = {draw_round(prng), draw_id<AttemptId>(prng), draw_id<SiteId>(prng), draw_text(prng, kMaxReasonBytes)};
}
void draw(Prng& prng, Done& m) {
  m = {draw_term(prng), draw_round(prng), draw_id<AttemptId>(prng), {}};
  m.slices.resize(1 + prng.below(20));
  for (Digest& digest : m.slices) digest = draw_digest(prng);
}
void draw(Prng& prng, Leave& m) { m = {draw_text(prng, kMaxReasonBytes), draw_generation(prng)}; }
void draw(Prng& prng, Welcome& m) {
  m = {draw_term(prng), draw_id<SiteId>(prng), draw_number<std::uint32_t>(prng, kMaxIntervalMs),
       draw_number<std::uint32_t>(prng, kMaxIntervalMs), prng.chance(0.5)};
}
void draw(Prng& prng, Refuse& m) { m = {draw_text(prng, kMaxReasonBytes), prng.chance(0.5)}; }
void draw(Prng& prng, Hold& m) { m.reason = draw_text(prng, kMaxReasonBytes); }
void draw(Prng& prng, Roster& m) {
  m.term = draw_term(prng);
  for (const SiteId site : draw_sites(prng, 0)) {
    m.members.push_back({site, draw_name(prng, kMaxNameBytes), draw_name(prng, kMaxAddressBytes),
                         static_cast<MemberState>(prng.below(3))});
  }
}
void draw(Prng& prng, InstallAnchor& m) {
  m = {draw_term(prng),
       draw_id<RunId>(prng),
       draw_round(prng),
       draw_sites(prng, 1),
       draw_digest(prng),
       static_cast<Counted>(prng.below(3)),
       draw_voters(prng),
       1 + static_cast<std::uint32_t>(prng.below(9)),
       static_cast<std::uint32_t>(prng.below(kMaxPeriod + 1))};
  if (m.counted == Counted::kYes) m.attempt = AttemptId{1 + static_cast<std::uint32_t>(prng.below(9))};
}
void draw(Prng& prng, RoundSkipped& m) { m = {draw_term(prng), draw_round(prng), draw_text(prng, kMaxReasonBytes)}; }
void draw(Prng& prng, Prepare& m) { m.term = draw_term(prng); }
void draw(Prng& prng, Accept& m) {
  m.term = draw_term(prng);
  if (prng.chance(0.5)) return;
  Proposal proposal;
  draw(prng, proposal.start);
  proposal.accepted = true;
  proposal.slices.resize(proposal.start.slices.size(), draw_digest(prng));
  proposal.settled = m.term;
  m.proposals.push_back(std::move(proposal));
}
void draw(Prng& prng, Accepted& m) { m.term = draw_term(prng); }
void draw(Prng& prng, Notice& m) { m = {draw_name(prng, kMaxNameBytes), draw_text(prng, kMaxReasonBytes)}; }
void draw(Prng& prng, MemberLeft& m) {
  m = {draw_term(prng), draw_name(prng, kMaxNameBytes), draw_id<AcceptorId>(prng)};
}
void draw(Prng& prng, Promise& m) {
  m = {draw_term(prng), {draw_id<RunId>(prng), draw_round(prng), draw_digest(prng)}, draw_report(prng)};
}
void draw(Prng&, LeaveAck&) {}
void draw(Prng& prng, Hello& m) {
  m = {draw_name(prng, kMaxNameBytes), draw_term(prng), draw_id<SiteId>(prng), draw_name(prng, kMaxNameBytes),
       draw_digest(prng)};
}
void draw(Prng& prng, Keys& m) {
  for (const SiteId site : draw_sites(prng, 0)) m.keys.push_back({site, draw_digest(prng)});
}
void draw(Prng& prng, FetchAnchor& m) {
  const std::uint64_t begin = prng.below(kMaxElements - kMaxFetchElements);
  m = {draw_id<RunId>(prng),
       draw_round(prng),
       static_cast<ChunkKind>(2 + prng.below(4)),
       {begin, begin + 1 + prng.below(kMaxFetchElements)}};
}
void draw(Prng& prng, AnchorMoved& m) { m = {draw_id<RunId>(prng), draw_round(prng)}; }
void draw(Prng& prng, FetchOptimizer& m) {
  m.snapshot = prng.chance(0.5) ? 0 : 1 + prng.below(1'000'000);
  if (m.snapshot == 0 || prng.chance(0.2)) return;
  const std::uint64_t begin = prng.below(kMaxElements - kMaxPayloadBytes);
  m.range = {begin, begin + 1 + prng.below(kMaxPayloadBytes)};
}
void draw(Prng& prng, OptimizerState& m) {
  if (prng.chance(0.5)) {
    m = {1 + prng.below(1'000'000), 1 + prng.below(kMaxElements), draw_digest(prng), draw_text(prng, 100'000), ""};
  } else {
    m.reason = draw_text(prng, kMaxReasonBytes);
  }
}
void draw(Prng& prng, Chunk& m) {
  const std::uint64_t begin = prng.below(kMaxElements - kMaxChunkElements);
  const std::uint64_t size = 1 + prng.below(kMaxChunkElements);
  m = {static_cast<ChunkKind>(prng.below(7)),
       draw_id<RunId>(prng),
       draw_round(prng),
       draw_id<AttemptId>(prng),
       draw_id<SiteId>(prng),
       {begin, begin + size},
       static_cast<CodecId>(prng.below(9)),
       prng.next()};
}
void draw(Prng& prng, Heartbeat& m) {
  m = {draw_number<std::uint64_t>(prng), prng.chance(0.5), prng.next(), {prng.next(), prng.chance(0.5), {}}};
  for (std::uint64_t i = prng.below(4); i > 0; --i)
    m.exchanged.lacks.push_back(SiteId{static_cast<std::uint32_t>(prng.below(9))});
}
void draw(Prng& prng, Inquire& m) { m.swarm = draw_name(prng, kMaxNameBytes); }
void draw(Prng& prng, Leads& m) {
  m = {prng.chance(0.5), draw_generation(prng), draw_id<RunId>(prng), draw_round(prng),
       draw_number<std::uint32_t>(prng)};
}
void draw(Prng& prng, Forget& m) {
  m.sites.resize(prng.below(5));
  for (std::string& site : m.sites) site = draw_name(prng, kMaxNameBytes);
}
void draw(Prng&, StatusQuery&) {}
void draw(Prng& prng, StatusReport& m) {
  m.json = draw_text(prng, 100'000);
  m.elements = prng.below(kMaxElements + 1);
  for (std::size_t i = prng.below(6); i > 0; --i) m.settings.push_back({draw_text(prng, 30), draw_text(prng, 30)});
  for (std::size_t i = prng.below(4); i > 0; --i) {
    m.tensors.push_back({draw_text(prng, kMaxNameBytes), prng.below(kMaxElements + 1)});
  }
}

// ---- the collective hub

std::vector<RankId> draw_ranks(Prng& prng, std::size_t min_count) {
  std::vector<RankId> ranks;
  for (const SiteId site : draw_sites(prng, min_count)) ranks.emplace_back(site.value);
  return ranks;
}
Ballot draw_ballot(Prng& prng) { return {prng.next(), prng.next()}; }
Epoch draw_epoch(Prng& prng) { return {prng.next(), draw_ranks(prng, 0)}; }
void draw(Prng& prng, Enter& m) {
  m = {draw_name(prng, kMaxNameBytes),
       prng.next(),
       {},
       {},
       {},
       1 + static_cast<std::uint32_t>(prng.below(9)),
       prng.chance(0.5),
       AcceptorId(1 + prng.below(1000)),
       draw_ballot(prng),
       draw_epoch(prng),
       draw_ballot(prng),
       draw_epoch(prng)};
  for (std::size_t i = prng.below(4); i > 0; --i) m.completed.push_back({draw_id<GroupId>(prng), prng.next()});
  for (std::size_t i = prng.below(4); i > 0; --i) {
    m.held.push_back({draw_id<GroupId>(prng), prng.next(), draw_ballot(prng)});
  }
  for (std::size_t i = prng.below(4); i > 0; --i) m.closed.push_back(draw_id<GroupId>(prng));
  m.sites.resize(1 + prng.below(5));
  for (std::string& site : m.sites) site = draw_name(prng, kMaxNameBytes);
  m.site_of.resize(1 + prng.below(20));
  for (std::uint32_t& index : m.site_of) index = static_cast<std::uint32_t>(prng.below(m.sites.size()));
  m.rank = RankId(static_cast<std::uint32_t>(prng.below(m.site_of.size())));
}
void draw(Prng& prng, Assemble& m) {
  m = {draw_id<GroupId>(prng), draw_ranks(prng, 2), {}, draw_number<std::uint32_t>(prng)};
  if (m.members.size() == 2) m.parent = draw_id<GroupId>(prng);
}
void draw(Prng& prng, Disband& m) { m.group = draw_id<GroupId>(prng); }
void draw(Prng& prng, Contribute& m) {
  m = {draw_id<GroupId>(prng),
       1 + prng.below(1000),
       prng.next(),
       draw_name(prng, kMaxNameBytes),
       draw_name(prng, kMaxNameBytes),
       static_cast<Absence>(prng.below(3)),
       draw_number<std::uint32_t>(prng, kMaxRanks - 1),
       prng.chance(0.5),
       prng.chance(0.5),
       draw_number<std::uint32_t>(prng, kMaxIntervalMs),
       {}};
  m.splits.resize(prng.below(5));
  for (std::uint64_t& bytes : m.splits) bytes = draw_number<std::uint64_t>(prng, kMaxPayloadBytes / 4);
}
void draw(Prng& prng, ResultAck& m) { m = {draw_id<GroupId>(prng), prng.next(), draw_ballot(prng)}; }
void draw(Prng& prng, ResolveSender& m) { m = {draw_id<GroupId>(prng), draw_number<std::uint32_t>(prng)}; }
void draw(Prng& prng, Entered& m) {
  m = {draw_number<std::uint32_t>(prng, kMaxIntervalMs), draw_number<std::uint32_t>(prng, kMaxIntervalMs),
       draw_ballot(prng), draw_epoch(prng)};
}
void draw(Prng& prng, PrepareWorld& m) { m.ballot = draw_ballot(prng); }
void draw(Prng& prng, AcceptEpoch& m) { m = {draw_ballot(prng), draw_epoch(prng)}; }
void draw(Prng& prng, AcceptedEpoch& m) { m = {draw_ballot(prng), prng.next()}; }
void draw(Prng& prng, ChosenEpoch& m) { m.epoch = draw_epoch(prng); }
void draw(Prng& prng, Stands& m) { m = {draw_id<GroupId>(prng), prng.next()}; }
void draw(Prng& prng, SenderResolved& m) {
  m = {draw_id<GroupId>(prng), draw_number<std::uint32_t>(prng), draw_number<std::uint32_t>(prng, kMaxRanks - 1)};
}
void draw(Prng& prng, Part& m) {
  m = {draw_id<GroupId>(prng), prng.next(), draw_number<std::uint32_t>(prng, kMaxRanks - 1)};
}
void draw(Prng& prng, StepResult& m) {
  m = {draw_id<GroupId>(prng), prng.next(), draw_ballot(prng), prng.chance(0.5), {}, draw_text(prng, kMaxReasonBytes)};
  for (const RankId rank : draw_ranks(prng, 0)) m.absent.push_back(rank.value);
}

template <std::size_t... kIndex>
Message make(std::size_t index, Prng& prng, std::index_sequence<kIndex...>) {
  Message message;
  const auto make_one = [&]<std::size_t kOne>(std::integral_constant<std::size_t, kOne>) {
    draw(prng, message.emplace<kOne>());
    return true;
  };
  static_cast<void>(((index == kIndex && make_one(std::integral_constant<std::size_t, kIndex>())) || ...));
  return message;
}

}  // namespace

Record random_record(Prng& prng) {
  Record record{draw_id<AcceptorId>(prng),
                draw_term(prng),
                draw_generation(prng),
                draw_digest(prng),
                {draw_id<RunId>(prng), draw_round(prng), draw_digest(prng)},
                draw_voters(prng),
                {},
                {}};
  for (std::size_t i = prng.below(kMaxProposals + 1); i > 0; --i) record.proposals.push_back(draw_proposal(prng));
  record.recent.resize(prng.below(kMaxRecent + 1));
  for (Past& past : record.recent) {
    past = {draw_id<RunId>(prng),
            draw_round(prng),
            AttemptId(1 + static_cast<std::uint32_t>(prng.below(100))),
            {},
            draw_digest(prng)};
    past.contributors.resize(prng.below(4));
    for (std::string& name : past.contributors) name = draw_name(prng, kMaxNameBytes);
  }
  return record;
}

Message random_message(std::size_t type, Prng& prng) {
  return make(type - 1, prng, std::make_index_sequence<std::variant_size_v<Message>>());
}

}  // namespace collab::wire
