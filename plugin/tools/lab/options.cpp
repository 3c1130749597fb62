#include "tools/lab/options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "core/base/text.h"
#include "tools/lab/host_network.h"

namespace collab::lab {
namespace {

constexpr std::uint32_t kDefaultNetwork = 10U << 24 | 99U << 16;  // 10.99.0.0

// Texts to parse once all options are known: hosts need the default queue, links need the hosts.
struct Raw {
  std::vector<std::string> sites;
  std::vector<std::string> links;
  Time queue = HostSpec().queue;
};

struct Option {
  std::string_view name;
  bool takes_value;
  std::function<Status(Options&, Raw&, std::string_view)> read;
};

Status read_milliseconds(std::string_view value, std::string_view option, Time& to, double factor = 1) {
  const Result<double> number = parse_number(value, std::string(option) + " in milliseconds", 0, 60'000);
  if (!number.ok()) return number.status();
  to = milliseconds(*number * factor);
  return {};
}

Status read_percent(std::string_view value, std::string_view option, double& to) {
  const Result<double> number = parse_number(value, std::string(option) + " in percent", 0, 100);
  if (!number.ok()) return number.status();
  to = *number / 100;
  return {};
}

Status read_whole(std::string_view value, std::string_view option, double low, double high, double& to) {
  const Result<double> number = parse_number(value, option, low, high);
  if (!number.ok()) return number.status();
  if (*number != std::floor(*number)) {
    return invalid_argument("expected a whole number for " + std::string(option) + ", got '" + std::string(value) +
                            "'");
  }
  to = *number;
  return {};
}

Status read_network(std::string_view value, std::uint32_t& to) {
  std::uint32_t address = 0;
  std::string_view rest = value;
  for (int part = 0; part < 4; ++part) {
    const std::size_t dot = rest.find('.');
    const Result<double> byte = parse_number(rest.substr(0, dot), "", 0, 255);
    const bool last = part == 3;
    if (!byte.ok() || last != (dot == std::string_view::npos) || *byte != std::floor(*byte)) {
      return invalid_argument("expected --network as A.B.C.0, e.g. 10.99.0.0, got '" + std::string(value) + "'");
    }
    address = address << 8 | static_cast<std::uint32_t>(*byte);
    rest.remove_prefix(last ? rest.size() : dot + 1);
  }
  if ((address & 0xFF) != 0) {
    return invalid_argument("expected --network to end in .0 (it has 254 addresses), got '" + std::string(value) + "'");
  }
  to = address;
  return {};
}

Status read_variable(std::string_view value, Options& options) {
  const std::size_t equals = value.find('=');
  if (equals == 0 || equals == std::string_view::npos) {
    return invalid_argument("expected --env NAME=VALUE, got '" + std::string(value) + "'");
  }
  options.environment.emplace_back(value.substr(0, equals), value.substr(equals + 1));
  return {};
}

template <typename Member>
Option flag(std::string_view name, Member member) {
  return {name, false, [member](Options& options, Raw&, std::string_view) {
            options.*member = true;
            return Status();
          }};
}

template <typename Member>
Option text(std::string_view name, Member member) {
  return {name, true, [member](Options& options, Raw&, std::string_view value) {
            options.*member = value;
            return Status();
          }};
}

Option path_time(std::string_view name, Time PathSpec::*member, double factor = 1) {
  return {name, true, [=](Options& options, Raw&, std::string_view value) {
            return read_milliseconds(value, name, options.network.path.*member, factor);
          }};
}

Option path_chance(std::string_view name, double PathSpec::*member) {
  return {name, true, [=](Options& options, Raw&, std::string_view value) {
            return read_percent(value, name, options.network.path.*member);
          }};
}

std::vector<Option> known_options() {
  return {
      {"--sites", true,
       [](Options&, Raw& raw, std::string_view value) {
         raw.sites.emplace_back(value);
         return Status();
       }},
      {"--link", true,
       [](Options&, Raw& raw, std::string_view value) {
         raw.links.push_back("link " + std::string(value));
         return Status();
       }},
      path_time("--rtt", &PathSpec::delay, 0.5),
      path_time("--delay", &PathSpec::delay),
      path_time("--jitter", &PathSpec::jitter),
      path_chance("--loss", &PathSpec::loss),
      path_chance("--reorder", &PathSpec::reorder),
      path_chance("--duplicate", &PathSpec::duplicate),
      {"--queue", true,
       [](Options&, Raw& raw, std::string_view value) { return read_milliseconds(value, "--queue", raw.queue); }},
      {"--env", true, [](Options& options, Raw&, std::string_view value) { return read_variable(value, options); }},
      {"--seed", true,
       [](Options& options, Raw&, std::string_view value) {
         double seed = 0;
         COLLAB_RETURN_IF_ERROR(read_whole(value, "--seed", 0, 1e15, seed));
         options.network.seed = static_cast<std::uint64_t>(seed);
         return Status();
       }},
      {"--mtu", true,
       [](Options& options, Raw&, std::string_view value) {
         double mtu = 0;
         COLLAB_RETURN_IF_ERROR(read_whole(value, "--mtu", 576, 65'000, mtu));
         options.mtu = static_cast<unsigned>(mtu);
         return Status();
       }},
      {"--network", true,
       [](Options& options, Raw&, std::string_view value) {
         return read_network(value, options.network.address_base);
       }},
      text("--script", &Options::script_file),
      text("--report", &Options::report_file),
      text("--pcap", &Options::capture_file),
      flag("--quiet", &Options::quiet),
      flag("--check", &Options::check),
      flag("--help", &Options::help),
  };
}

Status unknown_option(std::string_view given, const std::vector<Option>& known) {
  std::vector<std::string_view> names;
  for (const Option& option : known) names.push_back(option.name);
  return invalid_argument("there is no option " + std::string(given) + "; did you mean " +
                          std::string(nearest(given, names)) + "? (the command to run goes after --)");
}

// Reads options until "--", then the command. --sites takes words until the next option.
Status read_all(const std::vector<std::string_view>& arguments, Options& options, Raw& raw) {
  const std::vector<Option> known = known_options();
  std::size_t at = 0;
  while (at < arguments.size() && arguments[at] != "--") {
    std::string_view name = arguments[at++];
    if (name == "-h") name = "--help";
    std::optional<std::string_view> value;
    if (const std::size_t equals = name.find('='); name.starts_with("--") && equals != std::string_view::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    const auto option = std::find_if(known.begin(), known.end(), [&](const Option& o) { return o.name == name; });
    if (option == known.end()) return unknown_option(name, known);
    if (option->takes_value && !value) {
      if (at == arguments.size() || arguments[at] == "--") {
        return invalid_argument("expected a value after " + std::string(name));
      }
      value = arguments[at++];
    }
    if (!option->takes_value && value) return invalid_argument(std::string(name) + " takes no value");
    COLLAB_RETURN_IF_ERROR(option->read(options, raw, value.value_or("")));
    while (name == "--sites" && at < arguments.size() && !arguments[at].starts_with("-")) {
      raw.sites.emplace_back(arguments[at++]);
    }
  }
  if (at < arguments.size())
    options.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at) + 1, arguments.end());
  return {};
}

Status read_hosts(const Raw& raw, Options& options) {
  std::set<std::string> names;
  for (const std::string& text : raw.sites) {
    Result<HostSpec> host = parse_host(text, raw.queue);
    if (!host.ok()) return host.status();
    if (!names.insert(host->name).second) return invalid_argument("there are two sites '" + host->name + "'");
    options.network.hosts.push_back(*std::move(host));
  }
  if (names.size() > kMaxHosts) {
    return invalid_argument("expected at most " + std::to_string(kMaxHosts) + " sites, got " +
                            std::to_string(names.size()));
  }
  for (const std::string& link : raw.links) {
    const Result<Change> change = parse_change(link, options.network.hosts);
    if (!change.ok()) return invalid_argument(change.status().message() + " in --" + link);
    options.links.push_back(change.value());
  }
  return {};
}

// Checks each {address:NAME} in which NAME could be a site's name. If no such site exists, this is a mistake: the
// command would get the braces. Other braces belong to the command.
Status check_addresses(std::string_view text, const std::vector<HostSpec>& hosts) {
  constexpr std::string_view kBegin = "{address:";
  constexpr std::string_view kInNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  for (std::size_t at = 0; (at = text.find(kBegin, at)) != std::string_view::npos;) {
    at += kBegin.size();
    const std::size_t end = text.find_first_not_of(kInNames, at);
    if (end == std::string_view::npos || end == at || text[end] != '}') continue;
    const std::string_view name = text.substr(at, end - at);
    if (const Result<HostIndex> host = find_host(name, hosts); !host.ok()) {
      return invalid_argument(host.status().message() + " in {address:" + std::string(name) + "}");
    }
  }
  return {};
}

}  // namespace

Result<Options> parse_options(const std::vector<std::string_view>& arguments) {
  Options options;
  options.network.address_base = kDefaultNetwork;
  Raw raw;
  COLLAB_RETURN_IF_ERROR(read_all(arguments, options, raw));
  if (options.help || options.check) return options;
  COLLAB_RETURN_IF_ERROR(read_hosts(raw, options));
  if (options.network.hosts.empty()) {
    return invalid_argument(
        "expected --sites NAME[:DOWN/UP][,nat][,queue=MS]..., e.g. --sites paris:100/20,nat tokyo:100");
  }
  if (options.command.empty()) return invalid_argument("expected a command after --, e.g. -- ping -c 3 paris");
  for (const std::string& argument : options.command) {
    COLLAB_RETURN_IF_ERROR(check_addresses(argument, options.network.hosts));
  }
  for (const auto& [name, value] : options.environment) {
    COLLAB_RETURN_IF_ERROR(check_addresses(value, options.network.hosts));
  }
  return options;
}

std::string substitute(std::string_view text, const NetworkSpec& network, HostIndex index) {
  const auto address = [&](HostIndex host) {
    return address_text(network.address_base + 1 + static_cast<std::uint32_t>(host));
  };
  std::vector<std::pair<std::string, std::string>> values{{"{site}", network.hosts[index].name},
                                                          {"{index}", std::to_string(index)},
                                                          {"{count}", std::to_string(network.hosts.size())},
                                                          {"{address}", address(index)}};
  for (HostIndex host = 0; host < network.hosts.size(); ++host) {
    values.emplace_back("{address:" + network.hosts[host].name + "}", address(host));
  }
  std::string out;
  while (!text.empty()) {
    const auto found =
        std::find_if(values.begin(), values.end(), [&](const auto& value) { return text.starts_with(value.first); });
    if (found != values.end()) {
      out += found->second;
      text.remove_prefix(found->first.size());
    } else {
      out += text[0];
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace collab::lab
