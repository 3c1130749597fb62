// collab_hostile: one malicious peer, at full speed, from a seed.
//
//   collab_hostile --target HOST:PORT [--run NAME] [--attack NAME|all] [--seed S] [--seconds N]
//                  [--world NUMBER --rank RANK --sites A,B --site-of 0,0,1 --group NUMBER [--shared NUMBER] [--keep]]
//   collab_hostile --list
//
// The target is a coordinator; the peer learns from it what else to attack. A world of ranks has to be named as one of
// its ranks knows it. Then RANK and the ranks after it at its site are the attacker's. --keep enters them and does no
// harm. With COLLAB_TOKEN or COLLAB_TOKEN_FILE it is a member that turned; otherwise anyone at a swarm without a token.
// It says what it did; its seed repeats a failing run.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/wire/limits.h"
#include "tests/hostile/attack.h"
#include "tests/hostile/world.h"

namespace {

using namespace collab;

struct Arguments {
  std::string target, run, attack = "all";
  std::uint64_t seed = random_bits();
  std::uint64_t seconds = 10;
  bool list = false;
  bool keep = false;
  hostile::World world;
};

bool take_number(std::string_view text, std::uint64_t& value) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    found.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return found;
}

// False: it says nothing of a world, or what is none.
bool take_of_world(std::string_view name, std::string_view value, hostile::World& world) {
  std::uint64_t number = 0;
  if (name == "--sites") {
    world.sites = parts_of(value);
    return true;
  }
  if (name == "--site-of") {
    for (const std::string& each : parts_of(value)) {
      if (!take_number(each, number) || number >= wire::kMaxSites) return false;
      world.site_of.push_back(static_cast<std::uint32_t>(number));
    }
    return world.site_of.size() <= wire::kMaxRanks;
  }
  if (!take_number(value, number)) return false;
  if (name == "--world") world.number = number;
  if (name == "--rank") world.rank = RankId(static_cast<std::uint32_t>(std::min<std::uint64_t>(number, UINT32_MAX)));
  if (name == "--group") world.group = GroupId(number);
  if (name == "--shared") world.shared = GroupId(number);
  return name == "--world" || name == "--rank" || name == "--group" || name == "--shared";
}

std::optional<Arguments> read_arguments(int argc, char** argv) {
  Arguments found;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--list" || name == "--keep") {
      (name == "--list" ? found.list : found.keep) = true;
      continue;
    }
    if (i + 1 == argc) return std::nullopt;
    const std::string_view value = argv[++i];
    if (name == "--target") {
      found.target = value;
    } else if (name == "--run") {
      found.run = value;
    } else if (name == "--attack") {
      found.attack = value;
    } else if (!(name == "--seed" && take_number(value, found.seed)) &&
               !(name == "--seconds" && take_number(value, found.seconds)) &&
               !take_of_world(name, value, found.world)) {
      return std::nullopt;
    }
  }
  if (found.target.empty() && !found.list) return std::nullopt;
  if (found.world.number != 0 && found.world.rank.value >= found.world.site_of.size()) return std::nullopt;
  if (found.keep && found.world.number == 0) return std::nullopt;
  return found;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

void tell(const char* what, const std::map<std::string, std::uint64_t>& lines) {
  for (const auto& [words, count] : lines)
    std::cout << "  " << what << " " << count << " times: " << escaped(words) << "\n";
}

// False: it could not begin.
bool run(const hostile::Attack& attack, const Arguments& arguments, std::uint64_t seconds) {
  TcpOptions options;
  options.connections = 1;
  options.token = environment("COLLAB_TOKEN");
  options.token_file = environment("COLLAB_TOKEN_FILE");
  Result<std::shared_ptr<tcp::TlsKeys>> keys = tcp::TlsKeys::make(options);
  if (!keys.ok()) {
    std::cerr << "collab_hostile: " << keys.status().message() << "\n";
    return false;
  }
  hostile::Context context(arguments.target, options, *keys, arguments.seed, std::chrono::seconds(seconds));
  Result<std::unique_ptr<hostile::Peer>> peer = hostile::Peer::make(options, context.counts);
  const Result<std::string> address = peer.ok() ? (*peer)->listen() : peer.status();
  std::optional<hostile::Swarm> swarm;
  if (address.ok()) swarm = hostile::ask_swarm(**peer, arguments.target);
  if (!swarm) {
    std::cerr << "collab_hostile: "
              << (address.ok() ? "no status from " + arguments.target : address.status().message()) << "\n";
    return false;
  }
  if (!arguments.run.empty()) swarm->name = arguments.run;
  context.swarm = std::move(*swarm);
  context.world = arguments.world;
  context.peer = std::move(*peer);
  context.address = *address;
  std::cout << "collab_hostile: " << attack.name << " for " << seconds << " s at " << arguments.target << " and "
            << context.swarm.addresses().size() - 1 << " members of " << context.swarm.name << "; again with --attack "
            << attack.name << " --seed " << arguments.seed << std::endl;
  attack.run(context);
  context.peer.reset();  // its links end before they are counted
  const hostile::Counts& counts = context.counts;
  std::cout << "  " << counts.messages << " messages (" << static_cast<double>(counts.bytes) / 1e6 << " MB) sent, "
            << counts.opened << " links opened, " << counts.failed << " not let in\n";
  std::cout << "  arrived " << counts.arrived << " times\n";
  tell("answered", counts.answers);
  tell("closed", counts.endings);
  std::cout << std::flush;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Arguments> arguments = read_arguments(argc, argv);
  if (!arguments) {
    std::cerr << "collab_hostile --target HOST:PORT [--run NAME] [--attack NAME|all] [--seed S] [--seconds N] [--world "
                 "NUMBER --rank RANK --sites A,B --site-of 0,0,1 --group NUMBER [--shared NUMBER] [--keep]] | --list\n";
    return 2;
  }
  if (arguments->list) {
    for (const hostile::Attack& attack : hostile::attacks()) std::cout << attack.name << ": " << attack.what << "\n";
    return EXIT_SUCCESS;
  }
  set_log_level(LogLevel::kOff);
  if (arguments->keep) {
    const hostile::Attack keeps{"--keep", "", &hostile::keep_ranks, true};
    return run(keeps, *arguments, arguments->seconds) ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  bool known = false;
  bool begun = true;
  const bool all = arguments->attack == "all";
  const std::uint64_t share =
      all ? std::max<std::uint64_t>(1, arguments->seconds / hostile::attacks().size()) : arguments->seconds;
  for (const hostile::Attack& attack : hostile::attacks()) {
    if (!all && attack.name != arguments->attack) continue;
    known = true;
    if (attack.of_a_world && arguments->world.number == 0) {
      std::cerr << "collab_hostile: " << attack.name << " is by a rank of a world: name one by --world\n";
      begun = begun && all;
      continue;
    }
    begun = run(attack, *arguments, share) && begun;
  }
  if (!known) std::cerr << "collab_hostile: there is no attack " << arguments->attack << "; --list names them\n";
  return known && begun ? EXIT_SUCCESS : EXIT_FAILURE;
}
