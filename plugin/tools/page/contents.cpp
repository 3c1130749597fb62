#include "tools/page/contents.h"

#include <functional>
#include <string_view>

#include "core/base/text.h"

namespace collab::page {
namespace {

std::string json_of(const std::vector<RecentEvent>& recent_events) {
  std::string text;
  for (const RecentEvent& one : recent_events) {
    text += (text.empty() ? "" : ",") + ("{\"at\":" + json_number(one.at)) + ",\"event\":" + json_quote(one.event) +
            ",\"text\":" + json_quote(one.text) + "}";
  }
  return "[" + text + "]";
}

std::string label(std::string_view name, std::string_view value) {
  std::string text = std::string(name) + "=\"";
  for (const char c : escaped(value)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text + '"';
}

// One metric, with the comments that Prometheus expects before the first value.
class Metric {
 public:
  Metric(std::string& to, std::string name, std::string_view type, std::string_view help)
      : to_(to), name_(std::move(name)) {
    to_ += "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " " + std::string(type) + "\n";
  }
  void is(const std::string& value, const std::string& labels = {}) {
    to_ += name_ + (labels.empty() ? "" : "{" + labels + "}") + " " + value + "\n";
  }

 private:
  std::string& to_;
  const std::string name_;
};

void single(std::string& text, const char* name, const char* help, std::uint64_t value) {
  Metric(text, name, "gauge", help).is(std::to_string(value));
}

void of_each(std::string& text, const char* name, const char* help, const std::vector<MemberStatus>& members,
             const std::function<std::string(const MemberStatus&)>& value) {
  Metric metric(text, name, "gauge", help);
  for (const MemberStatus& member : members) {
    if (const std::string told = value(member); !told.empty()) metric.is(told, label("site", member.name));
  }
}

}  // namespace

std::string status_text(const Constants& constants, const CoordinatorReport& report,
                        const std::vector<Contributed>& leaderboard, double now) {
  return "{\"at\":" + json_number(now) + ",\"objective\":" + json_quote(constants.objective) +
         ",\"join\":" + json_quote(constants.join) + ",\"swarm\":" + to_json(report.status) +
         ",\"leaderboard\":" + to_json(leaderboard) + ",\"rounds\":" + json_of(report.rounds) +
         ",\"events\":" + json_of(report.events) + "}";
}

std::string metrics_text(const CoordinatorReport& report, const std::vector<Contributed>& leaderboard) {
  const SwarmStatus& swarm = report.status;
  std::string text;
  single(text, "collab_leads", "1 where this coordinator leads the swarm.", swarm.leads ? 1 : 0);
  single(text, "collab_term", "The term of the swarm's leader.", swarm.term.value);
  single(text, "collab_generation", "The number of the model, of those that the script trains one after the other.",
         swarm.generation);
  single(text, "collab_round", "The last round that was agreed on.", swarm.round.value);
  single(text, "collab_waiting", "1 while ready sites wait for others.", swarm.waiting_for.empty() ? 0 : 1);
  single(text, "collab_missing", "Sites whose absence keeps the others from agreeing.", swarm.missing.size());
  const auto of_swarm = [&text](const std::string& name, std::string_view help, const std::optional<double>& value) {
    if (value) Metric(text, name, "gauge", help).is(json_number(*value));
  };
  of_swarm("collab_delta_spread", "How far the sites' deltas of the last round were from their mean, over its norm.",
           swarm.spread);
  of_swarm("collab_mean_cosine", "Cosine between the last round's mean delta and the one before it.", swarm.cosine);
  {
    Metric metric(text, "collab_site_up", "gauge", "1 for each site and helper that is here, with its state.");
    for (const MemberStatus& member : swarm.members) {
      metric.is("1", label("site", member.name) + "," + label("state", member.state) + ",role=\"" +
                         (member.helper ? "helper" : "site") + "\"");
    }
  }
  const auto& members = swarm.members;
  of_each(text, "collab_site_round", "The round of the anchor that the site holds.", members,
          [](const MemberStatus& member) { return std::to_string(member.round.value); });
  of_each(text, "collab_site_share", "The part of the model's vector that it reduces.", members,
          [](const MemberStatus& member) { return json_number(member.share); });
  of_each(text, "collab_site_up_mbit", "How fast its line has carried what it sent, Mbit/s; 0: not known.", members,
          [](const MemberStatus& member) { return json_number(member.up_mbit); });
  of_each(text, "collab_site_down_mbit", "How fast its line has carried what it received, Mbit/s; 0: not known.",
          members, [](const MemberStatus& member) { return json_number(member.down_mbit); });
  of_each(text, "collab_site_loss", "The loss that its script logged last.", members,
          [](const MemberStatus& member) { return member.loss ? json_number(*member.loss) : std::string(); });
  of_each(text, "collab_site_step_seconds", "What a step of its training takes, as it measured last; 0: not known.",
          members, [](const MemberStatus& member) { return json_number(member.times.step_seconds); });
  of_each(text, "collab_site_round_seconds", "What its last round took, with waits for others; 0: not known.", members,
          [](const MemberStatus& member) { return json_number(member.times.round_seconds); });
  of_each(text, "collab_site_waited_ratio",
          "The part of the time between its last two triggers in which its script waited for a round.", members,
          [](const MemberStatus& member) { return json_number(member.times.waited); });
  of_each(text, "collab_site_overlapped_ratio", "The part of that time in which a round ran behind its training.",
          members, [](const MemberStatus& member) { return json_number(member.times.overlapped); });
  of_each(text, "collab_site_merged_ratio",
          "The part of that time in which a round's result was merged into its parameters.", members,
          [](const MemberStatus& member) { return json_number(member.times.merged); });
  of_each(text, "collab_site_silence_seconds", "Seconds since it was last heard.", members,
          [](const MemberStatus& member) { return json_number(static_cast<double>(member.heartbeat_age_ms) / 1e3); });
  Metric samples(text, "collab_contributed_samples_total", "counter", "Samples in rounds that were committed.");
  for (const Contributed& of : leaderboard) samples.is(std::to_string(of.samples), label("site", of.name));
  Metric rounds(text, "collab_contributed_rounds_total", "counter", "Rounds that it contributed to.");
  for (const Contributed& of : leaderboard) rounds.is(std::to_string(of.rounds), label("site", of.name));
  return text;
}

std::string join_command(const std::string& coordinator, const std::string& run, Key key) {
  const auto quoted = [](const std::string& word) {
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:,/[]";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos && word.find('[') != 0) return word;
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
  };
  std::string command = "COLLAB_SITE=NAME COLLAB_COORDINATOR=" + quoted(coordinator);
  if (run != "default") command += " COLLAB_RUN=" + quoted(run);
  if (key == Key::kToken) command += " COLLAB_TOKEN_FILE=swarm.key";
  if (key == Key::kCertificates) {
    command += " COLLAB_TLS_CERT=site.pem COLLAB_TLS_KEY=site.key COLLAB_TLS_CA=ca.pem";
  }
  return command + " torchrun --standalone train.py";
}

}  // namespace collab::page
