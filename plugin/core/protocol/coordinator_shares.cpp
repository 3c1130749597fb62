// Shares: who owns how much of the vector in the attempts of a round.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/base/text.h"
#include "core/protocol/coordinator_state.h"
#include "core/protocol/water_filling.h"

namespace collab::protocol {
namespace {

constexpr double kWorthMoving = 1.1;     // shares move where the exchange gets shorter by more than a tenth
constexpr double kWorthSettling = 1.03;  // equal shares are gone back to where they gain that,
constexpr double kWorthKeeping = 1.05;   // and others would gain no more than that
constexpr double kMostUnseen = 4;        // how much faster a line may be than was seen
constexpr double kSlower = 1.05;         // shares are taken back where the exchange took longer than that
constexpr std::uint64_t kRoundsToStay = 16;
constexpr double kLeastOfEqual = 20;  // who would own less than this part of an equal share owns nothing

// Of an element on its way, with its part of the scales; about.
constexpr std::array<std::pair<std::string_view, double>, 9> kBits{{{"fp32", 32},
                                                                    {"bf16", 16},
                                                                    {"fp16", 16},
                                                                    {"int8", 8.1},
                                                                    {"int4", 4.1},
                                                                    {"int4-e3m0", 4.1},
                                                                    {"int2", 2.25},
                                                                    {"topk64", 0.16},
                                                                    {"topk128", 0.3}}};

// How many times as large as a contribution a mean is: the setting `codec` names one for both, or UP/DOWN.
double mean_ratio(const std::vector<wire::Setting>& settings) {
  const auto codec = std::find_if(settings.begin(), settings.end(), [](const auto& s) { return s.key == "codec"; });
  const std::string_view text = codec == settings.end() ? std::string_view() : codec->value;
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return 1;
  const auto bits = [](std::string_view name) {
    const auto* known = std::find_if(kBits.begin(), kBits.end(), [&](const auto& row) { return row.first == name; });
    return known == kBits.end() ? 0 : known->second;
  };
  const double up = bits(text.substr(0, slash));
  const double down = bits(text.substr(slash + 1));
  return up > 0 && down > 0 ? down / up : 1;
}

std::vector<Share> equal_shares(const std::vector<Line>& lines) {
  std::vector<Share> shares;
  for (const Line& line : lines) shares.push_back({line.site, line.may_own ? 1.0 : 0.0});
  return shares;
}

std::string in_percent(double part) { return json_number(std::round(1000 * part) / 10) + " %"; }

bool measured(const std::vector<Line>& lines) {
  const auto somebody = [&](double Line::*rate) {
    return std::any_of(lines.begin(), lines.end(), [rate](const Line& line) { return line.*rate > 0; });
  };
  return somebody(&Line::up) && somebody(&Line::down);
}

// Who has not been measured counts as the slowest who has: it gets little, but what tells how fast it is. A way in
// shows no more than others send: it is taken to be as fast as the way out, but no more than so many times what was
// seen.
void assume(std::vector<Line>& lines) {
  for (double Line::*rate : {&Line::up, &Line::down}) {
    double slowest = 0;
    for (const Line& line : lines) {
      if (line.*rate > 0) slowest = slowest == 0 ? line.*rate : std::min(slowest, line.*rate);
    }
    for (Line& line : lines) {
      if (line.*rate <= 0) line.*rate = slowest;
    }
  }
  for (Line& line : lines) line.down = std::clamp(line.up, line.down, kMostUnseen * line.down);
}

std::map<SiteId, double> whole_of(const std::vector<Share>& shares) {
  double total = 0;
  for (const Share& share : shares) total += share.share;
  std::map<SiteId, double> of;
  for (const Share& share : shares) of[share.site] = share.share / total;
  return of;
}

void drop_crumbs(std::vector<Share>& shares) {
  const auto owners = std::count_if(shares.begin(), shares.end(), [](const Share& s) { return s.share > 0; });
  const double least = 1 / (kLeastOfEqual * static_cast<double>(owners));
  for (Share& share : shares) share.share = share.share < least ? 0 : share.share;
}

}  // namespace

std::vector<Line> Coordinator::State::lines_of(const std::set<SiteId>& sites) const {
  const std::set<SiteId> able = owners(sites);
  std::vector<Line> lines;
  for (const SiteId id : sites) {
    const MemberRecord& member = members.at(id);
    const bool contributes = member.ready->weight > 0 && round.declined.count(id) == 0;
    lines.push_back({id, static_cast<double>(member.up_kbit), static_cast<double>(member.down_kbit), contributes,
                     able.count(id) != 0});
  }
  return lines;
}

// The last shares, as far as those who had them take part and can own them still; empty: not one.
std::vector<Share> Coordinator::State::kept_shares(const std::vector<Line>& lines) const {
  std::vector<Share> kept;
  double total = 0;
  for (const Line& line : lines) {
    const auto had = shares.of.find(line.site);
    kept.push_back({line.site, had == shares.of.end() || !line.may_own ? 0.0 : had->second});
    total += kept.back().share;
  }
  if (total == 0) kept.clear();
  return kept;
}

// Of the sites that take part in an attempt, ascending. Within a round they stay as they are, but for those of who is
// lost; from round to round they move only where that is worth it.
std::vector<Share> Coordinator::State::shares_for(const std::set<SiteId>& sites) {
  std::vector<Line> lines = lines_of(sites);
  std::vector<Share> chosen = kept_shares(lines);
  if (config.equal_shares || !measured(lines)) {
    chosen = equal_shares(lines);
  } else if (shares.run != anchor->run || shares.round != number() || chosen.empty()) {
    chosen = choose_shares(std::move(lines), std::move(chosen));
  }
  shares.run = anchor->run;
  shares.round = number();
  shares.of = whole_of(chosen);
  return chosen;
}

std::vector<Share> Coordinator::State::choose_shares(std::vector<Line> lines, std::vector<Share> kept) {
  assume(lines);
  const auto owning = std::count_if(kept.begin(), kept.end(), [](const Share& s) { return s.share > 0; });
  const auto owned = std::count_if(shares.of.begin(), shares.of.end(), [](const auto& s) { return s.second > 0; });
  const bool all_kept = owning > 0 && owning == owned;
  std::vector<Share> before = all_kept ? std::move(kept) : equal_shares(lines);
  shares.before.clear();
  if (all_kept && shares.run == anchor->run && number() <= shares.stay_until) return before;
  const double ratio = mean_ratio(reference->settings);
  std::vector<Share> filled = fill_lines(lines, ratio);
  drop_crumbs(filled);
  const double before_takes = exchange_time(lines, before, ratio);
  const double filled_takes = exchange_time(lines, filled, ratio);
  std::vector<Share> equal = equal_shares(lines);
  const double equal_takes = exchange_time(lines, equal, ratio);
  // Beyond rounding, and for more than what rates vary by.
  const bool equal_will_do = equal_takes * kWorthSettling < before_takes && equal_takes <= kWorthKeeping * filled_takes;
  if (!equal_will_do && filled_takes * kWorthMoving >= before_takes) return before;
  std::vector<Share> chosen = equal_will_do ? std::move(equal) : std::move(filled);
  tell_of_shares(chosen, (equal_will_do ? equal_takes : filled_takes) / before_takes);
  if (shares.took > Duration{0} && all_kept) shares.before = whole_of(before);
  return chosen;
}

// Rates are what was seen, and what was assumed of them may be wrong: shares with which an exchange among the same
// sites took longer than before are taken back, and tried again after a while.
void Coordinator::State::judge_shares(const wire::Form& committed, Duration took) {
  const bool same = shares.of.size() == committed.participants.size() && round.attempts == 1;
  if (same && !shares.before.empty() && shares.before.size() == shares.of.size() && took > kSlower * shares.took) {
    note(Note::Level::kInfo, "shares",
         "round " + std::to_string(committed.round.value) + " took " + in_seconds(took) + " in place of " +
             in_seconds(shares.took) + ": the shares of before are taken again",
         {{"round", std::to_string(committed.round.value)}});
    shares.of = std::exchange(shares.before, {});
    shares.stay_until = RoundId{committed.round.value + kRoundsToStay};
    return;
  }
  shares.before.clear();
  shares.took = same && !committed.slices.empty() ? took : Duration{0};
}

void Coordinator::State::tell_of_shares(const std::vector<Share>& filled, double ratio) {
  std::vector<std::string> parts;
  std::string json;
  for (const Share& share : filled) {
    const MemberRecord& member = members.at(share.site);
    parts.push_back(member.name + " " + in_percent(share.share));
    json += (json.empty() ? "" : ",") + json_quote(member.name) + ":" + json_number(share.share);
  }
  note(Note::Level::kInfo, "shares",
       "round " + std::to_string(number().value) + ": by the rates the sites have measured, owners are " +
           join_words(parts) + "; the exchange should take " + in_percent(ratio) + " of the time it would have taken",
       {{"round", std::to_string(number().value)}, {"shares", "{" + json + "}"}});
}

}  // namespace collab::protocol
