// collab-lab-emulator: what `collab lab` runs. Sites in namespaces, joined by an emulated wide-area network.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tools/lab/host_network.h"
#include "tools/lab/options.h"
#include "tools/lab/pump.h"
#include "tools/lab/report.h"
#include "tools/lab/site.h"
#include "tools/lab/supervisor.h"

namespace {

using namespace collab::lab;
using collab::Result;
using collab::Status;

constexpr int kCannotRunLab = 1;
constexpr int kWrongUsage = 2;

int fail(const Status& status, int code = kCannotRunLab) {
  std::fprintf(stderr, "collab lab: %s\n", status.message().c_str());
  return code;
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// Null on failure, with errno set.
File open_file(const std::string& path, const char* mode) { return {std::fopen(path.c_str(), mode), &std::fclose}; }

Result<std::string> read_file(const std::string& path) {
  const File file = open_file(path, "re");
  std::string text;
  char buffer[4096];
  for (std::size_t got = 1; file && got > 0;)
    text.append(buffer, got = std::fread(buffer, 1, sizeof buffer, file.get()));
  if (!file || std::ferror(file.get()) != 0) {
    return collab::invalid_argument("the script " + path + " cannot be read: " + std::strerror(errno));
  }
  return text;
}

Result<std::vector<ScriptStep>> load_script(const Options& options) {
  std::vector<ScriptStep> steps;
  if (!options.script_file.empty()) {
    const Result<std::string> text = read_file(options.script_file);
    if (!text.ok()) return text.status();
    Result<std::vector<ScriptStep>> parsed = parse_script(text.value(), options.script_file, options.network.hosts);
    if (!parsed.ok()) return parsed.status();
    steps = *std::move(parsed);
  }
  // Links apply from the start and are not announced.
  for (const Change& link : options.links) steps.insert(steps.begin(), {Time::zero(), link, ""});
  return steps;
}

std::uint32_t address_of(const NetworkSpec& network, HostIndex host) {
  return network.address_base + 1 + static_cast<std::uint32_t>(host);
}

SiteCommand command_of(const Options& options, HostIndex host, int network_fd) {
  const NetworkSpec& network = options.network;
  SiteCommand site{
      .name = network.hosts[host].name, .network = network_fd, .hosts_file = {}, .arguments = {}, .environment = {}};
  site.hosts_file = "127.0.0.1 localhost\n";
  std::string all;
  for (HostIndex i = 0; i < network.hosts.size(); ++i) {
    const std::string address = address_text(address_of(network, i));
    site.hosts_file += address + " " + network.hosts[i].name + "\n";
    all += (i > 0 ? " " : "") + network.hosts[i].name + "=" + address;
  }
  for (const std::string& argument : options.command) site.arguments.push_back(substitute(argument, network, host));
  site.environment = {{"LAB_SITE", site.name},
                      {"LAB_INDEX", std::to_string(host)},
                      {"LAB_COUNT", std::to_string(network.hosts.size())},
                      {"LAB_ADDRESS", address_text(address_of(network, host))},
                      {"LAB_SITES", all},
                      {"COLLAB_SITE", site.name}};
  for (const auto& [name, value] : options.environment) {
    site.environment.emplace_back(name, substitute(value, network, host));
  }
  return site;
}

std::string describe(const Options& options) {
  std::string text;
  for (HostIndex host = 0; host < options.network.hosts.size(); ++host) {
    const HostSpec& spec = options.network.hosts[host];
    text += "lab: " + spec.name + " is " + address_text(address_of(options.network, host)) + ", down " +
            to_string(spec.down) + " and up " + to_string(spec.up) + " Mbit/s" + (spec.nat ? ", behind NAT" : "") +
            "\n";
  }
  return text;
}

struct Prepared {
  std::vector<HostNetwork> networks;
  std::vector<RunningSite> sites;
  LifeLine life;
};

Result<Prepared> prepare(const Options& options) {
  Prepared made;
  COLLAB_RETURN_IF_ERROR(take_rights());
  for (HostIndex host = 0; host < options.network.hosts.size(); ++host) {
    Result<HostNetwork> network = make_host_network(address_of(options.network, host), options.mtu);
    if (!network.ok()) return network.status();
    made.networks.push_back(*std::move(network));
  }
  Result<LifeLine> life = make_life_line();
  if (!life.ok()) return life.status();
  made.life = *std::move(life);
  for (HostIndex host = 0; host < options.network.hosts.size(); ++host) {
    Result<RunningSite> site = start_site(command_of(options, host, made.networks[host].name_space.get()), made.life);
    if (!site.ok()) return site.status();
    made.sites.push_back(*std::move(site));
  }
  return made;
}

void say_step(const ScriptStep& step) {
  if (!step.text.empty()) {
    std::fprintf(stderr, "lab: %g s: %s\n", std::chrono::duration<double>(step.at).count(), step.text.c_str());
  }
}

// Opens an output file before anything runs, so that a run of hours does not lose its results. Null: no file wanted.
Result<File> open_output(const std::string& what, const std::string& path) {
  if (path.empty()) return File(nullptr, &std::fclose);
  File file = open_file(path, "we");
  if (!file) return system_error("the " + what + " " + path + " cannot be written");
  return file;
}

Status write_report(const Options& options, const Pump& pump, File file) {
  if (!file) return {};
  const std::string text = traffic_json(pump.network(), options.network, pump.elapsed());
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  const bool closed = std::fclose(file.release()) == 0;
  return written && closed ? Status() : system_error("the report " + options.report_file + " cannot be written");
}

int run(const Options& options) {
  Result<std::vector<ScriptStep>> script = load_script(options);
  if (!script.ok()) return fail(script.status(), kWrongUsage);
  Result<File> report = open_output("report", options.report_file);
  if (!report.ok()) return fail(report.status());
  const Result<File> capture = open_output("capture", options.capture_file);
  if (!capture.ok()) return fail(capture.status());
  if (capture.value()) {
    if (const Status begun = begin_capture(capture.value().get()); !begun.ok()) return fail(begun);
  }
  if (!options.quiet) std::fputs(describe(options).c_str(), stderr);
  block_signals();
  Result<Prepared> prepared = prepare(options);
  if (!prepared.ok()) return fail(prepared.status());

  std::vector<int> tuns;
  for (const HostNetwork& network : prepared->networks) tuns.push_back(network.tun.get());
  std::vector<std::string> names;
  for (const HostSpec& host : options.network.hosts) names.push_back(host.name);
  const auto say = options.quiet ? [](const ScriptStep&) {} : say_step;
  Pump pump(options.network, std::move(tuns), *std::move(script), say, capture.value().get());
  if (const Status ready = pump.prepare(); !ready.ok()) return fail(ready);
  std::thread packets([&pump] {
    pump.run();
    if (!pump.failure().empty()) ::kill(::getpid(), SIGTERM);  // without a network, sites would wait for ever
  });
  Supervisor supervisor(std::move(prepared->sites), names, options.quiet);
  const Result<int> ended = supervisor.wait();
  pump.stop();
  packets.join();

  if (!options.quiet) std::fputs(traffic_table(pump.network(), options.network, pump.elapsed()).c_str(), stderr);
  if (const Status written = write_report(options, pump, *std::move(report)); !written.ok()) return fail(written);
  if (!pump.failure().empty()) return fail(collab::internal_error(pump.failure()));
  if (!ended.ok()) return fail(ended.status());
  return *ended;
}

int check() {
  if (const Status rights = take_rights(); !rights.ok()) return fail(rights);
  const Result<HostNetwork> network = make_host_network(10U << 24 | 99U << 16 | 1, 1500);
  if (!network.ok()) return fail(network.status());
  std::puts("collab lab: may run here");
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  const Result<Options> options = parse_options({argv + 1, argv + argc});
  if (!options.ok()) return fail(options.status(), kWrongUsage);
  if (options.value().help) {
    std::fputs(help_text().data(), stdout);
    return EXIT_SUCCESS;
  }
  if (options.value().check) return check();
  return run(options.value());
}
