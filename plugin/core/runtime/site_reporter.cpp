#include "core/runtime/site_reporter.h"

#include "core/base/log.h"
#include "core/base/text.h"

namespace collab {

void SiteReporter::round(const RoundReport& report, const EgressWatch& egress) {
  JsonFields fields = fields_of(report);
  fields.emplace_back("codec", json_quote(name_of(config_.codec)));
  fields.emplace_back("transport", json_quote(transport_));
  if (fragments_.count > 1) fields.emplace_back("fragment", std::to_string(fragments_.in_turn(report.round)));
  if (config_.overlap) {
    fields.emplace_back("overlap_seconds", json_number(report.times.training.overlap));
    fields.emplace_back("merge_seconds", json_number(report.times.training.merge));
  }
  if (config_.outer_optimizer == OuterId::kNesterov && report.outer_lr > 0) {
    fields.emplace_back("outer_lr", json_number(report.outer_lr));
  }
  if (report.clipped_norm > 0) fields.emplace_back("clipped_norm", json_number(report.clipped_norm));
  if (report.period > 0) fields.emplace_back("period", std::to_string(report.period));
  for (auto& field : egress.fields()) fields.push_back(std::move(field));
  events_.write(site_, "round", fields);
  log_info(text_of(report));
  if (const std::string spent = egress.text(); !spent.empty()) log_info(spent);
}

}  // namespace collab
