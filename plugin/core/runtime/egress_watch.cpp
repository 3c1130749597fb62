#include "core/runtime/egress_watch.h"

#include <cmath>
#include <cstdio>

#include "core/base/text.h"
#include "core/protocol/formatting.h"

namespace collab {
namespace {

[[nodiscard]] double in_gigabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

EgressWatch::EgressWatch(double gigabytes, protocol::Egress before)
    : budget_(static_cast<std::uint64_t>(std::ceil(gigabytes * 1e9)), before), over_(budget_.over()) {}

void EgressWatch::count(std::uint64_t sent, std::uint64_t received, std::uint64_t beside) {
  bytes_sent_ = sent;
  bytes_received_ = received;
  budget_.sent(sent + beside);
  spent_ = budget_.so_far().spent;
}

std::optional<protocol::Note> EgressWatch::news() {
  over_ = budget_.over();
  const unsigned mark = budget_.news();
  if (mark == 0) return std::nullopt;
  const std::string spent = std::to_string(mark) + " % of this site's egress budget is spent";
  const std::string what = over_ ? "what is left of this site's egress budget is too little for another round" : spent;
  return protocol::make_note(protocol::Note::Level::kWarning, "budget", what + ": " + text() + " [round.budget]",
                             fields());
}

JsonFields EgressWatch::fields() const {
  if (!budget_.on()) return {};
  JsonFields fields{{"egress_gb", json_number(in_gigabytes(budget_.so_far().spent))},
                    {"egress_budget_gb", json_number(in_gigabytes(budget_.total()))}};
  if (budget_.known()) fields.emplace_back("rounds_left", std::to_string(budget_.rounds_left()));
  return fields;
}

std::string EgressWatch::text() const {
  if (!budget_.on()) return {};
  char line[160];
  std::snprintf(line, sizeof line, "%.6g of %.6g GB have been sent (COLLAB_EGRESS_BUDGET_GB)",
                in_gigabytes(budget_.so_far().spent), in_gigabytes(budget_.total()));
  return line + (budget_.known() && !over_ ? "; rounds left: " + std::to_string(budget_.rounds_left()) : std::string());
}

}  // namespace collab
