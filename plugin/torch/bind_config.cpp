// Knobs, the log, transports and what this build is made of.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/version.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "core/base/address.h"
#include "core/base/log.h"
#include "core/base/strangers.h"
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

PyConfig load(const Texts& environment, const Texts& options) {
  const std::vector<std::pair<std::string, std::string>> variables(environment.begin(), environment.end());
  const std::vector<std::pair<std::string, std::string>> fields(options.begin(), options.end());
  return {value_or_raise(load_config(variables, fields))};
}

std::string foreign(const Texts& environment) { return foreign_text({environment.begin(), environment.end()}); }

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

std::string_view weight_name(WeightBy weight) {
  switch (weight) {
    case WeightBy::kSamples: return "samples";
    case WeightBy::kSteps: return "steps";
    case WeightBy::kEqual: return "equal";
  }
  return "unknown";
}

// What the shim decides by; the rest it passes through.
py::dict typed(const Config& config) {
  py::dict d;
  d["run"] = config.run;
  d["site"] = config.site;
  d["site_index"] = config.site_index ? py::object(py::int_(*config.site_index)) : py::object(py::none());
  d["site_count"] = config.site_count;
  d["init_from"] = config.init_from;
  d["coordinator"] = config.coordinator;
  d["listen"] = config.listen;
  d["advertise"] = config.advertise;
  d["transport"] = config.transport;
  d["connections"] = config.connections;
  d["sync_every_steps"] = config.sync_every.steps;
  d["sync_every_seconds"] = seconds(config.sync_every.time);
  d["weight"] = weight_name(config.weight);
  d["buffers"] = config.buffers;
  d["join_optimizer"] = config.join_optimizer;
  d["reseed"] = config.reseed;
  d["join_timeout"] = seconds(config.join_timeout);
  d["round_timeout"] = seconds(config.round_timeout);
  d["straggler_grace"] = seconds(config.straggler_grace);
  d["forget_after"] = seconds(config.forget_after);
  d["link_grace"] = seconds(config.link_grace);
  d["heartbeat"] = seconds(config.heartbeat);
  d["linger"] = seconds(config.linger);
  d["state_dir"] = config.state_dir;
  d["save_every"] = config.save_every;
  d["events"] = config.events;
  d["log"] = config.log;
  return d;
}

std::vector<std::tuple<std::string, std::string, std::string>> values(const PyConfig& config) {
  std::vector<std::tuple<std::string, std::string, std::string>> rows;
  for (const KnobValue& value : config.loaded.values) {
    rows.emplace_back(std::string(value.knob->name), value.value, value.source);
  }
  return rows;
}

py::list knobs() {
  py::list rows;
  for (const Knob& knob : knob_table()) {
    py::dict row;
    row["name"] = knob.name;
    row["default"] = knob.default_;
    row["unit"] = knob.unit;
    row["range"] = knob.range;
    row["sentence"] = knob.sentence;
    row["shared"] = knob.shared;
    rows.append(row);
  }
  return rows;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

// A bar in a range would end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string knob_markdown() {
  std::ostringstream table;
  table << "| Variable | Default | Unit | Accepted | What it does |\n|---|---|---|---|---|\n";
  for (const Knob& knob : knob_table()) {
    table << "| `COLLAB_" << upper(knob.name) << "` | " << (knob.default_.empty() ? "" : "`") << cell(knob.default_)
          << (knob.default_.empty() ? "" : "`") << " | " << cell(knob.unit) << " | " << cell(knob.range) << " | "
          << cell(knob.sentence) << " |\n";
  }
  return table.str();
}

void configure_log(const std::string& level, const std::string& prefix) {
  set_log(value_or_raise(log_level_from_name(level)), prefix);
}

void write_log(const std::string& level, const std::string& text) {
  switch (value_or_raise(log_level_from_name(level))) {
    case LogLevel::kDebug: return log_debug(text);
    case LogLevel::kInfo: return log_info(text);
    case LogLevel::kWarning: return log_warning(text);
    case LogLevel::kError: return log_error(text);
    case LogLevel::kOff: return;
  }
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

// (kind, reason, whether a key is given and not used)
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
  info["version"] = COLLAB_VERSION;
  info["compiler"] = __VERSION__;
  info["torch"] = TORCH_VERSION;
#ifdef COLLAB_HAS_UCX
  info["ucx"] = true;
#else
  info["ucx"] = false;
#endif
#ifdef NDEBUG
  info["assertions"] = false;
#else
  info["assertions"] = true;
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
                             name + "'"));
    }
  }
}

// One for each token, the one to speak with first.
std::vector<py::bytes> swarm_secrets_for(const PyConfig& config, const std::string& purpose) {
  std::vector<py::bytes> made;
  for (const auto& secret : value_or_raise(swarm_secrets(tcp_options(config.loaded), purpose))) {
    made.emplace_back(reinterpret_cast<const char*>(secret.data()), secret.size());
  }
  return made;
}

// Makes the transport and drops it: what is wrong with its settings is raised, as it would be by whoever uses it.
void try_transport(const py::dict& spec) {
  const TransportFactory factory = transport_factory(spec);
  Status made;
  {
    const py::gil_scoped_release unlocked;  // its threads are joined here
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
  raise(invalid_argument("transport kind '" + kind + "'; expected ucx, tcp or gloo"));
  return {};
}

void bind_config(py::module_& module) {
  py::class_<PyConfig>(module, "Config")
      .def_property_readonly("values", &values)
      .def_property_readonly("typed", [](const PyConfig& config) { return typed(config.loaded.config); });
  module.def("load_config", &load, py::arg("environ"), py::arg("options") = Texts());
  module.def("foreign_in_words", &foreign, py::arg("environ"));
  module.def("knob_table", &knobs);
  module.def("knob_table_markdown", &knob_markdown);
  module.def("configure_log", &configure_log, py::arg("level"), py::arg("prefix") = "");
  module.def("log", &write_log, py::arg("level"), py::arg("text"));
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
