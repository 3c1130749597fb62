#include "tools/lab/spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "core/base/text.h"

namespace collab::lab {
namespace {

constexpr double kMaxMbit = 100'000;
constexpr double kMaxMilliseconds = 60'000;
constexpr double kMaxSeconds = 10'000'000;

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return parts;
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
}

bool is_host_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && name.size() <= 32 && letter(name[0]) && name.back() != '-' &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c) || c == '-'; });
}

struct Rates {
  Rate down, up;
};

Result<Rates> parse_rates(std::string_view text) {
  const std::size_t slash = text.find('/');
  const Result<double> down = parse_number(text.substr(0, slash), "a rate down in Mbit/s", 0.001, kMaxMbit);
  if (!down.ok()) return down.status();
  if (slash == std::string_view::npos) return Rates{{*down}, {*down}};
  const Result<double> up = parse_number(text.substr(slash + 1), "a rate up in Mbit/s", 0.001, kMaxMbit);
  if (!up.ok()) return up.status();
  return Rates{{*down}, {*up}};
}

Status parse_path_key(std::string_view word, PathChange& change) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) {
    return invalid_argument("expected KEY=VALUE, e.g. loss=1, got " + quoted(word));
  }
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  const bool is_time = key == "delay" || key == "rtt" || key == "jitter";
  if (!is_time && key != "loss" && key != "reorder" && key != "duplicate") {
    return invalid_argument("expected one of delay, rtt, jitter, loss, reorder and duplicate before '=', got " +
                            quoted(key));
  }
  const std::string what = std::string(key) + (is_time ? " in milliseconds" : " in percent");
  const Result<double> number = parse_number(value, what, 0, is_time ? kMaxMilliseconds : 100);
  if (!number.ok()) return number.status();
  if (key == "delay") change.delay = milliseconds(*number);
  if (key == "rtt") change.delay = milliseconds(*number / 2);
  if (key == "jitter") change.jitter = milliseconds(*number);
  if (key == "loss") change.loss = *number / 100;
  if (key == "reorder") change.reorder = *number / 100;
  if (key == "duplicate") change.duplicate = *number / 100;
  return {};
}

Result<Change> parse_cut(bool cut, const std::vector<std::string_view>& words, const std::vector<HostSpec>& hosts) {
  if (words.size() > 3 || (cut && words.size() < 2)) {
    return invalid_argument(cut ? "expected 'cut HOST' or 'cut HOST HOST'"
                                : "expected 'heal', 'heal HOST' or 'heal HOST HOST'");
  }
  Cut parsed{.cut = cut, .host = {}, .peer = {}};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const Result<HostIndex> host = find_host(words[i], hosts);
    if (!host.ok()) return host.status();
    (i == 1 ? parsed.host : parsed.peer) = *host;
  }
  if (parsed.peer && parsed.peer == parsed.host) {
    return invalid_argument("expected two different hosts, got " + quoted(words[1]) + " twice");
  }
  return Change(parsed);
}

Result<Change> parse_path(bool both_ways, const std::vector<std::string_view>& words,
                          const std::vector<HostSpec>& hosts) {
  if (words.size() < 4) {
    return invalid_argument("expected '" + std::string(words[0]) + " HOST HOST KEY=VALUE...', e.g. '" +
                            std::string(words[0]) + " paris tokyo loss=1'");
  }
  const Result<HostIndex> from = find_host(words[1], hosts);
  if (!from.ok()) return from.status();
  const Result<HostIndex> to = find_host(words[2], hosts);
  if (!to.ok()) return to.status();
  if (*from == *to) return invalid_argument("expected two different hosts, got " + quoted(words[1]) + " twice");
  SetPath parsed{.from = *from, .to = *to, .both_ways = both_ways, .change = {}};
  for (std::size_t i = 3; i < words.size(); ++i) {
    if (!both_ways && words[i].starts_with("rtt=")) {
      return invalid_argument("'path' is one direction: expected delay=MS instead of " + quoted(words[i]));
    }
    COLLAB_RETURN_IF_ERROR(parse_path_key(words[i], parsed.change));
  }
  return Change(parsed);
}

Result<Change> parse_rate(const std::vector<std::string_view>& words, const std::vector<HostSpec>& hosts) {
  if (words.size() != 3) return invalid_argument("expected 'rate HOST DOWN/UP', e.g. 'rate tokyo 5/5'");
  const Result<HostIndex> host = find_host(words[1], hosts);
  if (!host.ok()) return host.status();
  const Result<Rates> rates = parse_rates(words[2]);
  if (!rates.ok()) return rates.status();
  return Change(SetRate{.host = *host, .down = rates.value().down, .up = rates.value().up});
}

}  // namespace

Time Rate::time_for(std::size_t bytes) const {
  return unlimited() ? Time::zero() : Time(std::llround(static_cast<double>(bytes) * 8000.0 / mbit_per_s));
}

void PathChange::apply_to(PathSpec& path) const {
  if (delay) path.delay = *delay;
  if (jitter) path.jitter = *jitter;
  if (loss) path.loss = *loss;
  if (reorder) path.reorder = *reorder;
  if (duplicate) path.duplicate = *duplicate;
}

Result<HostIndex> find_host(std::string_view name, const std::vector<HostSpec>& hosts) {
  std::vector<std::string_view> names;
  for (const HostSpec& host : hosts) names.emplace_back(host.name);
  for (HostIndex i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
  }
  std::string text = "there is no host " + quoted(name) + "; there are";
  for (const std::string_view known : names) text += " " + std::string(known);
  return invalid_argument(text + "; did you mean " + quoted(nearest(name, names)) + "?");
}

Result<HostSpec> parse_host(std::string_view text, Time queue) {
  HostSpec host;
  host.queue = queue;
  const std::vector<std::string_view> parts = split(text, ",");
  const std::string_view first = parts.empty() ? std::string_view() : parts[0];
  const std::size_t colon = first.find(':');
  host.name = first.substr(0, colon);
  if (!is_host_name(host.name)) {
    return invalid_argument(
        "expected a site as NAME[:DOWN/UP][,nat][,queue=MS] with a name of letters, digits and '-', "
        "got " +
        quoted(text));
  }
  const std::string where = " in site " + quoted(text);
  if (colon != std::string_view::npos) {
    const Result<Rates> rates = parse_rates(first.substr(colon + 1));
    if (!rates.ok()) return invalid_argument(rates.status().message() + where);
    host.down = rates.value().down;
    host.up = rates.value().up;
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] == "nat") {
      host.nat = true;
    } else if (parts[i].starts_with("queue=")) {
      const Result<double> given = parse_number(parts[i].substr(6), "a queue in milliseconds", 0, kMaxMilliseconds);
      if (!given.ok()) return invalid_argument(given.status().message() + where);
      host.queue = milliseconds(*given);
    } else {
      return invalid_argument("expected 'nat' or 'queue=MS', got " + quoted(parts[i]) + where);
    }
  }
  return host;
}

Result<Change> parse_change(std::string_view text, const std::vector<HostSpec>& hosts) {
  const std::vector<std::string_view> words = split(text, " \t\r");
  const std::string_view verb = words.empty() ? std::string_view() : words[0];
  if (verb == "cut" || verb == "heal") return parse_cut(verb == "cut", words, hosts);
  if (verb == "rate") return parse_rate(words, hosts);
  if (verb == "link" || verb == "path") return parse_path(verb == "link", words, hosts);
  return invalid_argument("expected cut, heal, rate, link or path, got " + quoted(verb));
}

Result<std::vector<ScriptStep>> parse_script(std::string_view text, std::string_view name,
                                             const std::vector<HostSpec>& hosts) {
  std::vector<ScriptStep> steps;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const std::vector<std::string_view> words = split(line, " \t\r");
    if (words.empty()) continue;
    const std::string where = std::string(name) + ":" + std::to_string(number) + ": ";
    const Result<double> seconds = parse_number(words[0], "a time in seconds", 0, kMaxSeconds);
    if (!seconds.ok()) return invalid_argument(where + seconds.status().message());
    const std::string_view rest =
        line.substr(static_cast<std::size_t>(words[0].data() - line.data()) + words[0].size());
    Result<Change> change = parse_change(rest, hosts);
    if (!change.ok()) return invalid_argument(where + change.status().message());
    std::string said;
    for (std::size_t i = 1; i < words.size(); ++i) said += (i > 1 ? " " : "") + std::string(words[i]);
    steps.push_back({milliseconds(*seconds * 1000), *change, std::move(said)});
  }
  std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return steps;
}

Result<double> parse_number(std::string_view text, std::string_view what, double low, double high) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error == std::errc() && end == text.data() + text.size() && value >= low && value <= high) return value;
  const auto plain = [](double number) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%g", number);
    return std::string(buffer);
  };
  return invalid_argument("expected " + std::string(what) + " from " + plain(low) + " to " + plain(high) + ", got " +
                          quoted(text));
}

std::string to_string(const Rate& rate) {
  if (rate.unlimited()) return "unlimited";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", rate.mbit_per_s);
  return buffer;
}

Time milliseconds(double count) { return Time(std::llround(count * 1e6)); }

}  // namespace collab::lab
