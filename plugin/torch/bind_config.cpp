// Knobs, codecs, the log, transports and build information.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/version.h>

#include <algorithm>
#include <map>

#include "collab/codec.h"
#include "core/base/address.h"
#include "core/base/knobs.h"
#include "core/base/log.h"
#include "core/base/presets.h"
#include "core/protocol/allocation/bandwidth_partition.h"
#include "core/protocol/coordinator/period_choice.h"
#include "core/runtime/tensors/kept_tensors.h"
#include "torch/bindings.h"
#include "transport/choice/link_choice.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/tcp/tcp_transport.h"
#ifdef COLLAB_HAS_UCX
#include "transport/ucx/ucx_transport.h"
#endif

namespace py = pybind11;

namespace collab::torch_adapter {
namespace {

using Texts = std::map<std::string, std::string>;

PyConfig load(const Texts& environment, const Texts& options, const Texts& rendezvous) {
  const auto pairs = [](const Texts& texts) { return KnobTexts(texts.begin(), texts.end()); };
  return {value_or_raise(load_config(pairs(environment), pairs(options), pairs(rendezvous)))};
}

std::vector<std::string> warnings(const Texts& environment) {
  return environment_warnings({environment.begin(), environment.end()});
}

std::map<std::string, KnobData> typed(const PyConfig& config) {
  std::map<std::string, KnobData> fields;
  for (const KnobRow& row : knob_rows()) fields.emplace(row.knob.name, row.form.data(config.loaded.config));
  return fields;
}

std::vector<std::tuple<std::string, std::string, std::string>> values(const PyConfig& config) {
  std::vector<std::tuple<std::string, std::string, std::string>> rows;
  for (const KnobValue& value : config.loaded.values) {
    rows.emplace_back(std::string(value.knob->name), value.value, value.source);
  }
  return rows;
}

std::string_view name_of(KnobType type) {
  switch (type) {
    case KnobType::kSwitch: return "switch";
    case KnobType::kWhole: return "whole";
    case KnobType::kWholeOrAuto: return "whole or auto";
    case KnobType::kWholeOrNone: return "whole or none";
    case KnobType::kReal: return "real";
    case KnobType::kRealOrAuto: return "real or auto";
    case KnobType::kTime: return "time";
    case KnobType::kStepsOrTime: return "steps or time";
    case KnobType::kWord: return "word";
    case KnobType::kText: return "text";
    case KnobType::kAddresses: return "addresses";
  }
  return "unknown";
}

std::string_view name_of(KnobScope scope) {
  switch (scope) {
    case KnobScope::kRank: return "rank";
    case KnobScope::kWorld: return "world";
    case KnobScope::kSites: return "sites";
  }
  return "unknown";
}

py::list knobs() {
  py::list rows;
  for (const auto& [knob, form] : knob_rows()) {
    py::dict row;
    row["name"] = knob.name;
    row["type"] = name_of(form.type);
    row["default"] = knob.default_;
    row["unit"] = knob.unit;
    row["range"] = knob.range;
    row["sentence"] = knob.sentence;
    row["scope"] = name_of(knob.scope);
    row["advanced"] = knob.advanced;
    row["secret"] = knob.secret;
    row["old_name"] = knob.old_name;
    rows.append(row);
  }
  return rows;
}

py::list preset_table() {
  py::list rows;
  for (const Preset& preset : presets()) {
    py::dict row;
    row["name"] = preset.name;
    row["sentence"] = preset.sentence;
    row["values"] = std::vector<std::pair<std::string, std::string>>(preset.values.begin(), preset.values.end());
    rows.append(row);
  }
  return rows;
}

CodecId codec_from(const std::string& name) { return value_or_raise(codec_from_name(name)); }

// A site's (rate up, rate down, may own).
using PlannedLine = std::tuple<double, double, bool>;
// A site's (share, volume up, volume down); volumes in units of encoded deltas.
using PlannedPart = std::tuple<double, double, double>;

// How long an exchange takes with the partition that the coordinator makes once it knows all rates.
std::pair<double, std::vector<PlannedPart>> plan_exchange(const std::vector<PlannedLine>& sites, double mean_ratio) {
  std::vector<protocol::Line> lines;
  for (const auto& [up, down, may_own] : sites) {
    lines.push_back(
        {.site = SiteId{static_cast<std::uint32_t>(lines.size())}, .up = up, .down = down, .may_own = may_own});
  }
  protocol::BandwidthPartition partition;
  const auto shares = partition.divide({}, {}, lines, mean_ratio).shares;
  const auto volumes = protocol::volumes(lines, shares, mean_ratio);
  std::vector<PlannedPart> parts;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    parts.emplace_back(partition.share_of(lines[i].site), volumes[i].up, volumes[i].down);
  }
  return {protocol::exchange_time(lines, shares, mean_ratio), parts};
}

std::uint64_t kept_elements(const std::string& words,
                            const std::vector<std::pair<std::string, std::uint64_t>>& tensors) {
  std::vector<TensorInfo> model;
  std::uint64_t elements = 0;
  for (const auto& [name, count] : tensors) {
    model.push_back({.name = name, .dtype = {}, .shape = {count}, .digest = {}});
    elements += count;
  }
  std::uint64_t kept = 0;
  for (const ElementRange& range : kept_tensors(words, model, elements, elements).ranges) kept += range.size();
  return kept;
}

// The functions that `collab plan` uses.
void bind_planning(py::module_& module) {
  module.def(
      "parse_codecs",
      [](const std::string& text) {
        const Codecs codecs = value_or_raise(codecs_from_name(text));
        return std::pair(std::string(name_of(codecs.up)), std::string(name_of(codecs.down)));
      },
      py::arg("text"));
  module.def(
      "codec_bytes",
      [](const std::string& name, std::size_t elements) { return codec_for(codec_from(name)).encoded_size(elements); },
      py::arg("name"), py::arg("elements"));
  module.def(
      "needs_error_feedback", [](const std::string& name) { return needs_error_feedback(codec_from(name)); },
      py::arg("name"));
  module.def(
      "auto_period",
      [](double step_seconds, double round_seconds, double target, bool behind) {
        protocol::PeriodRule rule;
        rule.target = target;
        rule.behind = behind;
        protocol::PeriodChoice choice;
        choice.measured({step_seconds, round_seconds}, rule);
        return choice.in_force();
      },
      py::arg("step_seconds"), py::arg("round_seconds"), py::arg("target"), py::arg("behind"));
  module.def("plan_exchange", plan_exchange, py::arg("lines"), py::arg("mean_ratio"));
  module.def("kept_elements", kept_elements, py::arg("words"), py::arg("tensors"));
}

LogLevel level_from(const std::string& name) { return value_or_raise(log_level_from_name(name)); }

std::chrono::milliseconds in_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// (level, seconds since 1970, site, rank, text)
using LogRow = std::tuple<std::string_view, double, std::string, std::optional<std::uint32_t>, std::string>;

// The oldest waiting record, or the first within `timeout` seconds. If one waits already, this keeps the interpreter's
// lock; that is safe, as no thread waits for anything while it holds the queue's lock.
std::optional<LogRow> drain_log(double timeout) {
  std::optional<LogRecord> record = take_log_record(std::chrono::milliseconds(0));
  if (!record) {
    const py::gil_scoped_release unlocked;
    record = take_log_record(in_ms(timeout));
  }
  if (!record) return std::nullopt;
  const double time = std::chrono::duration<double>(record->time.time_since_epoch()).count();
  return LogRow{name_of(record->level), time, std::move(record->site), record->rank, std::move(record->text)};
}

void bind_log(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "log", [](const std::string& level, const std::string& text) { log_at(level_from(level), text); },
      py::arg("level"), py::arg("text"));
  module.def(
      "set_log_level", [](const std::string& level) { set_log_level(level_from(level)); }, py::arg("level"));
  module.def("set_log_source", &set_log_source, py::arg("site"), py::arg("rank"));
  module.def("open_log_queue", [] { open_log_queue(); });
  module.def("log_queue_open", &log_queue_open);
  module.def("drain_log", &drain_log, py::arg("timeout"));
  module.def(
      "flush_log", [](double timeout) { return flush_log(in_ms(timeout)); }, py::arg("timeout"), unlocked);
  module.def(
      "close_log_queue", [](double timeout) { close_log_queue(in_ms(timeout)); }, py::arg("timeout"), unlocked);
}

std::pair<std::string, std::string> describe_ucx(const std::string& library_dir) {
#ifdef COLLAB_HAS_UCX
  const UcxDescription description = value_or_raise(ucx_description(library_dir));
  return {description.version, description.path};
#else
  (void)library_dir;
  raise(ucx_not_built());
  return {};
#endif
}

// (kind, reason, whether a token or certificate goes unused)
std::tuple<std::string, std::string, bool> links_for(const PyConfig& config,
                                                     const std::function<std::optional<std::string>()>& ucx_problem) {
  LinkChoice choice = value_or_raise(choose_links(config.loaded.config, [&ucx_problem] {
    const std::optional<std::string> problem = ucx_problem();
    return problem ? unavailable(*problem) : Status();
  }));
  return {std::move(choice.kind), std::move(choice.reason), choice.key_unused};
}

// `packed`: the bytes of an IPv4 or IPv6 address.
bool is_near_address(const py::bytes& packed) {
  const std::string_view bytes = packed;
  return is_near({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

py::dict build_info() {
  py::dict info;
  info["torch"] = TORCH_VERSION;
#ifdef COLLAB_HAS_UCX
  info["ucx"] = true;
#else
  info["ucx"] = false;
#endif
  return info;
}

template <typename T>
T field(const py::dict& spec, const char* name, T otherwise) {
  if (!spec.contains(name) || spec[name].is_none()) return otherwise;
  return spec[name].cast<T>();
}

void refuse_unknown_fields(const py::dict& spec, const std::vector<std::string>& known) {
  for (const auto& item : spec) {
    const auto name = py::str(item.first).cast<std::string>();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      raise(invalid_argument("a transport of kind '" + field<std::string>(spec, "kind", "") + "' has no field '" +
                             name + "' [link.field]"));
    }
  }
}

// One secret per token; the spoken token's comes first.
std::vector<py::bytes> swarm_secrets_for(const PyConfig& config, const std::string& purpose) {
  std::vector<py::bytes> made;
  for (const auto& secret : value_or_raise(swarm_secrets(tcp_options(config.loaded), purpose))) {
    made.emplace_back(reinterpret_cast<const char*>(secret.data()), secret.size());
  }
  return made;
}

// Makes the transport and drops it, so that wrong settings raise here with the error that its use would give.
void try_transport(const py::dict& spec) {
  const TransportFactory factory = transport_factory(spec);
  Status made;
  {
    const py::gil_scoped_release unlocked;  // joins the transport's threads
    made = factory().status();
  }
  if (!made.ok()) raise(made);
}

}  // namespace

TransportFactory transport_factory(const py::dict& spec) {
  const auto kind = field<std::string>(spec, "kind", "");
  if (kind == "ucx" || kind == "tcp") {
    refuse_unknown_fields(spec, {"kind", "config", "advertise_host", "library_dir"});
    const auto advertise = field<std::string>(spec, "advertise_host", "");
    const LoadedConfig loaded =
        spec.contains("config") ? spec["config"].cast<const PyConfig&>().loaded : LoadedConfig();
    if (kind == "tcp") {
      TcpOptions tcp = tcp_options(loaded);
      tcp.advertise_host = advertise;
      return [tcp] { return make_tcp_transport(tcp); };
    }
#ifdef COLLAB_HAS_UCX
    UcxOptions ucx = ucx_options(loaded);
    ucx.advertise_host = advertise;
    ucx.library_dir = field<std::string>(spec, "library_dir", "");
    return [ucx] { return make_ucx_transport(ucx); };
#else
    raise(ucx_not_built());
#endif
  }
  if (kind == "gloo") {
    refuse_unknown_fields(spec, {"kind", "backend"});
    GlooOptions options;
    options.backend = field<c10::intrusive_ptr<c10d::Backend>>(spec, "backend", nullptr);
    return [options] { return make_gloo_transport(options); };
  }
  raise(invalid_argument("transport kind '" + kind + "'; expected ucx, tcp or gloo [link.kind]"));
  return {};
}

void bind_config(py::module_& module) {
  py::class_<PyConfig>(module, "Config")
      .def_property_readonly("values", &values)
      .def_property_readonly("typed", &typed);
  module.def("load_config", &load, py::arg("environ"), py::arg("options") = Texts(), py::arg("rendezvous") = Texts());
  module.def("environment_warnings", &warnings, py::arg("environ"));
  module.def("knob_table", &knobs);
  module.def("preset_table", &preset_table);
  bind_planning(module);
  bind_log(module);
  module.def("ucx_description", &describe_ucx, py::arg("library_dir") = "");
  module.def("swarm_secrets", &swarm_secrets_for, py::arg("config"), py::arg("purpose"));
  module.def(
      "has_made_token",
      [](const PyConfig& config) { return value_or_raise(has_made_token(tcp_options(config.loaded))); },
      py::arg("config"));
  module.def("try_transport", &try_transport, py::arg("transport"));
  module.def("choose_links", &links_for, py::arg("config"), py::arg("ucx_problem"));
  module.def("is_near", &is_near_address, py::arg("packed"));
  module.def("build_info", &build_info);
}

}  // namespace collab::torch_adapter
